"""What a picture of a plan shows, before anybody decides how to draw it: boxes on layers, edges, and who is where.

All the variants of a step share one layout, in which every phase of the list has its place whether it runs or not. So a
phase that goes grey stays where it was, and a reader sees at once what a step leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepgraph.views.layout import Route
from stepgraph.views.scene_run import Measured
from stepgraph.views.table import count

LONG = 30
"""A line in a box is cut to so many letters."""
WORDS = {
    "no_consumer": "no consumer",
    "only_feeds_pruned": "only feeds pruned",
    "already_there": "already there",
    "same_contents": "same contents",
    "not_due": "not due",
    "disabled": "disabled",
}


@dataclass(frozen=True, slots=True)
class Fixed:
    """What holds of a phase in every picture of its list: its words, and where its box stands."""

    name: str
    kind: str
    use: str
    component: str
    doc: str
    x: float
    y: float
    width: float
    height: float
    layer: int


@dataclass(frozen=True, slots=True)
class Box:
    """A phase in one picture. ``state`` is ``kept``; ``maybe`` where only the run will tell; ``pruned``; ``idle`` where
    it is not due.

    ``code`` says why in a word, ``reason`` in a line; ``after`` names what it waits for in this list, ``before`` what
    it waits for from earlier, ``dropped`` the parts it lost. ``ends`` says why the last step leaves it out, where this
    one does not; ``other``, what it is in the other of two plans, where that differs.
    """

    name: str
    state: str
    code: str
    reason: str = ""
    kept_if: str = ""
    does: str = ""
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    ends: str = ""
    other: str = ""

    @property
    def runs(self) -> bool:
        """Whether it runs, or may."""
        return self.state in ("kept", "maybe")

    @property
    def word(self) -> str:
        """What stands in its box below its name: what it does, or why it does not run."""
        words = self.does if self.runs else WORDS[self.code]
        words = f"may run: {words}" if self.state == "maybe" else words
        return words if len(words) <= LONG else f"{words[: LONG - 1]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True)
class Line:
    """An edge: ``target`` waits for ``source``. It is ``pruned`` where one of them is."""

    source: str
    target: str
    state: str
    route: Route


@dataclass(frozen=True, slots=True)
class Row:
    """Where one resource is: before and after each phase that runs, in words (``host or device`` where either)."""

    name: str
    gib: float | None
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """Who is where while the phases run in declared order; ``load`` is GiB on the device before and after each."""

    phases: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    load: tuple[tuple[float, float], ...] = ()
    unknown: tuple[str, ...] = ()
    capacity: float | None = None

    @property
    def sized(self) -> bool:
        """Whether any size is known, so that a load says something."""
        return len(self.unknown) < len(self.rows)


@dataclass(frozen=True, slots=True)
class Picture:
    """One list of phases, as it runs in the steps of one variant; or ``start``, or ``end``.

    ``side`` tells two plans apart that are drawn together: ``A`` and ``B``.
    """

    title: str
    section: str
    variant: int
    spans: tuple[tuple[int, int, int], ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    strip: Strip
    side: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The layout that the pictures of one section share."""

    boxes: tuple[Fixed, ...]
    width: float
    height: float

    def named(self) -> dict[str, Fixed]:
        """The boxes by name."""
        return {box.name: box for box in self.boxes}


@dataclass(frozen=True, slots=True)
class Scene:
    """A plan as pictures. ``shown`` is the one to begin with; ``step`` is the step that was asked for."""

    graph: str
    placement: str
    source: str
    first: int
    steps: int
    sheets: Mapping[str, Sheet]
    pictures: tuple[Picture, ...]
    shown: int = 0
    step: int | None = None
    left_out: int = 0
    measured: Measured | None = None
    sides: tuple[str, ...] = ()

    @property
    def picture(self) -> Picture:
        """The picture to begin with."""
        return self.pictures[self.shown]

    @property
    def sheet(self) -> Sheet:
        return self.sheets[self.picture.section]

    @property
    def title(self) -> str:
        if self.sides:
            return f"{self.graph}: {' | '.join(self.sides)}"
        parts = (self.graph, self.placement, count(max(self.steps - self.first, 0), "step"))
        return ", ".join(part for part in parts if part)
