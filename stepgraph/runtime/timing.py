"""How long a step took and what it was spent on, when phases overlap and their times do not add up.

A step lasts from the end of the one before it to its own end, so that the steps of a run add up to its length.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median


@dataclass(frozen=True, slots=True)
class Ran:
    """One phase's run. ``seconds`` is its share of the call that it came in."""

    name: str
    section: int
    began: float
    ended: float
    seconds: float
    kind: str = "work"
    copies: bool = False


@dataclass(frozen=True, slots=True)
class StepTime:
    """``idle``: nothing ran at all. ``exposed``: a phase ran alone, so that the step would be shorter without it."""

    seconds: float
    idle: float
    phases: tuple[Ran, ...] = ()
    exposed: dict[str, float] = field(default_factory=dict)


class Clock:
    """Collects runs and closes steps in order."""

    def __init__(self, now: float) -> None:
        self._edge = now
        self._ran: list[Ran] = []
        self._history: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=1000))

    def add(self, ran: Ran) -> None:
        self._ran.append(ran)
        self._history[ran.name].append(ran.seconds)

    def close(self, section: int, running: Sequence[Ran] = ()) -> StepTime:
        """The times of a section that is finished; ``running`` are phases of the next one that go on."""
        mine = tuple(ran for ran in self._ran if ran.section == section)
        begin, end = self._edge, max((ran.ended for ran in mine), default=self._edge)
        end = max(begin, end)
        idle, exposed = spread([*self._ran, *running], begin, end)
        self._edge = end
        self._ran = [ran for ran in self._ran if ran.section > section]
        return StepTime(end - begin, idle, mine, exposed)

    def median(self, name: str) -> float | None:
        """The median duration of a phase, or ``None`` where it never ran."""
        return median(self._history[name]) if self._history.get(name) else None


def spread(runs: Sequence[Ran], begin: float, end: float) -> tuple[float, dict[str, float]]:
    """Idle time, and each phase's time alone, between two instants. Phases that came in one call are one run."""
    marks = sorted({begin, end, *(t for ran in runs for t in (ran.began, ran.ended) if begin < t < end)})
    idle, exposed = 0.0, dict.fromkeys((ran.name for ran in runs), 0.0)
    for left, right in pairwise(marks):
        here = [ran for ran in runs if ran.began <= left and ran.ended >= right and ran.began < ran.ended]
        calls = {(ran.section, ran.began, ran.ended) for ran in here}
        if not calls:
            idle += right - left
        elif len(calls) == 1:
            for ran in here:
                exposed[ran.name] += (right - left) / len(here)
    return idle, exposed
