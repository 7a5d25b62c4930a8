"""``python -m stepgraph.cli.ask [--before] RUN_DIR PROMPT...``: what the model that a run saved answers.

No command of ``stepgraph``, because a prompt may look like a setting: ``305=``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from stepgraph.cli import report
from stepgraph.data.check import answer_tokens
from stepgraph.errors import ConfigError, StepgraphError
from stepgraph.runtime.checkpoint import find_checkpoint

BEFORE = "--before"
USAGE = f"python -m stepgraph.cli.ask [{BEFORE}] RUN_DIR PROMPT..."


def main(words: Sequence[str]) -> int:
    """Print each prompt with the model's answer; with ``--before``, what it answered before the run, too."""
    try:
        for prompt, *said in answers(words):
            print(f"{prompt} -> {said[-1]}" + (f"   (before the run: {said[0]})" if len(said) > 1 else ""), flush=True)
    except StepgraphError as error:
        return report(error)
    return 0


def answers(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each prompt, where asked for what the first weights answer, and what the latest checkpoint answers."""
    before = list(words[:1]) == [BEFORE]
    run_dir, *prompts = words[int(before) :] or [""]
    if not prompts:
        raise ConfigError(f"ask wants a run directory and prompts: {USAGE}")
    checkpoint = find_checkpoint(run_dir)
    if checkpoint is None:
        raise ConfigError(f"{run_dir} holds no checkpoint: name the directory of a run that saved one")
    from stepgraph.components.torch.ask import saved, untrained

    config: dict[str, Any] = yaml.safe_load((Path(run_dir) / "config.yaml").read_text(encoding="utf-8"))
    model, most = config["model"], answer_tokens(config["data"])
    asked = [untrained(model, config["run"]["seed"])] if before else []
    asked.append(saved(checkpoint.path, chat=model.get("chat", True)))
    for prompt in prompts:
        yield prompt, *(one.answer(prompt, most) for one in asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
