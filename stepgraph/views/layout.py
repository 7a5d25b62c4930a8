"""Places the boxes of a graph on layers, and routes its edges between them, with few crossings and straight lines.

Layers come from networkx; the rest is the usual method for layered drawings: a long edge gets a slot in every layer
that it passes, so that it runs around boxes; neighbours are brought near by the mean of their places; and each layer is
then moved as near to its neighbours as the widths allow.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import networkx as nx

WIDE = 8
"""At most so many boxes stand on a layer; what is more goes to the next one."""
ACROSS, DOWN = 26.0, 26.0
"""Room between two boxes of a layer, and between two layers."""
SLOT, BESIDE = 8.0, 14.0
"""The width of the slot of an edge that passes a layer, and the room beside it."""
LIGHT = 0.2
"""How much the wish of a slot counts: boxes stand straight below each other, and edges bend around them."""
SWEEPS = 12

Edge = tuple[str, str]
Point = tuple[float, float]
Route = tuple[Point, ...]
Slot = tuple[str, str, int]
"""Where the edge of the two names passes a layer."""
Node = str | Slot


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a box stands: its left upper corner, its size, its layer (0 is the first)."""

    x: float
    y: float
    width: float
    height: float
    layer: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A drawing: a spot for every box, a line of points for every edge, and how large it all is."""

    spots: Mapping[str, Spot]
    routes: Mapping[Edge, Route]
    width: float
    height: float
    crossings: int


def place(widths: Mapping[str, float], height: float, edges: Iterable[Edge]) -> Placed:
    """Place boxes of these widths. The edges must have no cycle.

    >>> place({"a": 50, "b": 50}, 20, [("a", "b")]).routes["a", "b"]
    ((25.0, 20.0), (25.0, 46.0))
    """
    wanted = list(dict.fromkeys(edges))
    layer = layers(widths, wanted)
    rows, links = slotted(layer, wanted)
    rows = untangled(rows, links)
    size: dict[Node, float] = {node: widths[node] if isinstance(node, str) else SLOT for row in rows for node in row}
    middle = shifted(aligned(rows, links, size), size)
    spots = {
        name: Spot(round(middle[name] - widths[name] / 2, 1), at * (height + DOWN), widths[name], height, at)
        for name, at in layer.items()
    }
    return Placed(
        spots,
        {edge: route(path(layer, *edge), layer, middle, height) for edge in wanted},
        round(max((middle[node] + size[node] / 2 for node in size), default=0.0), 1),
        max(len(rows) * (height + DOWN) - DOWN, 0.0),
        crossings(rows, links),
    )


def layers(names: Iterable[str], edges: Iterable[Edge]) -> dict[str, int]:
    """The layer of each box: after all that it follows, and not beside more than ``WIDE`` - 1 others."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    found: dict[str, int] = {}
    filled: dict[int, int] = {}
    for name in chain.from_iterable(nx.topological_generations(graph)):
        at = max((found[before] + 1 for before in graph.predecessors(name)), default=0)
        while filled.get(at, 0) >= WIDE:
            at += 1
        found[name], filled[at] = at, filled.get(at, 0) + 1
    return found


Links = tuple[dict[Node, list[Node]], dict[Node, list[Node]]]
"""The neighbours of a node in the layer above, and in the layer below."""


