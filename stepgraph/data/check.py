"""Builds a task from a data section, and so checks that section: there is one reading of it, not two.

Needs no tensor library and starts nothing, so that a bad data section is refused before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stepgraph.data import digits, gym, jsonl
from stepgraph.data.options import one_of, only_known, whole
from stepgraph.data.task import Task

COMMON = ("_target_", "task", "batch", "eval_size")


class Kind(NamedTuple):
    """A kind of task: the options it reads, and what builds it from a data section and a seed."""

    options: tuple[str, ...]
    build: Callable[[Mapping[str, Any], int], Task]


KINDS: dict[str, Kind] = {
    "digits": Kind(digits.OPTIONS, digits.Digits.of),
    "reasoning_gym": Kind(gym.OPTIONS, gym.Gym.of),
    "jsonl": Kind(jsonl.OPTIONS, jsonl.Jsonl.of),
}


def check_data(data: Mapping[str, Any]) -> None:
    """Refuse a data section that cannot be used: ConfigError with the option, file or line that is wrong."""
    build_task(data, seed=0).held_out(1)


def build_task(data: Mapping[str, Any], seed: int) -> Task:
    """The task that a data section describes."""
    kind = KINDS[one_of(data.get("task"), KINDS, "data.task")]
    only_known(data, (*COMMON, *kind.options), f"data.task={data['task']}")
    whole(data, "batch", 32, low=1)
    whole(data, "eval_size", 16, low=0)
    return kind.build(data, seed)


def answer_tokens(data: Mapping[str, Any]) -> int:
    """How many tokens an answer to this data section's questions may take."""
    return build_task(data, seed=0).answer_tokens
