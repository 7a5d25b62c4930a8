"""What would bring a phase back, or take it out: changes of configuration, each tried before it is offered.

A way is an override as it is typed on the command line. It is applied to the configuration itself and compiled, so that
what is offered does what is said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from stepgraph.compiler.plan import Plan
from stepgraph.compiler.reasons import changes
from stepgraph.errors import StepgraphError
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.views.edges import calls, length, shape

SHOWN = 3
"""At most this many ways are told."""
TRIED = 24
"""At most this many changes are compiled."""

Again = Callable[[str], Plan]
"""The plan of the same configuration with one override more."""


@dataclass(frozen=True, slots=True)
class Way:
    """An override, and what it brings back and takes out at the position that was asked about."""

    override: str
    back: tuple[str, ...]
    out: tuple[str, ...]


def keepers(plan: Plan, at: int, phase: Phase, again: Again, placements: Iterable[str] = ()) -> list[Way]:
    """Changes after which a phase runs that does not."""
    ways = tried(plan, at, again, (*bringing(plan, at, phase), *other_placements(plan, placements)))
    return first(way for way in ways if phase.name in way.back)


def pruners(plan: Plan, at: int, phase: Phase, again: Again, placements: Iterable[str] = ()) -> list[Way]:
    """Changes after which a phase does not run that does."""
    ways = tried(plan, at, again, (*taking(plan, at, phase), *other_placements(plan, placements)))
    return first(way for way in ways if phase.name in way.out)


def first(ways: Iterator[Way]) -> list[Way]:
    """The first few; of two that set the same thing to the same effect, one."""
    found: dict[object, Way] = {}
    for way in ways:
        found.setdefault((stem(way.override), way.back, way.out), way)
        if len(found) == SHOWN:
            break
    return list(found.values())


def stem(override: str) -> str:
    """What an override is about: the phase, the resource, the section."""
    path = override.partition("=")[0].split(".")
    return ".".join(path[:3] if path[0] == "graph" else path[:2])


def tried(plan: Plan, at: int, again: Again, overrides: Iterable[str]) -> Iterator[Way]:
    """Apply each change and compare what runs at a position; what is refused is no way."""
    mine, last = running(plan, at), at == length(plan) - 1
    for override in list(dict.fromkeys(overrides))[:TRIED]:
        try:
            other = again(override)
            there = length(other) - 1 if last else at
            if there >= length(other) or shape(other, there).title != shape(plan, at).title:
                continue
            theirs = running(other, there)
        except StepgraphError:
            continue
        yield Way(override, tuple(n for n in theirs if n not in mine), tuple(n for n in mine if n not in theirs))


def running(plan: Plan, at: int) -> tuple[str, ...]:
    """The names that run at a position, in declared order."""
    return tuple(call.name for call in calls(plan, at))


def bringing(plan: Plan, at: int, phase: Phase) -> Iterator[str]:
    """What may bring a phase back: whoever would read it, a step after this one, a wish to keep it, less room."""
    step, title = plan.first + at - 1, shape(plan, at).title
    if not phase.enabled:
        yield f"graph.{title}.{phase.name}.enabled=true"
    known = [override for override, _ in changes(plan, step, phase)]
    yield from (one for one in known if not one.startswith("graph.keep."))
    if title == "step" and step == plan.steps - 1:
        yield f"run.steps={plan.steps + 1}"
    yield from (one for one in known if one.startswith("graph.keep."))
    yield from less_room(plan.graph, phase)
    yield from starting_elsewhere(plan.graph, phase)


def less_room(graph: Graph, phase: Phase) -> Iterator[str]:
    """Somebody has to leave the device for somebody: the owner of what the phase moves, beside each other component."""
    owners = dict.fromkeys(graph.resources[name].of for name, _ in phase.moves)
    others = dict.fromkeys(r.of for r in graph.resources.values() if r.placed)
    room = dict(graph.placement.makes_room)
    for mine in filter(None, owners):
        for other in filter(None, others):
            for x, y in ((mine, other), (other, mine)):
                if x != y and y not in room.get(x, ()):
                    yield f"placement.makes_room.{x}=[{','.join((*room.get(x, ()), y))}]"


def starting_elsewhere(graph: Graph, phase: Phase) -> Iterator[str]:
    """The things that the phase moves start at another place."""
    for name, _ in phase.moves:
        places = (place for place in graph.places if place != graph.resources[name].at)
        yield from (f"placement.at.{name}={place}" for place in places)


def other_placements(plan: Plan, names: Iterable[str]) -> Iterator[str]:
    return (f"placement={name}" for name in names if name != plan.graph.placement.name)


def taking(plan: Plan, at: int, phase: Phase) -> Iterator[str]:
    """What may take a phase out: the end of the run, what nobody keeps, whoever asks for it, more room."""
    step, title = plan.first + at - 1, shape(plan, at).title
    graph, last = plan.graph, title == "step" and step == plan.steps - 1
    if not phase.handoff:
        yield from switched_off(title, phase, last)
        return
    if title == "step" and not last:
        yield f"run.steps={step + 1}"
    moved = dict.fromkeys((*dict(phase.moves), *dict(phase.copies)))
    yield from (f"~graph.keep.{name}" for name in moved if name in dict(graph.keep))
    for one in graph.step:
        if not one.handoff and one.when.named:
            yield from switched_off("step", one, last)
    yield from (f"placement.makes_room.{x}=[]" for x, _ in graph.placement.makes_room)
    yield from starting_elsewhere(graph, phase)


def switched_off(title: str, phase: Phase, last: bool) -> Iterator[str]:
    """Ways not to run a phase: not in the last step, not at all, or only for a reader."""
    path = f"graph.{title}.{phase.name}"
    if last and phase.when.last:
        yield f"{path}.when.last=false"
    if phase.enabled:
        yield f"{path}.enabled=false"
    if not phase.pure:
        yield f"{path}.pure=true"
