"""A scene as one HTML page that needs nothing else: no network, no library.

The page holds data and the few functions that draw it. What holds of every picture is written once, and text is data
until the page makes text nodes of it, so that no name, reason or line for people is ever read as markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

from stepgraph.views.layout import Edge
from stepgraph.views.scene import Box, Picture, Row, Scene, Sheet, Strip
from stepgraph.views.scene_text import flat, printable
from stepgraph.views.svg import runs

SPANS = 15_000
"""At most so many stretches of steps are written; in a schedule with more, the steps after them have no picture."""
ASSETS = Path(__file__).parent / "assets"


def html(scene: Scene) -> str:
    """The page of a scene."""
    template = Template((ASSETS / "page.html").read_text(encoding="utf-8"))
    measured = scene.measured
    return template.substitute(
        title=escape(flat(scene.title)),
        about=escape(flat(about(scene))),
        hollow="hollow as planned, filled where the run measured it" if measured else "as planned",
        run=escape(flat(f"{measured.name}: {measured.status or 'no end is recorded'}")) if measured else "",
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=(ASSETS / "page.js").read_text(encoding="utf-8"),
        data=embedded(page_data(scene)),
    )


def about(scene: Scene) -> str:
    source = f"from {scene.source}" if scene.source else ""
    left_out = f"{scene.left_out} more variants are not drawn" if scene.left_out else ""
    cut = "a long schedule: late steps find no picture" if sum(len(one.spans) for one in scene.pictures) > SPANS else ""
    return "; ".join(part for part in (source, left_out, cut) if part)


def embedded(data: Any) -> str:
    """JSON that no parser of HTML can take for the end of its element.

    >>> embedded({"doc": "</script><b>"})
    '{"doc":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = printable(json.dumps(data, separators=(",", ":")))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def page_data(scene: Scene) -> dict[str, Any]:
    """All that the page draws from."""
    found = {name: routes(scene, name) for name in scene.sheets}
    index = {name: {edge: i for i, edge in enumerate(edges)} for name, edges in found.items()}
    last = horizon(scene)
    boxes = {name: {b.name: i for i, b in enumerate(sheet.boxes)} for name, sheet in scene.sheets.items()}
    pictures = (picture_data(one, index[one.section], boxes[one.section], last) for one in scene.pictures)
    return {
        "first": scene.first,
        "steps": scene.steps,
        "shown": scene.shown,
        "step": scene.step,
        "sheets": {name: sheet_data(sheet, found[name], boxes[name]) for name, sheet in scene.sheets.items()},
        "pictures": list(pictures),
        "measured": measured_data(scene),
    }


def routes(scene: Scene, section: str) -> dict[Edge, list[float]]:
    """The route of every edge of a section, as ``x, y, x, y``."""
    lines = chain.from_iterable(one.lines for one in scene.pictures if one.section == section)
    return {(line.source, line.target): [round(n, 1) for point in line.route for n in point] for line in lines}


def sheet_data(sheet: Sheet, edges: dict[Edge, list[float]], boxes: dict[str, int]) -> dict[str, Any]:
    names = ("name", "kind", "use", "doc", "x", "y", "width", "height")
    return {
        "width": sheet.width,
        "height": sheet.height,
        "boxes": [{name: getattr(box, name) for name in names} for box in sheet.boxes],
        "routes": [[boxes[source], boxes[target], route] for (source, target), route in edges.items()],
    }


def horizon(scene: Scene) -> int:
    """The first step of the first stretch that is too many."""
    firsts = sorted(span[0] for one in scene.pictures for span in one.spans)
    return firsts[SPANS] if len(firsts) > SPANS else scene.steps


def picture_data(one: Picture, edges: dict[Edge, int], boxes: dict[str, int], last: int) -> dict[str, Any]:
    lines = [[edges[line.source, line.target], int(line.state == "pruned")] for line in one.lines]
    return {
        "title": one.title,
        "section": one.section,
        "side": one.side,
        "variant": one.variant,
        "spans": [span for span in one.spans if span[0] < last],
        "boxes": [box_data(box, boxes[box.name]) for box in one.boxes],
        "lines": sorted(lines, key=lambda line: -line[1]),
        "strip": strip_data(one.strip),
    }


def box_data(box: Box, at: int) -> dict[str, Any]:
    said = {"reason": box.reason, "kept_if": box.kept_if, "does": box.does, "after": box.after, "before": box.before}
    said |= {"ends": box.ends, "dropped": box.dropped, "other": box.other}
    head = {"at": at, "state": box.state, "runs": box.runs, "code": box.code, "word": box.word}
    return head | {word: value for word, value in said.items() if value}


def strip_data(strip: Strip) -> dict[str, Any]:
    return {"phases": strip.phases, "capacity": strip.capacity, "rows": [row_data(row) for row in strip.rows]}


def row_data(row: Row) -> dict[str, Any]:
    return {"name": row.name, "gib": row.gib, "places": list(spans(row))}


def spans(row: Row) -> Iterator[tuple[int, int, str]]:
    """Where it is, in halves of columns: a phase that moves it does so in the middle of its own."""
    return runs([place for pair in row.places for place in pair])


def measured_data(scene: Scene) -> dict[str, Any] | None:
    if scene.measured is None:
        return None
    names = ("seconds", "gib", "first", "every", "grid")
    return {name: getattr(scene.measured, name) for name in names}
