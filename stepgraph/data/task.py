"""What a task is: questions in a fixed order, held-out questions, and a score for an answer.

A question is a function of its position and the seed alone. That is what makes a cursor enough to resume from: no
iterator state has to be saved, and two processes that are given the same position ask the same question.
"""

from __future__ import annotations

from typing import Protocol

from stepgraph.runtime.contract import Prompt


class Task(Protocol):
    """One kind of question. ``size`` is how many there are, or None when they never run out."""

    @property
    def size(self) -> int | None: ...

    @property
    def answer_tokens(self) -> int:
        """How many tokens an answer may take."""
        ...

    def prompt(self, index: int) -> Prompt:
        """The question at a position of the stream, from 0."""
        ...

    def held_out(self, count: int) -> list[Prompt]:
        """Questions that ``prompt`` never asks. Their indices are negative, so that they are in nobody's stream."""
        ...

    def score(self, text: str, prompt: Prompt) -> float:
        """How good an answer is; 1 is right."""
        ...
