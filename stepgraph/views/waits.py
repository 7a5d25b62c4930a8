"""Why one phase waits for another: the shortest chain of edges between them, with the thing on each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.views.edges import Call, Edges, Link, calls, length, place

WIDTH = 80
FAR = 256
"""How many steps back an earlier run of a phase is looked for."""


def waits_text(plan: Plan, first: str, second: str, step: int | None = None) -> str:
    """Tell why ``second`` waits for ``first``, in a step, or in the first one that shows it."""
    for name in (first, second):
        phase_of(plan.graph, name)
    if first == second:
        raise ConfigError(f"{first} is named twice: give two phases, or one to hear why it runs")
    at = position(plan, first, second) if step is None else position_of(plan, step)
    target = next((one for one in calls(plan, at) if one.name == second), None)
    if target is None:
        return f"{second} does not run in {place(plan, at)}: stepgraph explain {second} says why."
    return "\n".join(told(plan, first, target))


def phase_of(graph: Graph, name: str) -> Phase:
    """The phase of a name, the step's first; one that does not exist is refused."""
    known: dict[str, Phase] = {}
    for phase in (*graph.step, *graph.start, *graph.end):
        known.setdefault(phase.name, phase)
    if name not in known:
        listed = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise ConfigError(f"there is no phase '{name}' in graph {graph.name}{listed}")
    return known[name]


def position_of(plan: Plan, step: int) -> int:
    """Where a step stands in the run; one that is not in it is refused."""
    plan.step(step)
    return step - plan.first + 1


def position(plan: Plan, first: str, second: str) -> int:
    """The first step in which both run, the one after the other as declared; else one after a step that ran the first;
    else the first in which the second one runs."""
    seen, found = False, 0
    for at in range(1, min(length(plan) - 1, FAR)):
        names = [one.name for one in calls(plan, at)]
        if second in names and (seen or first in names[: names.index(second)]):
            return at
        found = found or (at if second in names else 0)
        seen = seen or first in names
    return found or next((at for at in (0, length(plan) - 1) if runs_at(plan, at, second)), 1)


def runs_at(plan: Plan, at: int, name: str) -> bool:
    return 0 <= at < length(plan) and any(one.name == name for one in calls(plan, at))


def told(plan: Plan, name: str, target: Call) -> Iterator[str]:
    sources = earlier(plan, name, target)
    here = place(plan, target.at)
    if not sources:
        yield f"{target.name} does not wait for {name}: {name} does not run before it in {here}."
        return
    edges = Edges(plan, min(at for at, _ in sources), target.at)
    chain = edges.chain(target, {one for one in edges.calls if one.name == name and one != target})
    if not chain:
        last = max(sources)[0]
        when = "" if last == target.at else f" of {place(plan, last)}"
        said = f"{target.name} in {here} does not wait for {name}{when}: nothing ties them together, so both may run at"
        yield from textwrap.wrap(f"{said} the same time.", WIDTH)
        return
    hops = f"{len(chain)} hop{'s' if len(chain) > 1 else ''}"
    yield f"{target.name} in {here} waits for {named(plan, chain[0].source, target.at)}: {hops}"
    yield from hopped(plan, chain, target.at)


def earlier(plan: Plan, name: str, target: Call) -> list[tuple[int, int]]:
    """The latest runs of a phase before a call, a few of them: an edge may go back over what runs ahead."""
    enough, found = plan.layout.ahead + 2, []
    for at in range(target.at, max(target.at - FAR, 0) - 1, -1):
        mine = [(one.at, one.i) for one in calls(plan, at) if one.name == name]
        found += [one for one in mine if one < (target.at, target.i)]
        if len(found) >= enough:
            break
    return found


def hopped(plan: Plan, chain: list[Link], at: int) -> Iterator[str]:
    """One line a hop."""
    rows = [
        (f"{named(plan, link.source, at)} -({link.thing})-> {named(plan, link.target, at)}", link) for link in chain
    ]
    wide = max(len(text) for text, _ in rows)
    for text, link in rows:
        line = f"  {text:<{wide}}   {link.clause}"
        yield from (
            [line]
            if len(line) <= WIDTH
            else textwrap.wrap(line, WIDTH, subsequent_indent=" " * 6, drop_whitespace=True)
        )


def named(plan: Plan, call: Call, at: int) -> str:
    """A call; with its step, where that is not the one asked about."""
    return call.name if call.at == at else f"{call.name} ({place(plan, call.at)})"
