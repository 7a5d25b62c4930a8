"""``@phase``: what a function of your own reads, writes and needs, written beside it. Metadata only.

The function stays what it was and can be called and tested as one. What a graph's YAML says of the phase wins, word by
word; what it leaves out is taken from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from stepgraph.errors import did_you_mean

Body = TypeVar("Body", bound=Callable[..., Any])
Names = str | Iterable[str]

DECLARED = "__stepgraph_phase__"
"""Where a function carries its words."""

WORDS = (
    "reads", "writes", "updates", "needs", "moves", "copies", "whole", "pure", "when", "ahead",
    "before", "after", "doc", "on_error", "retries", "timeout_s", "options",
)  # fmt: skip

SLOTS: Mapping[str, tuple[str, ...]] = {
    "generate": ("rollout", "reward", "filter"),
    "train": ("loss", "advantage", "correction"),
}
"""The hook slots of the methods that every engine and trainer has, so that a plan can refuse others."""


@overload
def phase(body: Body, /) -> Body: ...
@overload
def phase(
    *,
    reads: Names | None = None,
    writes: Names | None = None,
    updates: Names | None = None,
    needs: Mapping[str, str] | None = None,
    moves: Mapping[str, str] | None = None,
    copies: Mapping[str, str] | None = None,
    whole: bool | None = None,
    pure: bool | None = None,
    when: Mapping[str, Any] | None = None,
    ahead: int | None = None,
    before: Names | None = None,
    after: Names | None = None,
    doc: str | None = None,
    on_error: str | None = None,
    retries: int | None = None,
    timeout_s: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[[Body], Body]: ...
def phase(body: Body | None = None, /, **words: Any) -> Body | Callable[[Body], Body]:
    """Say of a function what a phase that uses it reads, writes, updates, needs, moves, and when it is due.

    >>> @phase(reads=["rollouts"], writes=["report"])
    ... def longest(rollouts):
    ...     return {"report": max(map(len, rollouts))}
    >>> longest([[1, 2]])
    {'report': 2}
    """
    known = ", ".join(WORDS)
    for word in words:
        if word not in WORDS:
            raise TypeError(f"@phase has no word '{word}'{did_you_mean(word, WORDS) or f' (known: {known})'}")
    given = {word: value for word, value in words.items() if value is not None}

    def declare(function: Body) -> Body:
        setattr(function, DECLARED, given)
        return function

    return declare if body is None else declare(body)


def declared(function: Any) -> dict[str, Any]:
    """The words that a function carries, and the first line of its documentation where they have none."""
    return with_doc(dict(getattr(function, DECLARED, {})), getattr(function, "__doc__", None))


def with_doc(words: dict[str, Any], text: str | None) -> dict[str, Any]:
    """The words with a ``doc``: the one line that pictures and ``explain`` show."""
    first = (text or "").strip().partition("\n")[0]
    return {"doc": first, **words} if first else words
