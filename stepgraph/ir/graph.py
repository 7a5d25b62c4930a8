"""A graph: resources, what is kept, and the lists of phases, with the placement and the run it is compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepgraph.ir.phase import Pairs, Phase
from stepgraph.ir.resource import PLACES, Resource


@dataclass(frozen=True, slots=True)
class Placement:
    """Who shares which device. ``makes_room`` pairs X with the Y's that X leaves the device for.

    ``capacity`` is in GiB for each place that has a limit.
    """

    name: str = ""
    makes_room: tuple[tuple[str, tuple[str, ...]], ...] = ()
    capacity: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """The steps to compile: ``first`` up to, not including, ``steps`` or the end of the last epoch."""

    steps: int | None = None
    first: int = 0
    epochs: int | None = None
    steps_per_epoch: int | None = None
    extend: int = 0

    @property
    def total(self) -> int | None:
        """The step after the last one, ``extend`` steps later than asked for; ``None`` where nothing bounds the run."""
        ends = [self.steps] if self.steps is not None else []
        if self.epochs is not None and self.steps_per_epoch is not None:
            ends.append(self.epochs * self.steps_per_epoch)
        return min(ends) + self.extend if ends else None


@dataclass(frozen=True, slots=True)
class Graph:
    """A declared loop. Its meaning: ``start``, then ``step`` top to bottom once a step, then ``end``."""

    name: str
    resources: Mapping[str, Resource] = field(hash=False)
    keep: Pairs = ()
    start: tuple[Phase, ...] = ()
    step: tuple[Phase, ...] = ()
    end: tuple[Phase, ...] = ()
    places: tuple[str, ...] = PLACES
    placement: Placement = Placement()
    run: Run = Run()
    max_staleness: int | None = None
    source: str = ""
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Every phase that is declared: those of ``start``, of ``step``, of ``end``."""
        return (*self.start, *self.step, *self.end)

    @property
    def sources(self) -> dict[str, set[str]]:
        """What each resource that is the target of a copy is copied from."""
        found: dict[str, set[str]] = {}
        for phase in self.phases:
            for target, source in phase.copies:
                found.setdefault(target, set()).add(source)
        return found
