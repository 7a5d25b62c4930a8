"""A compiled step as people and executors see it: the phases that remain and those that went, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from stepgraph.ir.phase import Phase


@dataclass(frozen=True, slots=True)
class Planned:
    """A phase that runs. ``needs``, ``moves`` and ``copies`` are what remains of them, the placement's needs included.

    ``after`` names what it waits for: ``x`` is the run of x in this step, ``x@previous`` the latest run of x before it.
    ``for_step`` is the step it works for; it differs from the step it runs in for a phase that runs ahead. ``dropped``
    are the parts it lost, with their codes; ``may_fire`` says that only the run will tell whether it is due.
    """

    phase: Phase
    needs: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    why: str = "work"
    for_step: int | None = None
    layer: int = 1
    dropped: Mapping[str, str] = field(default_factory=dict)
    may_fire: bool = False

    @property
    def name(self) -> str:
        return self.phase.name

    @property
    def kind(self) -> str:
        return self.phase.kind

    @property
    def use(self) -> str:
        return self.phase.use

    @property
    def reads(self) -> tuple[str, ...]:
        return self.phase.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.phase.writes

    @property
    def updates(self) -> tuple[str, ...]:
        return self.phase.updates


@dataclass(frozen=True, slots=True)
class Pruned:
    """A phase, or some parts of one, that will not run: the code, the reason in words, and what would keep it."""

    name: str
    code: str
    reason: str
    kept_if: str = ""
    moves: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)


class CompiledStep:
    """One step (``step`` is ``None`` for what runs before the first and after the last).

    Steps of one variant share their phases; only ``for_step`` differs, and is filled in when it is looked at. Reasons
    for what is pruned are told for the first step of the variant (``Plan.pruned`` tells them for any).
    """

    def __init__(self, step: int | None, variant: int, shared: tuple[Planned, ...], pruned: tuple[Pruned, ...]) -> None:
        self.step, self.variant, self.pruned = step, variant, pruned
        self._shared = shared

    @cached_property
    def phases(self) -> tuple[Planned, ...]:
        """The phases that run, in declared order."""
        if self.step is None:
            return self._shared
        return tuple(replace(p, for_step=self.step + p.phase.ahead) for p in self._shared)
