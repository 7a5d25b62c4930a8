"""How much is on the device, and on the host, at each moment of a run; and the order that fits where it is too much.

A resource counts with its size where it is. The compiler never inserts or reorders a handoff: where a run does not fit
it is refused, with both numbers, and with the order of the same handoffs that does fit, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from stepgraph.compiler.check import title
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.lower import Apart, Layout, Op
from stepgraph.compiler.seq import labels, spans
from stepgraph.errors import GraphError

if TYPE_CHECKING:
    from stepgraph.compiler.compile import Done
    from stepgraph.compiler.plan import Plan

MOST = 6
"""Runs of handoffs up to this length are tried in every order."""

NO_ORDER = "no order of these handoffs fits: offload something to none, or give more capacity"


@dataclass(frozen=True, slots=True)
class Moment:
    """The places right after the phase at ``i`` of a step (-1: at its entry)."""

    i: int
    places: int


def moments(done: Done) -> Iterator[Moment]:
    """Every moment of a step."""
    places = done.facts.places
    yield Moment(-1, places)
    for i, (op, keep) in enumerate(zip(done.shape.ops, done.kept, strict=True)):
        if keep != GONE and op.moves:
            places = op.effect(keep).put(places)
            yield Moment(i, places)


def held(layout: Layout, places: int, place: str) -> tuple[str, ...]:
    """The resources that are, or may be, at a place."""
    return tuple(name for name in layout.placed if places & layout.bit(name, place))


def weight(layout: Layout, places: int, place: str) -> float:
    """GiB at a place; a size that is not known counts nothing."""
    return sum(layout.graph.resources[name].size or 0.0 for name in held(layout, places, place))


def peak(plan: Plan, place: str) -> float | None:
    """The most GiB at a place over the run; ``None`` where the size of something that comes there is not known."""
    if all(plan.graph.resources[name].size is None for name in plan.layout.placed):
        return None
    seen = [moment.places for label in labels(plan.seq) for moment in moments(plan.done[label])]
    come = {name for places in seen for name in held(plan.layout, places, place)}
    if not come or any(plan.graph.resources[name].size is None for name in come):
        return None
    return max(weight(plan.layout, places, place) for places in seen)


def apart(plan: Plan) -> Apart:
    """The pairs that are never on the device together."""
    seen = {
        held(plan.layout, moment.places, "device") for label in labels(plan.seq) for moment in moments(plan.done[label])
    }
    met = {pair for names in seen for pair in combinations(names, 2)}
    return frozenset(set(combinations(plan.layout.placed, 2)) - met)


def fullest(plan: Plan, place: str) -> tuple[float, str]:
    """The most GiB at a place, and the phase it is first reached in."""
    best, where = -1.0, ""
    for label in labels(plan.seq):
        done = plan.done[label]
        for moment in moments(done):
            size = weight(plan.layout, moment.places, place)
            if size > best:
                best, where = size, done.shape.ops[max(moment.i, 0)].name if done.shape.ops else done.shape.title
    return best, where


def refuse(plan: Plan) -> None:
    """Raise ``GraphError`` for the first moment at which a place holds more than its capacity."""
    limits = dict(plan.graph.placement.capacity)
    if not limits:
        return
    first: dict[int, int] = {}
    for label, at, _, _ in spans(plan.seq):
        first[label] = min(at, first.get(label, at))
    for label, at in sorted(first.items(), key=lambda item: item[1]):
        done = plan.done[label]
        for moment in moments(done):
            over = next((p for p, limit in limits.items() if weight(plan.layout, moment.places, p) > limit), None)
            if over is not None:
                raise GraphError(tell(plan, done, at, moment, over))


def tell(plan: Plan, done: Done, at: int, moment: Moment, place: str) -> str:
    layout, sizes, limits = plan.layout, plan.graph.resources, dict(plan.graph.placement.capacity)
    where = title(plan.expanded, at)
    who = done.shape.ops[moment.i].name if moment.i >= 0 else "what is there at first"
    here = " + ".join(f"{name} {sizes[name].size or 0:g}" for name in held(layout, moment.places, place))
    size = weight(layout, moment.places, place)
    found = order_that_fits(layout, done, moment, limits)
    cure = f"this order fits: {', '.join(found)}" if found else NO_ORDER
    return f"{who} in {where} brings {place} to {size:g} GiB ({here}), over its capacity of {limits[place]:g}: {cure}"


def order_that_fits(layout: Layout, done: Done, moment: Moment, limits: dict[str, float]) -> tuple[str, ...]:
    """The order of the handoffs around a moment in which every need holds and every place has room."""
    ops = [(op, keep) for op, keep in zip(done.shape.ops, done.kept, strict=True) if keep != GONE]
    at = next((i for i, (op, _) in enumerate(ops) if moment.i >= 0 and op is done.shape.ops[moment.i]), 0)
    low = high = at
    while low > 0 and ops[low - 1][0].handoff:
        low -= 1
    while high < len(ops) and ops[high][0].handoff:
        high += 1
    places = done.facts.places
    for op, keep in ops[:low]:
        places = op.effect(keep).put(places)
    if not 1 < high - low <= MOST:
        return ()
    for tried in permutations(ops[low:high]):
        if fits(layout, [*tried, *ops[high:]], places, limits):
            return tuple(op.name for op, _ in tried)
    return ()


def fits(layout: Layout, ops: list[tuple[Op, int]], places: int, limits: dict[str, float]) -> bool:
    copied: set[int] = set()
    for op, keep in ops:
        # A thing must be where a copy wants it, and its contents must not be freed after they were copied in.
        if places & ~op.needs:
            return False
        places = op.effect(keep).put(places)
        if any(move.frees and move.cell in copied for move in op.moves if keep & move.part):
            return False
        copied |= {copy.target for copy in op.copies if keep & copy.part}
        if any(weight(layout, places, place) > limit for place, limit in limits.items()):
            return False
    return True
