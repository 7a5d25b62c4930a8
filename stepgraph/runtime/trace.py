"""``trace.json``: the run on a time line, in the format that Perfetto and Chrome's own viewer open.

A process for each component, a lane for each kind of its work, a slice for each call with the reason it ran. The arrow
into a slice comes from the call that it waited for longest, so that the arrows backwards from the end are the critical
path. Counters say how much is at each place, as far as sizes are known.

Written as it happens. The format lets the closing bracket be missing, so the trace of a killed run opens too, and shows
what was running. A resumed run goes on in the same file; times are microseconds of the wall clock at its beginning.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import Planned
from stepgraph.runtime.schedule import Task

TRACE = "trace.json"
GIB = 2**30
OTHER, MEMORY = "functions", "memory"
"""The processes of what belongs to no component, and of the counters."""
KINDS = ("work", "handoff", "sync")
PLACES = ("device", "host")
"""Where sizes are counted."""
CLOSING = b"\n]\n"
TAIL = 1 << 20
"""An event is shorter than this many bytes."""


class TraceFile:
    """A file of events, complete after each of them but for the last bracket.

    ``torn``: it was begun by a run that was killed, so that slices in it may never end.
    """

    def __init__(self, path: Path) -> None:
        self.torn = path.exists() and _cut(path)
        self._file = path.open("a", encoding="utf-8")
        self._separator = ",\n" if self._file.tell() else "[\n"

    def write(self, event: Mapping[str, Any]) -> None:
        self._file.write(self._separator + json.dumps(event, separators=(",", ":"), default=str))
        self._file.flush()
        self._separator = ",\n"

    def close(self) -> None:
        if self._separator == ",\n":
            self._file.write(CLOSING.decode())
        self._file.close()


def _cut(path: Path) -> bool:
    """Take off the closing bracket, or what a killed run left half written: then it returns true."""
    with path.open("rb+") as file:
        start = max(0, path.stat().st_size - TAIL)
        file.seek(start)
        tail = file.read()
        whole = tail.endswith(CLOSING)
        end = len(tail) - len(CLOSING) if whole else _complete(tail)
        file.truncate(start + end)
    return not whole and start + end > 0


def _complete(tail: bytes) -> int:
    """How much of the end of a file is complete events."""
    before, _, last = tail.rpartition(b"\n")
    try:
        json.loads(last)
    except ValueError:
        return len(before.removesuffix(b",")) if before != b"[" else 0
    return len(tail)


@dataclass(frozen=True, slots=True)
class Slice:
    """A call on the time line: its process, its lane, and its times in microseconds."""

    process: int
    lane: int
    began: int
    ended: int = 0


class Tracer:
    """Turns calls into events. Used by the loop that starts and ends them, and by no other thread."""

    def __init__(self, graph: Graph, file: TraceFile) -> None:
        self._file = file
        self._offset = time.time() - time.monotonic()
        self._shift = (int(time.time()) % 10**6) * 1000 if file.torn else 0
        components = {phase.component or OTHER for phase in graph.phases}
        self._processes = {name: i for i, name in enumerate([*sorted(components), MEMORY], start=1)}
        self._named: set[int] = set()
        self._running: dict[Task, Slice] = {}
        self._last: Slice | None = None
        self._flows = count(int(time.time()) % 10**6 * 10**6)
        placed = [resource for resource in graph.resources.values() if resource.placed]
        self._places = {resource.name: resource.at for resource in placed}
        self._bytes = {resource.name: int(resource.size * GIB) for resource in placed if resource.size is not None}
        for name, process in self._processes.items():
            self._write("M", process, 0, 0, name="process_name", args={"name": name})
        self._counters(self._time(time.monotonic()))

    def began(self, task: Task) -> None:
        """A call begins. What ended last is what it waited for: that is when it is started."""
        process = self._processes[task.head.phase.component or OTHER]
        one = Slice(process, self._lane(process, _kind(task.head)), self._time(time.monotonic()))
        self._running[task] = one
        self._write("B", one.process, one.lane, one.began, name=task.name, cat=_kind(task.head), args=_told(task))
        if self._last is not None:
            self._arrow(self._last, one)

    def ended(self, task: Task, at: float, outcome: str, amounts: Mapping[str, int]) -> None:
        """A call is over, for better or worse."""
        one = self._running.pop(task)
        self._last = Slice(one.process, one.lane, one.began, max(self._time(at), one.began + 1))
        self._write("E", one.process, one.lane, self._last.ended, args={"outcome": outcome, **amounts})
        moves = dict(chain.from_iterable(phase.moves.items() for phase in task.phases))
        if moves and outcome == "ok":
            self._places |= moves
            self._bytes |= {name: amounts[name] for name in moves if amounts.get(name)}
            self._counters(self._last.ended)

    def _lane(self, process: int, kind: str) -> int:
        """The first free lane of a kind: two calls of one kind may overlap where no component keeps them apart."""
        taken = {one.lane for one in self._running.values()}
        first = self._shift + process * 100 + KINDS.index(kind) * 30 + 1
        lane = next(number for number in range(first, first + len(taken) + 1) if number not in taken)
        if lane not in self._named:
            self._named.add(lane)
            more = f" {lane - first + 1}" if lane > first else ""
            again = " (gone on)" if self._shift else ""
            self._write("M", process, lane, 0, name="thread_name", args={"name": f"{kind}{more}{again}"})
        return lane

    def _arrow(self, source: Slice, target: Slice) -> None:
        number, tail = next(self._flows), max(source.began, source.ended - 1)
        words = {"name": "waited for", "cat": "critical path", "id": number}
        self._write("s", source.process, source.lane, tail, **words)
        self._write("f", target.process, target.lane, target.began, bp="e", **words)

    def _counters(self, at: int) -> None:
        """How much is at each place, by resource, as far as sizes are known."""
        for place in PLACES:
            sizes = {name: size if self._places[name] == place else 0 for name, size in self._bytes.items()}
            if sizes:
                self._write("C", self._processes[MEMORY], 0, at, name=f"bytes on {place}", args=sizes)

    def _time(self, moment: float) -> int:
        """Microseconds of the wall clock as it was when the run began, so that they never go back."""
        return round((self._offset + moment) * 1e6)

    def _write(self, kind: str, process: int, lane: int, at: int, **fields: Any) -> None:
        when = {} if kind == "M" else {"ts": at}
        self._file.write({"ph": kind, "pid": process, "tid": lane, **when, **fields})


def _kind(planned: Planned) -> str:
    return "work" if planned.kind == "work" else "sync" if planned.copies else "handoff"


def _told(task: Task) -> dict[str, Any]:
    """What a slice says of its call: the step, the reason, and what it does."""
    head, section = task.head, task.section
    said: dict[str, Any] = {
        "why": ", ".join(dict.fromkeys(phase.why for phase in task.phases)),
        "section": section.label,
        "works for step": section.works_for(head) if section.works_for(head) != section.step else None,
        "variant": section.compiled.variant or None,
        "use": head.use,
        "moves": [f"{name}>{place}" for phase in task.phases for name, place in phase.moves.items()],
        "copies": [f"{source}>>{target}" for phase in task.phases for target, source in phase.copies.items()],
        "doc": head.phase.doc,
    }
    return {word: value for word, value in said.items() if value not in ("", None, [])}
