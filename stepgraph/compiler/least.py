"""The exact answer: the fewest handoff parts that leave every observer with what the declared list gives.

Two sweeps cannot always find it: where a need is met by several places, or contents go round through copies, an early
handoff can serve more than a late one. This is a shortest path through the run (Viterbi). A node is where everything is
and which contents are what the declared list has there; an edge keeps or drops the parts of one handoff, and costs the
parts it keeps. Costs are carried relative to the cheapest, so that a long run repeats itself here too (see ``seq``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepgraph.compiler.check import Table
from stepgraph.compiler.dead import GONE, Wants
from stepgraph.compiler.expand import Shape
from stepgraph.compiler.lower import Layout, Op, bits_of
from stepgraph.compiler.seq import Seq, scan
from stepgraph.compiler.settled import Facts, Tokens

LIMIT = 2048
"""The most situations to follow at once. Beyond it the sweeps' answer stands: no single part of it can go."""

Spot = tuple[int, Tokens]
"""Where everything is, and for each lasting cell the declared contents it holds (0: none that anybody will ask for)."""


class TooManyError(Exception):
    """More situations than ``LIMIT``, or a phase whose effect only the run will tell."""


@dataclass(frozen=True, slots=True)
class Front:
    """The declared contents between two steps, and the cost of being at each spot, relative to the cheapest."""

    declared: Tokens
    costs: tuple[tuple[Spot, int], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """The cheapest way found so far to a spot: its cost, where the step was entered, what was kept (newest first)."""

    cost: int
    entered: Spot
    kept: tuple[int, tuple] | tuple[()]  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True)
class Now:
    """One phase of the declared list: contents before it, those alive after it, those it makes; whether it is gone."""

    before: Tokens
    alive: frozenset[int]
    news: dict[int, int]
    removed: bool


def plain(layout: Layout) -> bool:
    """Whether the sweeps are exact: two places for each thing, and copies that neither chain nor compete."""
    graph = layout.graph
    sources = graph.sources
    reach: dict[str, set[str]] = {name: {graph.resources[name].at} for name in layout.placed}
    for phase in graph.phases:
        for name, place in phase.moves:
            reach[name].add(place)
    chained = any(source in sources for found in sources.values() for source in found)
    single = all(len(found) == 1 for found in sources.values())
    return single and not chained and all(len(places) <= 2 for places in reach.values())


def least(
    seq: Seq, steps: Table[tuple[int, tuple[int, ...]]], shapes: Table[Shape], facts: Facts, wants: Wants
) -> Seq | None:
    """Return the run with the fewest parts, as labels of ``steps``; ``None`` where there are too many situations."""
    fronts: Table[Front] = Table()
    spots: Table[Spot] = Table()
    walked: Table[tuple[int, int]] = Table()
    ways: dict[tuple[int, int], dict[Spot, Way]] = {}

    def forward(label: int, number: int) -> tuple[int, int]:
        shape, kept = steps[label]
        front, found = advance(shapes[shape], kept, fronts[number])
        ways[label, number] = found
        return walked((label, number)), fronts(front)

    def backward(label: int, spot: int) -> tuple[int, int]:
        key = walked[label]
        way = ways[key][spots[spot]]
        return steps((steps[key[0]][0], unrolled(way.kept))), spots(way.entered)

    start = Front(facts.tokens, (((facts.places, facts.tokens), 0),))
    try:
        run, end = scan(seq, forward, fronts(start))
    except TooManyError:
        return None
    goal = finish(fronts[end], wants)
    return None if goal is None else scan(run, backward, spots(goal), backward=True)[0]


def finish(front: Front, wants: Wants) -> Spot | None:
    """The cheapest end that has what is kept."""

    def good(spot: Spot) -> bool:
        places, tokens = spot
        same = all(
            a == b for cell, (a, b) in enumerate(zip(tokens, front.declared, strict=True)) if wants.cells >> cell & 1
        )
        return not places & ~wants.places and same

    return min((entry for entry in front.costs if good(entry[0])), key=lambda entry: entry[1], default=(None, 0))[0]


