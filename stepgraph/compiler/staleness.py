"""How old the data is that the run trains on: counted in updates of the weights it came from.

Contents are traced to the weights they were copied or computed from. Every update of those weights makes all that
came from an earlier version one older. Training data older than ``max_staleness`` is refused; a score taken on weights
that are behind is legal, and warned of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepgraph.compiler.check import Table, title
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.lower import Layout, Op, bits_of
from stepgraph.compiler.seq import scan, spans
from stepgraph.errors import GraphError

if TYPE_CHECKING:
    from stepgraph.compiler.compile import Done
    from stepgraph.compiler.plan import Plan

CAP = 64
"""Ages are counted up to here, so that a run that never syncs still has few different steps."""

Ages = frozenset[tuple[int, int]]
"""Where contents come from, and how old they are: ``(cell of the weights, updates behind)``."""


@dataclass(frozen=True, slots=True)
class Aged:
    """A phase that met old contents: what it trains or scores, and how far behind the data is."""

    name: str
    about: str
    age: int
    trains: bool


def begin(layout: Layout) -> tuple[Ages, ...]:
    """Every weight that is no copy is its own origin."""
    graph = layout.graph
    targets = graph.sources
    found: list[Ages] = [frozenset()] * len(layout.cells)
    for (name, _), cell in layout.cells.items():
        if graph.resources[name].carried and name not in targets:
            found[cell] = frozenset({(cell, 0)})
    return tuple(found)


def walk(layout: Layout, done: Done, ages: tuple[Ages, ...], cap: int) -> tuple[tuple[Aged, ...], tuple[Ages, ...]]:
    """One step: who met old contents, and the ages after it."""
    held = list(ages)
    met: list[Aged] = []
    for op, keep in zip(done.shape.ops, done.kept, strict=True):
        if keep == GONE:
            continue
        taken = bits_of(op.reads)
        met += judge(layout, op, taken, held)
        source = oldest(held[cell] for cell in taken)
        for copy in op.copies:
            if keep & copy.part:
                held[copy.to] = held[copy.of]
        for cell in bits_of(op.makes & ~layout.lasting):
            held[cell] = source
        for cell in op.lasting:
            held = [older(one, cell, cap) for one in held]
            held[cell] = frozenset({(cell, 0)})
    return tuple(met), tuple(shifted(layout, held) if done.shape.title == "step" else held)


def judge(layout: Layout, op: Op, taken: Iterable[int], held: list[Ages]) -> list[Aged]:
    """Who trains on, or scores, contents that are behind."""
    found = []
    for cell in taken:
        for origin, age in held[cell]:
            if not age or origin == cell:
                continue
            if op.makes >> origin & 1:
                found.append(Aged(op.name, layout.cell_name(1 << cell), age, trains=True))
            elif op.sinks and layout.lasting >> cell & 1:
                found.append(
                    Aged(
                        op.name,
                        f"{layout.cell_name(1 << cell)} behind {layout.cell_name(1 << origin)}",
                        age,
                        trains=False,
                    )
                )
    return found


def oldest(ages: Iterable[Ages]) -> Ages:
    found: dict[int, int] = {}
    for one in ages:
        for origin, age in one:
            found[origin] = max(age, found.get(origin, 0))
    return frozenset(found.items())


def older(ages: Ages, cell: int, cap: int) -> Ages:
    return frozenset((origin, min(age + 1, cap) if origin == cell else age) for origin, age in ages)


def shifted(layout: Layout, held: list[Ages]) -> list[Ages]:
    found: list[Ages] = [frozenset()] * len(held)
    for cell, ages in enumerate(held):
        later = layout.shift(1 << cell)
        if later:
            found[later.bit_length() - 1] = ages
    return found


def met(plan: Plan) -> list[tuple[int, Aged]]:
    """Every different meeting with old contents, each with the first position of the run where it happens."""
    states: Table[tuple[Ages, ...]] = Table()
    seen: Table[tuple[Aged, ...]] = Table()
    cap = max(CAP, (plan.graph.max_staleness or 0) + 1)

    def transfer(label: int, number: int) -> tuple[int, int]:
        found, after = walk(plan.layout, plan.done[label], states[number], cap)
        return seen(found), states(after)

    run = scan(plan.seq, transfer, states(begin(plan.layout)))[0]
    first: dict[Aged, int] = {}
    for label, at, _, _ in spans(run):
        for one in seen[label]:
            first[one] = min(at, first.get(one, at))
    return sorted(((at, one) for one, at in first.items()), key=lambda item: (item[0], item[1].name, item[1].about))


def worst(plan: Plan) -> tuple[int, int, Aged | None]:
    """The largest age that is trained on: ``(age, position, who)``."""
    trained = [(one.age, -at, one) for at, one in plan.stale if one.trains]
    if not trained:
        return 0, 0, None
    age, at, one = max(trained, key=lambda item: item[:2])
    return age, -at, one


def refuse(plan: Plan, limit: int) -> None:
    """Raise ``GraphError`` for the first phase that trains on data older than ``limit``."""
    for at, one in plan.stale:
        if one.trains and one.age > limit:
            raise GraphError(
                f"{one.name} in {title(plan.expanded, at)} trains on {one.about} that is {updates(one.age)} behind, "
                f"over max_staleness={limit}: copy the weights more often, run less far ahead, or raise max_staleness"
            )


def updates(age: int) -> str:
    return f"{age} update{'s' * (age > 1)}"


def warnings(plan: Plan) -> tuple[str, ...]:
    """Scores taken on weights that are behind, one line a phase."""
    found: dict[str, str] = {}
    for at, one in plan.stale:
        if not one.trains and one.name not in found:
            found[one.name] = (
                f"{one.name} in {title(plan.expanded, at)} reads {one.about} by {updates(one.age)}: stale weights"
            )
    return tuple(found.values())
