"""Phases: named pieces of a step, and the gates that say when they are due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Pairs = tuple[tuple[str, str], ...]

TRIGGERS = ("every", "steps", "first", "last", "epoch_end", "with")
RUNTIME_TRIGGERS = ("file", "signal", "minutes", "metric")


@dataclass(frozen=True, slots=True)
class When:
    """A gate: any trigger fires it, inside the half-open window ``[start, until)`` of 0-based steps.

    ``named`` is false where no trigger is mentioned at all: such a phase is due in every step of its window.
    """

    named: bool = False
    every: int | None = None
    steps: tuple[int, ...] = ()
    first: bool = False
    last: bool = False
    epoch_end: bool = False
    with_: str | None = None
    start: int = 0
    until: int | None = None
    runtime: Pairs = ()

    @property
    def may_fire(self) -> bool:
        """Whether something known only at run time can make the phase due."""
        return bool(self.runtime)


@dataclass(frozen=True, slots=True)
class Phase:
    """One named piece of a step: what it reads, writes, needs and moves. ``copies`` pairs a target with its source."""

    name: str
    use: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    needs: Pairs = ()
    moves: Pairs = ()
    copies: Pairs = ()
    whole: bool = False
    pure: bool = False
    when: When = When()
    ahead: int = 0
    enabled: bool = True
    doc: str = ""
    on_error: str = "fail"
    retries: int = 0
    timeout_s: float | None = None
    hooks: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def handoff(self) -> bool:
        """Whether it only moves or copies, so that it may go when nobody wants what it does."""
        return bool(self.moves or self.copies) and not (self.reads or self.writes or self.updates)

    @property
    def kind(self) -> str:
        """``handoff`` or ``work``."""
        return "handoff" if self.handoff else "work"

    @property
    def component(self) -> str:
        """The component that runs it: ``engine`` of ``engine.generate``; empty for a dotted path or a file."""
        parts = self.use.split(".")
        return parts[0] if len(parts) == 2 and all(part.isidentifier() for part in parts) else ""

    def touched(self) -> tuple[str, ...]:
        """Every resource it names, each once, in the order of its words."""
        named = [*self.reads, *self.updates, *self.writes, *(name for name, _ in self.needs)]
        named += [name for name, _ in self.moves]
        named += [name for pair in self.copies for name in pair]
        return tuple(dict.fromkeys(named))