def unrolled(kept: tuple) -> tuple[int, ...]:  # type: ignore[type-arg]
    out = []
    while kept:
        keep, kept = kept
        out.append(keep)
    return tuple(out[::-1])


def advance(shape: Shape, kept: tuple[int, ...], front: Front) -> tuple[Front, dict[Spot, Way]]:
    """One step: every spot that can be reached, and the cheapest way to it."""
    declared = list(front.declared)
    fresh = len(declared) * 2 + 1
    ways = {spot: Way(cost, spot, ()) for spot, cost in front.costs}
    for op, keep in zip(shape.ops, kept, strict=True):
        removed = keep == GONE and (op.may or not op.handoff)
        news = {cell: fresh + i for i, cell in enumerate(() if removed else op.lasting)}
        fresh += len(news)
        before = tuple(declared)
        follow(declared, op, news, removed)
        ways = through(op, ways, Now(before, frozenset(declared), news, removed))
        if len(ways) > LIMIT:
            raise TooManyError
    return settle(declared, ways)


def follow(declared: list[int], op: Op, news: dict[int, int], removed: bool) -> None:
    """What the declared list has after this phase."""
    if removed:
        return
    for cell in op.effect(op.parts).freed:
        declared[cell] = 0
    for copy in op.copies:
        declared[copy.to] = declared[copy.of]
    for cell, token in news.items():
        declared[cell] = token


def through(op: Op, ways: dict[Spot, Way], now: Now) -> dict[Spot, Way]:
    """Every way past one phase: work as it is; a handoff with any of its parts; removed work not at all."""
    if op.may and not now.removed and (op.moves or op.copies):
        raise TooManyError
    found: dict[Spot, Way] = {}
    for (places, tokens), way in ways.items():
        for keep in (GONE,) if now.removed else choices(op):
            if keep != GONE and not (op.handoff or sees(op, tokens, now.before)):
                continue
            spot = passed(op, keep, places, tokens, now.news)
            if spot is None:
                continue
            known = spot[0], tuple([token if token in now.alive else 0 for token in spot[1]])
            cost = way.cost + (keep.bit_count() if op.handoff and keep != GONE else 0)
            best = found.get(known)
            if best is None or cost < best.cost:
                found[known] = Way(cost, way.entered, (keep, way.kept))
    return found


def sees(op: Op, tokens: Tokens, declared: Tokens) -> bool:
    """Whether work finds in what it takes the contents that the declared list has there."""
    taken = op.reads
    for copy in op.copies:
        taken |= copy.source
    return all(tokens[cell] == declared[cell] for cell in bits_of(taken) if cell < len(tokens))


def choices(op: Op) -> Iterator[int]:
    """What may be kept of a phase."""
    if not op.handoff:
        yield op.parts
        return
    yield GONE
    if op.phase.whole:
        yield op.parts
        return
    yield from range(1, op.parts + 1)


def passed(op: Op, keep: int, places: int, tokens: Tokens, news: dict[int, int]) -> Spot | None:
    """The spot after one phase with the parts ``keep``, or ``None`` where it cannot run or an observer would tell."""
    if keep == GONE:
        return places, tokens
    effect = op.effect(keep)
    if places & ~effect.entry:
        return None
    places, have = effect.put(places), list(tokens)
    if places & ~effect.holding:
        return None
    for cell in effect.freed:
        have[cell] = 0
    if not all(have[copy.of] for copy in effect.copies):
        return None
    for copy in effect.copies:
        have[copy.to] = have[copy.of]
    for cell, token in news.items():
        have[cell] = token
    return places, tuple(have)


def settle(declared: list[int], ways: dict[Spot, Way]) -> tuple[Front, dict[Spot, Way]]:
    """Number the contents anew, and count from the cheapest."""
    names = {0: 0}
    tokens = tuple([names.setdefault(token, len(names)) for token in declared])
    base = min((way.cost for way in ways.values()), default=0)
    found = {(places, tuple([names.get(token, 0) for token in held])): way for (places, held), way in ways.items()}
    costs = sorted((spot, way.cost - base) for spot, way in found.items())
    return Front(tokens, tuple(costs)), found
