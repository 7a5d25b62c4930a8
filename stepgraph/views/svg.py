"""A scene as SVG: one picture that stands by itself, in light and dark, on a screen and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from stepgraph.views.layout import Route
from stepgraph.views.scene import Box, Fixed, Line, Row, Scene, Strip
from stepgraph.views.scene_text import printable, wrapped

EDGE, GAP = 18.0, 36.0
"""The margin of the picture, and the room between the graph and what stands beside it."""
HEAD = 62.0
COLUMN, LANE, LOAD = 46.0, 22.0, 84.0
LABELS = 118.0
"""The height of the slanted names above the strip."""
NAMES = 100.0
"""The width of the names of its rows."""
LEGEND = 26.0
EARLIER = ('<path class="edge pruned" d="M16 -13v9"/>', '<path class="tip" d="M16 0l-3 -6h6z"/>')
"""The mark of a box that waits for something of an earlier step."""

STYLE = """\
svg{--bg:#fff;--ink:#1b1f24;--soft:#59636e;--rule:#d1d9e0;--line:#6e7781;--work:#ddf4ff;--workline:#218bff;--hand:#fff;
--handline:#4d5a67;--gone:#818b98;--warn:#bc4c00;--dev:#218bff;--limit:#cf222e;background:var(--bg)}
@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6edf3;--soft:#9198a1;--rule:#3d444d;--line:#8b949e;
--work:#0c2d4d;--workline:#4493f8;--hand:#151b23;--handline:#a5b0bc;--gone:#7d8590;--warn:#f0883e;--dev:#4493f8;
--limit:#f85149}}
@media print{svg{--bg:#fff;--ink:#000;--soft:#444;--rule:#bbb;--line:#555;--work:#eef7ff;--workline:#06c;--hand:#fff;
--handline:#333;--gone:#777}}
text{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:12px;fill:var(--ink)}
.h{font-size:16px;font-weight:700}.s{font-size:10px;fill:var(--soft)}.n{font-weight:600}
.box rect{stroke-width:1.4}.work rect{fill:var(--work);stroke:var(--workline)}
.handoff rect{fill:var(--hand);stroke:var(--handline)}
.pruned rect,.idle rect{fill:none;stroke:var(--gone);stroke-dasharray:5 4}
.maybe rect{stroke-dasharray:2 3}
.pruned text,.idle text{fill:var(--gone)}.ends rect{stroke:var(--gone);stroke-dasharray:5 4}
.edge{fill:none;stroke:var(--line);stroke-width:1.3}.edge.pruned{stroke:var(--gone);stroke-dasharray:4 4;opacity:.75}
.tip{fill:var(--line)}.tip.pruned{fill:var(--gone)}
.dev{fill:none;stroke:var(--dev);stroke-width:1.4}.host{stroke:var(--gone);stroke-width:2}
.either{fill:none;stroke:var(--dev);stroke-dasharray:3 3}.rule{stroke:var(--rule)}
.load{fill:none;stroke:var(--dev);stroke-width:1.6}.limit{stroke:var(--limit);stroke-dasharray:6 4}
.limits{fill:var(--limit)}
"""


def svg(scene: Scene) -> str:
    """Draw the picture that the scene begins with."""
    sheet, strip = scene.sheet, scene.picture.strip
    side = EDGE + max(sheet.width, 240.0) + GAP
    notes = list(noted(scene))
    wide = side + max(strip_width(strip), 430.0) + EDGE
    strip_tall = strip_height(strip)
    tall = HEAD + max(sheet.height + LEGEND, strip_tall + 16.0 * len(notes)) + EDGE
    body = [
        *heading(scene),
        group(EDGE, HEAD, graph(scene)),
        group(side, HEAD, strip_of(strip)),
        group(side, HEAD + strip_tall, [text(0, 15.0 * i, line, kind) for i, (line, kind) in enumerate(notes)]),
        group(EDGE, HEAD + sheet.height + 12, legend()),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {tall:g}" width="{wide:g}" height="{tall:g}"'
    label = f' role="img" aria-label={quote(scene.title)}>'
    return "\n".join([head + label, f"<style>{STYLE}</style>", *body, "</svg>", ""])


def heading(scene: Scene) -> list[str]:
    where = scene.picture.title if scene.step is None else f"Step {scene.step} of {scene.steps}: {scene.picture.title}"
    return [text(EDGE, 26, scene.title, "h"), text(EDGE, 44, where, "s")]


def text(x: float, y: float, words: str, kind: str = "", more: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{marked}{more}>{escape(printable(words))}</text>'


def quote(words: str) -> str:
    return quoteattr(printable(words))


def group(x: float, y: float, parts: Iterable[str]) -> str:
    return "\n".join([f'<g transform="translate({x:g} {y:g})">', *parts, "</g>"])


# ---- the graph


def graph(scene: Scene) -> Iterator[str]:
    named = scene.sheet.named()
    for line in sorted(scene.picture.lines, key=lambda line: line.state == "kept"):
        yield from edge(line)
    for box in scene.picture.boxes:
        yield from box_of(box, named[box.name])


def edge(line: Line) -> Iterator[str]:
    kind = " pruned" if line.state == "pruned" else ""
    x, y = line.route[-1]
    yield f'<path class="edge{kind}" d="{curve(line.route)}"/>'
    yield f'<path class="tip{kind}" d="M{x:g} {y:g}l-3.5 -7h7z"/>'


def curve(route: Route) -> str:
    """A smooth line: straight through a layer, bent between two."""
    x, y = route[0]
    parts = [f"M{x:g} {y:g}"]
    for (x0, y0), (x1, y1) in pairwise(route):
        if x0 == x1:
            parts.append(f"V{y1:g}")
        else:
            half = (y0 + y1) / 2
            parts.append(f"C{x0:g} {half:g} {x1:g} {half:g} {x1:g} {y1:g}")
    return "".join(parts)


def box_of(box: Box, at: Fixed) -> list[str]:
    kinds = ["box", at.kind, box.state] + (["ends"] if box.ends else [])
    round_ = 5 if at.kind == "work" else at.height / 2
    return [
        f'<g class="{" ".join(kinds)}" transform="translate({at.x:g} {at.y:g})">',
        f"<title>{escape(printable(told(box, at)))}</title>",
        *(EARLIER if box.before else ()),
        f'<rect width="{at.width:g}" height="{at.height:g}" rx="{round_:g}"/>',
        text(at.width / 2, 17, box.name, "n", ' text-anchor="middle"'),
        text(at.width / 2, 31, box.word, "s", ' text-anchor="middle"'),
        "</g>",
    ]


def told(box: Box, at: Fixed) -> str:
    """All of a box in words, a line each."""
    lines = [f"{at.name} ({at.kind}) {at.use}", at.doc]
    lines += [f"why: {box.code}"] if box.runs else []
    lines += [box.reason]
    lines += [f"kept if: {box.kept_if}"] if box.kept_if else []
    lines += [f"after: {', '.join(box.after)}"] if box.after else []
    lines += [f"after, from earlier: {', '.join(box.before)}"] if box.before else []
    lines += [f"without: {', '.join(box.dropped)}"] if box.dropped else []
    lines += [f"not in the last step: {box.ends}"] if box.ends else []
    return "\n".join(line for line in lines if line)


def legend() -> Iterator[str]:
    """A small box of each look, with its meaning."""
    x = 0.0
    for kind, words in (("work", "work"), ("handoff", "handoff"), ("idle", "does not run")):
        round_ = 5.5 if kind == "handoff" else 3
        yield f'<g class="box {kind}"><rect x="{x:g}" y="0" width="18" height="11" rx="{round_:g}"/></g>'
        yield text(x + 23, 10, words, "s")
        x += 40 + len(words) * 6.1


# ---- what stands beside it


def noted(scene: Scene) -> Iterator[tuple[str, str]]:
    """What does not run, with its reason, a line and its look at a time: on paper nobody can point at a box."""
    gone = [(box.name, box.reason) for box in scene.picture.boxes if not box.runs]
    ends = [(box.name, box.ends) for box in scene.picture.boxes if box.ends]
    for title, found in (("Not run here", gone), ("Pruned in the last step", ends)):
        if found:
            yield title, "n"
            yield from ((line, "s") for name, why in found for line in wrapped(f"{name}: {why}", 74))
            yield "", "s"


def strip_width(strip: Strip) -> float:
    """Its columns, and the slanted name above the last one."""
    last = len(strip.phases[-1]) * 5.0 if strip.phases else 0.0
    return NAMES + COLUMN * len(strip.phases) + max(60.0, last) if strip.rows else 0.0


def strip_height(strip: Strip) -> float:
    return LABELS + LANE * len(strip.rows) + (LOAD + 24.0 if strip.sized else 8.0) + 36.0 if strip.rows else 0.0


def strip_of(strip: Strip) -> Iterator[str]:
    """Who is where: a hollow bar while a resource is on the device, a line while it is elsewhere, nothing if freed."""
    if not strip.rows or not strip.phases:
        return
    yield text(0, 12, "Where things are: on the device (bar), elsewhere (line), freed (nothing)", "n")
    for i, name in enumerate(strip.phases):
        x = NAMES + COLUMN * (i + 0.5)
        yield text(x, LABELS - 8, name, "s", f' transform="rotate(-40 {x:g} {LABELS - 8:g})"')
        yield rule(x - COLUMN / 2, LABELS, x - COLUMN / 2, LABELS + LANE * len(strip.rows))
    for i, row in enumerate(strip.rows):
        yield group(0, LABELS + LANE * i, lane(row))
    if strip.sized:
        yield group(0, LABELS + LANE * len(strip.rows) + 14, load_of(strip))


def rule(x0: float, y0: float, x1: float, y1: float, kind: str = "rule") -> str:
    return f'<line class="{kind}" x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}"/>'


def lane(row: Row) -> Iterator[str]:
    size = "?" if row.gib is None else f"{row.gib:g}"
    yield text(0, 15, f"{row.name} {size} GiB" if row.gib is not None else row.name, "s")
    for first, last, where in runs([place for pair in row.places for place in pair]):
        x, wide = NAMES + COLUMN / 2 * first, COLUMN / 2 * (last - first)
        if where == "device" or "device" in where.split(" or "):
            kind = "dev" if where == "device" else "either"
            yield f'<rect class="{kind}" x="{x:g}" y="4" width="{wide:g}" height="{LANE - 8:g}" rx="2"/>'
        elif where != "none":
            yield rule(x, LANE / 2, x + wide, LANE / 2, "host")


def runs(places: list[str]) -> Iterator[tuple[int, int, str]]:
    """Equal neighbours as ``(first, end, place)``.

    >>> list(runs(["host", "host", "device"]))
    [(0, 2, 'host'), (2, 3, 'device')]
    """
    begin = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] != places[begin]:
            yield begin, i, places[begin]
            begin = i


def load_of(strip: Strip) -> Iterator[str]:
    """GiB on the device as a line of steps, and the capacity."""
    values = [value for pair in strip.load for value in pair]
    top = max([*values, strip.capacity or 0.0, 1e-9]) * 1.1
    points = [
        (NAMES + COLUMN / 2 * (i + end), LOAD * (1 - value / top)) for i, value in enumerate(values) for end in (0, 1)
    ]
    least = " (at least: some sizes are unknown)" if strip.unknown else ""
    yield text(0, 14, "device", "s")
    yield text(0, 28, f"{max(values):g} GiB", "s")
    yield rule(NAMES, LOAD, NAMES + COLUMN * len(strip.phases), LOAD)
    yield f'<path class="load" d="M{" ".join(f"{x:g} {y:g}" for x, y in points)}"/>'
    yield text(NAMES, LOAD + 14, f"GiB on the device, as planned{least}", "s")
    if strip.capacity is not None:
        y = LOAD * (1 - strip.capacity / top)
        yield rule(NAMES, y, NAMES + COLUMN * len(strip.phases), y, "limit")
        yield text(NAMES + COLUMN * len(strip.phases) + 4, y + 4, f"{strip.capacity:g}", "s limits")