def slotted(layer: Mapping[str, int], edges: Sequence[Edge]) -> tuple[list[list[Node]], Links]:
    """The layers as rows of boxes and slots, each linked to its neighbours in the next rows."""
    rows: list[list[Node]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, at in layer.items():
        rows[at].append(name)
    above: dict[Node, list[Node]] = {name: [] for name in layer}
    below: dict[Node, list[Node]] = {name: [] for name in layer}
    for source, target in edges:
        for upper, lower in pairwise(path(layer, source, target)):
            if not isinstance(lower, str):
                rows[lower[2]].append(lower)
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    return rows, (above, below)


def path(layer: Mapping[str, int], source: str, target: str) -> list[Node]:
    """The nodes of an edge, from its source to its target."""
    return [source, *((source, target, at) for at in range(layer[source] + 1, layer[target])), target]


# ---- the order within a layer


def untangled(rows: list[list[Node]], links: Links) -> list[list[Node]]:
    """Order each row so that few edges cross: the best of some sweeps down and up."""
    best, fewest = rows, crossings(rows, links)
    for number in range(SWEEPS):
        if not fewest:
            break
        rows = swapped(swept(rows, links, down=number % 2 == 0), links)
        found = crossings(rows, links)
        if found < fewest:
            best, fewest = rows, found
    return best


def swept(rows: list[list[Node]], links: Links, *, down: bool) -> list[list[Node]]:
    """Order each row by the mean place of its neighbours in the row before it."""
    near, out = links[0 if down else 1], list(rows)
    indices = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
    for i in indices:
        at = {node: float(k) for k, node in enumerate(out[i - 1 if down else i + 1])}
        own = {node: float(k) for k, node in enumerate(out[i])}
        out[i] = sorted(out[i], key=lambda node: (mean([at[n] for n in near[node]], own[node]), own[node]))
    return out


def mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def swapped(rows: list[list[Node]], links: Links) -> list[list[Node]]:
    """Swap neighbours where that takes crossings away, one pass over every row."""
    out = [list(row) for row in rows]
    place_of = {node: k for row in out for k, node in enumerate(row)}
    for row in out:
        for k in range(len(row) - 1):
            left, right = row[k], row[k + 1]
            if tangles(left, right, links, place_of) > tangles(right, left, links, place_of):
                row[k], row[k + 1] = right, left
                place_of[left], place_of[right] = k + 1, k
    return out


def tangles(left: Node, right: Node, links: Links, at: Mapping[Node, int]) -> int:
    """How often the edges of two neighbours cross if they stand in this order."""
    count = 0
    for side in links:
        others = sorted(at[node] for node in side.get(right, ()))
        count += sum(bisect_left(others, at[node]) for node in side.get(left, ()))
    return count


def crossings(rows: Sequence[Sequence[Node]], links: Links) -> int:
    """How many pairs of edges cross between neighbouring layers."""
    count = 0
    for upper, lower in pairwise(rows):
        at = {node: k for k, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(at[other] for other in links[1].get(node, ()))
            count += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


# ---- coordinates


def aligned(rows: Sequence[Sequence[Node]], links: Links, size: Mapping[Node, float]) -> dict[Node, float]:
    """The middle of every node: near its neighbours, and no two closer than their widths allow."""
    middle: dict[Node, float] = {}
    for row in rows:
        settle(row, size, middle, dict.fromkeys(row, 0.0))
    for number in range(SWEEPS + 1):
        near, order = links[number % 2], rows if number % 2 == 0 else rows[::-1]
        for row in order:
            settle(
                row, size, middle, {node: mean([middle[n] for n in near.get(node, ())], middle[node]) for node in row}
            )
    return middle


def settle(
    row: Sequence[Node], size: Mapping[Node, float], middle: dict[Node, float], wished: Mapping[Node, float]
) -> None:
    """Move a row as near to its wishes as the widths allow: least squares, by pooling neighbours that collide."""
    offset, offsets = 0.0, []
    for k, node in enumerate(row):
        offset += (size[row[k - 1]] + size[node]) / 2 + apart(row[k - 1], node) if k else 0.0
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []
    for node, shift in zip(row, offsets, strict=True):
        heavy = 1.0 if isinstance(node, str) else LIGHT
        pool = (heavy, (wished[node] - shift) * heavy, 1)
        while pools and pools[-1][1] / pools[-1][0] >= pool[1] / pool[0]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    starts = [total / weight for weight, total, count in pools for _ in range(count)]
    middle.update({node: start + shift for node, start, shift in zip(row, starts, offsets, strict=True)})


def apart(left: Node, right: Node) -> float:
    """The room between two neighbours."""
    return ACROSS if isinstance(left, str) and isinstance(right, str) else BESIDE


def shifted(middle: Mapping[Node, float], size: Mapping[Node, float]) -> dict[Node, float]:
    """The same, with the left edge of the leftmost at 0."""
    left = min((middle[node] - size[node] / 2 for node in size), default=0.0)
    return {node: at - left for node, at in middle.items()}


def route(nodes: Sequence[Node], layer: Mapping[str, int], middle: Mapping[Node, float], height: float) -> Route:
    """The points of an edge: out at the bottom of its source, through its slots, in at the top of its target."""
    found: list[Point] = []
    for node in nodes:
        x, top = round(middle[node], 1), (layer[node] if isinstance(node, str) else node[2]) * (height + DOWN)
        found += [(x, top + height)] if node == nodes[0] else [(x, top)]
        found += [(x, top + height)] if not isinstance(node, str) else []
    return tuple(found)
