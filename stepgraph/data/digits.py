"""Copy or sort a few digits: a task that a model of 80 thousand weights learns from nothing in seconds.

It needs no file and no network, and its reward is dense (the share of right positions), so that a reward curve
that does not rise points at the loop and not at the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from stepgraph.data.options import one_of, whole
from stepgraph.runtime.contract import Prompt

OPTIONS = ("op", "length")
SHARE_HELD_OUT = 8  # one in so many strings of digits is only ever asked by an evaluation


@dataclass(frozen=True, slots=True)
class Digits:
    """``length`` digits and ``=``; the answer is the same digits, copied or sorted."""

    op: str
    length: int
    seed: int
    size: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any], seed: int) -> Digits:
        op = one_of(data.get("op", "copy"), ("copy", "sort"), "data.op")
        return cls(op=op, length=whole(data, "length", 3, low=2, high=8), seed=seed)

    @property
    def answer_tokens(self) -> int:
        return self.length

    def prompt(self, index: int) -> Prompt:
        draws = self._draws(f"{self.seed}:{index}")
        return self._ask(next(d for d in draws if not _is_held_out(d)), index)

    def held_out(self, count: int) -> list[Prompt]:
        draws = (d for d in self._draws(f"{self.seed}:held out") if _is_held_out(d))
        return [self._ask(next(draws), -1 - i) for i in range(count)]

    def score(self, text: str, prompt: Prompt) -> float:
        """The share of positions that are right. Anything after the last position is ignored."""
        right = sum(a == b for a, b in zip(text, prompt.answer, strict=False))
        return right / len(prompt.answer)

    def _draws(self, seed: str) -> Iterator[str]:
        random = Random(seed)
        while True:
            yield f"{random.randrange(10**self.length):0{self.length}d}"

    def _ask(self, digits: str, index: int) -> Prompt:
        answer = digits if self.op == "copy" else "".join(sorted(digits))
        return Prompt(text=f"{digits}=", answer=answer, index=index)


def _is_held_out(digits: str) -> bool:
    return crc32(digits.encode()) % SHARE_HELD_OUT == 0
