"""What a run directory says of a run: its plan, and how long each phase took.

A run that was killed may end in half a line, and a resumed one tells a step twice: the later telling counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stepgraph.compiler.document import SCHEMA
from stepgraph.errors import ConfigError

PLAN, EVENTS = "plan.json", "events.jsonl"
READ = {"run", "variants", "start", "end", "totals"}
"""What a plan must have to be read."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One phase that ran: ``section`` is ``start``, ``step`` or ``end`` as the run called it, ``step`` its number.

    ``began`` and ``ended`` are seconds since the run began.
    """

    phase: str
    kind: str
    section: str
    step: int | None
    began: float
    ended: float
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run directory, read. ``document`` is the plan as JSON."""

    path: Path
    document: Mapping[str, Any]
    timed: tuple[Timed, ...]

    def seconds(self, phase: str) -> list[float]:
        """How long each run of a phase took that went well."""
        return [one.seconds for one in self.timed if one.phase == phase and one.outcome == "ok"]

    def median(self, phase: str) -> float | None:
        """The median of a phase, ``None`` where it never ran."""
        found = self.seconds(phase)
        return median(found) if found else None

    def at(self, phase: str, section: str, step: int | None) -> Timed | None:
        """How a phase ran in a step, or in ``start`` or ``end``."""
        here = (one for one in self.timed if one.phase == phase and one.step == step)
        return next((one for one in here if step is not None or one.section == section), None)


def read_run(path: str | os.PathLike[str]) -> RunDir:
    """Read a run directory; what is none is refused."""
    folder = Path(path)
    return RunDir(folder, read_plan(folder), tuple(timed(folder)))


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan that a run directory holds."""
    if not folder.is_dir():
        said = "is a file, no run directory" if folder.exists() else "does not exist"
        raise ConfigError(f"{folder} {said}: give the run.dir of a run")
    file = folder / PLAN
    if not file.is_file():
        raise ConfigError(f"{folder} is no run directory, as it has no {PLAN}: give the run.dir of a run")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not found.keys() >= READ:
        raise ConfigError(f"{file} is no plan of schema {SCHEMA}: it was not written by this version's run")
    return found


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """What happened, in order. A line that is no JSON is one that a killed run did not finish."""
    file = folder / EVENTS
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def timed(folder: Path) -> list[Timed]:
    """Each phase that ended, once for each step."""
    found: dict[tuple[str, str, int | None], Timed] = {}
    for event in events(folder):
        if event.get("event") != "end":
            continue
        one = timed_of(event)
        key = (one.phase, one.section, one.step)
        found.pop(key, None)
        found[key] = one
    return list(found.values())


def timed_of(event: Mapping[str, Any]) -> Timed:
    ended, seconds = float(event.get("t", 0.0)), float(event.get("seconds", 0.0))
    step = event.get("step")
    return Timed(
        phase=str(event.get("phase", "")),
        kind=str(event.get("kind", "work")),
        section=str(event.get("section", "")),
        step=step if isinstance(step, int) else None,
        began=ended - seconds,
        ended=ended,
        seconds=seconds,
        outcome=str(event.get("outcome", "ok")),
    )
