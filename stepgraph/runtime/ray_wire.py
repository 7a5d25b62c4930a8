"""What travels between the driver and the actors: calls, answers and errors, all without the run's state.

Contents do not travel here: they are object references beside the call, so that only who reads them fetches them.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import Signature
from pathlib import Path
from typing import Any

from stepgraph.errors import RunError
from stepgraph.ir.plan import Planned
from stepgraph.runtime.contract import Shared


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an actor builds its component. ``target`` is empty for the actor that runs plain functions."""

    name: str
    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: Shared | None = None
    divides: tuple[str, ...] = ()
    kind: str = "actor"

    def member(self, rank: int, ranks: int) -> Recipe:
        """The recipe of one of several actors."""
        return replace(self, shared=self.shared and replace(self.shared, rank=rank, ranks=ranks))

    @property
    def rank(self) -> int:
        return self.shared.rank if self.shared else 0

    @property
    def title(self) -> str:
        """The actor, or the task, for people."""
        several = self.shared is not None and self.shared.ranks > 1
        return f"{self.kind} {self.name}" + (f", rank {self.rank}" if several else "")


@dataclass(frozen=True, slots=True)
class Surface:
    """What can be asked of a component, and where it is: enough to check a plan against it from afar."""

    kind: str
    methods: Mapping[str, Signature | None] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """What is left of a context on its way to another actor."""

    step: int | None
    phase: str
    run_dir: Path
    seed: int


@dataclass(frozen=True, slots=True)
class Order:
    """A call as an actor gets it. Beside it come ``waits`` answers, the contents and a parcel for each of ``sources``.

    ``contents`` says how many pieces each has, that are put together where it is used; ``part`` is where a checkpoint
    goes. ``divided``: each member of a group does its part, so that a value is a piece.
    """

    phases: tuple[Planned, ...]
    label: str
    about: About
    part: Path
    waits: int
    contents: Mapping[str, int]
    streams: Mapping[str, Any]
    sources: tuple[str, ...]
    values: tuple[str, ...]
    versions: Mapping[str, int]
    after: Mapping[str, int]
    places: Mapping[str, str]
    divided: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """An error that can travel, whatever it holds."""

    kind: str
    text: str
    told: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        text = " ".join(str(error).split())
        return cls(type(error).__name__, text, "".join(traceback.format_exception(error)))

    def error(self, where: str) -> RunError:
        """The error for people: what it was, and where to look."""
        said = self.text if self.kind == "RunError" else f"{self.kind}: {self.text}" if self.text else self.kind
        found = RunError(f"{said} [{where}]")
        found.__cause__ = _Told(f"\n{self.told}")
        return found


class _Told(Exception):
    """The traceback of an error in an actor, as text, in the place where Python prints a cause."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call went, without the contents that it made. ``skipped``: it was not begun, as one before it failed;
    ``where`` it failed.
    """

    began: float = 0.0
    ended: float = 0.0
    skipped: bool = False
    error: Failed | None = None
    sinks: Mapping[str, Any] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    metrics: tuple[Mapping[str, float], ...] = ()
    retries: tuple[tuple[int, Failed], ...] = ()
    attempts: int = 1
    saved: bool = False
    where: str = ""

    @property
    def stops(self) -> bool:
        """Whether those that wait for it must not begin."""
        return self.skipped or self.error is not None


SKIPPED = Answer(skipped=True)
