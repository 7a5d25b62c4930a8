"""What a run directory adds to a picture: how long phases took, and how much of what really moved.

The events of a long run are read once, line by line, and its steps are put together until they fit a screen.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stepgraph.views.rundir import events, read_plan

RESULT = "result.json"
CELLS = 20_000
COLUMNS = 240
"""At most so many cells and columns has the grid; a column then stands for several steps."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Measured:
    """``seconds`` are medians of each phase; ``gib`` is what a resource measured when it moved.

    ``grid`` has the mean seconds of each phase in each column of ``every`` steps, ``None`` where it did not run.
    """

    name: str
    status: str
    seconds: Mapping[str, float]
    gib: Mapping[str, float]
    first: int
    every: int
    grid: Mapping[str, tuple[float | None, ...]]


def measure(folder: Path, names: tuple[str, ...], first: int, steps: int) -> Measured:
    """Read the record of a run of these phases and steps; a folder that is no run directory is refused."""
    read_plan(folder)
    columns = max(1, min(COLUMNS, CELLS // max(len(names), 1)))
    every = max(1, -(-(steps - first) // columns))
    seconds, cells, moved = collected(ends(folder), first, every)
    last = max((column for row in cells.values() for column in row), default=-1)
    return Measured(
        name=folder.name,
        status=status(folder),
        seconds={name: round(median(seconds[name]), 6) for name in names if seconds.get(name)},
        gib={name: median(sizes) / GIB for name, sizes in moved.items()},
        first=first,
        every=every,
        grid={name: tuple(mean(cells[name].get(i)) for i in range(last + 1)) for name in names if name in cells},
    )


Cell = tuple[int, float, int]
"""A step, the seconds of all the steps of a column up to it, and how many they are."""


def collected(
    found: Iterator[Mapping[str, Any]], first: int, every: int
) -> tuple[Mapping[str, array[float]], Mapping[str, dict[int, Cell]], Mapping[str, list[int]]]:
    """The times of each phase, the same by column, and the bytes of each resource."""
    seconds: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    cells: defaultdict[str, dict[int, Cell]] = defaultdict(dict)
    moved: defaultdict[str, list[int]] = defaultdict(list)
    for event in found:
        name, step = str(event.get("phase")), event.get("step")
        seconds[name].append(float(event["seconds"]))
        for resource, amount in event.get("bytes", {}).items():
            moved[resource] = [*moved[resource][-99:], int(amount)]
        if isinstance(step, int) and step >= first:
            row, column = cells[name], (step - first) // every
            row[column] = joined(row.get(column), step, float(event["seconds"]))
    return seconds, cells, moved


def joined(cell: Cell | None, step: int, seconds: float) -> Cell:
    """A column with one more step; a step that comes again, after a resume, counts as it was the last time."""
    if cell is None or (cell[2] == 1 and cell[0] == step):
        return step, seconds, 1
    return step, cell[1] + seconds, cell[2] + 1


def mean(cell: Cell | None) -> float | None:
    return None if cell is None else float(f"{cell[1] / cell[2]:.4g}")


def ends(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The events that end a phase well."""
    for event in events(folder):
        if event.get("event") == "end" and event.get("outcome") == "ok":
            yield event


def status(folder: Path) -> str:
    """How the run ended; nothing where it did not, or was killed."""
    try:
        found = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return ""
    return str(found.get("status", ""))
