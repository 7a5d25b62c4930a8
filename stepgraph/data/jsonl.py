"""Questions from a JSONL file: one object a line, with a question and an answer, scored by name.

The whole file is read and checked before anything is built, so that a bad line costs a second and not a night. Each
epoch has an order of its own, given by the seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from stepgraph.data.options import flag, text, whole
from stepgraph.data.scorers import Scorer, scorer
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.runtime.contract import Prompt

OPTIONS = ("path", "eval_path", "prompt_key", "answer_key", "scorer", "repeat", "max_new_tokens")


@dataclass(frozen=True)
class Jsonl:
    """The questions of a file. Without a file for evaluations, its last lines are held out."""

    train: Sequence[Prompt]
    test: Sequence[Prompt]
    scorer: Scorer
    seed: int
    repeat: bool
    answer_tokens: int

    @classmethod
    def of(cls, data: Mapping[str, Any], seed: int) -> Jsonl:
        tokens = whole(data, "max_new_tokens", 64, low=1)
        train, test = _split(data)
        return cls(train, test, scorer(data.get("scorer", "exact")), seed, flag(data, "repeat", True), tokens)

    @property
    def size(self) -> int | None:
        return None if self.repeat else len(self.train)

    @property
    def epoch(self) -> int:
        """How many questions make an epoch."""
        return len(self.train)

    def prompt(self, index: int) -> Prompt:
        epoch, place = divmod(index, len(self.train))
        return replace(self.train[self._order(epoch)[place]], index=index)

    def held_out(self, count: int) -> list[Prompt]:
        return [replace(prompt, index=-1 - i) for i, prompt in enumerate(self.test[:count])]

    def score(self, text: str, prompt: Prompt) -> float:
        return float(self.scorer(text, prompt))

    def _order(self, epoch: int) -> list[int]:
        """The order of one epoch; the last one asked for is kept, as a stream asks for the same one many times."""
        kept: tuple[int, list[int]] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != epoch:
            kept = (epoch, Random(f"{self.seed}:{epoch}").sample(range(len(self.train)), len(self.train)))
            object.__setattr__(self, "_kept", kept)
        return kept[1]


def _split(data: Mapping[str, Any]) -> tuple[list[Prompt], list[Prompt]]:
    prompts, aside = _read(data, "path"), whole(data, "eval_size", 16, low=0)
    if data.get("eval_path") is not None:
        return prompts, _read(data, "eval_path")[:aside]
    if aside >= len(prompts):
        lines = f"{text(data, 'path')} has {len(prompts)} questions"
        raise ConfigError(f"data.eval_size={aside} leaves none to train on: {lines}; lower it or set data.eval_path")
    return prompts[: len(prompts) - aside], prompts[len(prompts) - aside :]


def _read(data: Mapping[str, Any], key: str) -> list[Prompt]:
    name = text(data, key)
    try:
        lines = Path(name).expanduser().read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"data.{key}: cannot read '{name}': {error.strerror or error}") from error
    prompts = [_prompt(data, line, f"{name}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise ConfigError(f"data.{key}: '{name}' has no questions; write one JSON object a line")
    return prompts


def _prompt(data: Mapping[str, Any], line: bytes, where: str) -> Prompt:
    try:
        row = json.loads(line)
    except ValueError as error:  # broken JSON, or bytes that are no UTF-8
        raise ConfigError(f"{where}: not JSON ({error}); a line holds one JSON object") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a {type(row).__name__}, but a line holds one JSON object")
    asked = _field(row, text(data, "prompt_key", "prompt"), "prompt_key", where)
    wanted = _field(row, text(data, "answer_key", "answer"), "answer_key", where)
    return Prompt(text=asked, answer=wanted, index=0, meta=row)


def _field(row: Mapping[str, Any], key: str, option: str, where: str) -> str:
    if key not in row:
        hint = did_you_mean(key, row)
        raise ConfigError(f"{where}: no key '{key}'{hint}; it has {', '.join(row) or 'none'} (set data.{option})")
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: '{key}' is {value!r}; it must be text or a number")
    return str(value)
