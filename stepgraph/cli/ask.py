"""``python -m stepgraph.cli.ask RUN_DIR PROMPT...``: what the model that a run saved answers.

No command of ``stepgraph``, because a prompt may look like a setting: ``305=``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from stepgraph.cli import report
from stepgraph.data.check import answer_tokens
from stepgraph.errors import ConfigError, StepgraphError
from stepgraph.runtime.checkpoint import find_checkpoint


def main(words: Sequence[str]) -> int:
    """Print each prompt with the model's answer."""
    try:
        for prompt, said in answers(words):
            print(f"{prompt} -> {said}", flush=True)
    except StepgraphError as error:
        return report(error)
    return 0


def answers(words: Sequence[str]) -> list[tuple[str, str]]:
    """Each prompt and what the latest checkpoint of the run directory answers."""
    if len(words) < 2:
        raise ConfigError("ask wants a run directory and prompts: python -m stepgraph.cli.ask RUN_DIR PROMPT...")
    run_dir, *prompts = words
    checkpoint = find_checkpoint(run_dir)
    if checkpoint is None:
        raise ConfigError(f"{run_dir} holds no checkpoint: name the directory of a run that saved one")
    from stepgraph.components.torch.ask import answer

    most = answer_tokens(yaml.safe_load((Path(run_dir) / "config.yaml").read_text(encoding="utf-8"))["data"])
    return [(prompt, answer(checkpoint.path, prompt, most)) for prompt in prompts]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
