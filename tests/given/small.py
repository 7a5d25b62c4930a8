"""A small model, its data, and what stands for the runtime: what tests of several folders build their parts with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DIGITS = {"task": "digits", "op": "copy", "length": 3, "batch": 4, "eval_size": 5}


def tiny(**changes: Any) -> dict[str, Any]:
    """A Qwen2 from nothing, in the words of ``conf/model``."""
    config = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
    return {"name": "tiny", "config": config | changes, "tokenizer": "digits"}


class Context:
    """Stands for the runtime's: it logs into a dict and hands out folders."""

    def __init__(
        self, run_dir: Path, components: Mapping[str, Any] | None = None, seed: int = 0, step: int = 0
    ) -> None:
        self.run_dir, self.components, self.seed, self.step = run_dir, dict(components or {}), seed, step
        self.phase, self.metrics = "phase", dict[str, float]()

    def log(self, **metrics: float) -> None:
        self.metrics |= metrics

    @contextmanager
    def checkpoint(self) -> Iterator[Path]:
        folder = self.run_dir / f"checkpoint-{self.step}"
        folder.mkdir(parents=True)
        yield folder


def scored(seed: int, count: int, group: int) -> dict[str, list[Any]]:
    """Rollouts of different lengths in groups, and a reward for each."""
    from stepgraph.runtime.contract import Prompt, Rollout

    draw = random.Random(seed)
    rollouts = []
    for number in range(count):
        length, prompt = draw.randint(1, 3), (6, 3, 8, 13)[: draw.randint(2, 4)]
        tokens = tuple(draw.randint(3, 12) for _ in range(length))
        logprobs = tuple(-2.0 - draw.random() / 5 for _ in range(length))
        asked = Prompt("305=", "305", number // group)
        rollouts.append(Rollout(asked, prompt, tokens, logprobs, "", 0, number // group))
    return {"rollouts": rollouts, "rewards": [draw.random() for _ in range(count)]}
