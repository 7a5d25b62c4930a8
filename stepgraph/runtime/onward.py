"""Goes on from where everything really is, after something moved that only the run could decide.

The compiler plans such a step for both cases, so that the plan holds either way, and keeps handoffs that only one of
them needs. Once the step is over the case is known, and what is left is compiled again from actual places and contents.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.runtime.mirror import NEVER, Mirror, carried


def movers(graph: Graph) -> frozenset[str]:
    """The phases whose gate the run decides, and that move, copy or update something when they fire."""
    known = {phase.name: phase for phase in graph.step}
    return frozenset(name for name, phase in known.items() if decided_late(phase, known) and changes(phase, graph))


def decided_late(phase: Phase, known: Mapping[str, Phase]) -> bool:
    """Whether a phase, or the one that it goes with, is due by something that only the run knows."""
    other = known.get(phase.when.with_ or "")
    return phase.when.may_fire or (other is not None and decided_late(other, known))


def changes(phase: Phase, graph: Graph) -> bool:
    """Whether a phase leaves places or lasting contents other than it found them."""
    made = (*phase.writes, *phase.updates)
    return bool(phase.moves or phase.copies or any(graph.resources[name].carried for name in made))


def contents(mirror: Mirror) -> dict[str, Hashable]:
    """What everything holds, so that equal entries are equal contents: whose contents they are, and which version."""
    sources = mirror.graph.sources
    found: dict[str, Hashable] = {}
    for name in carried(mirror.graph):
        version = mirror.versions.get(name, NEVER if name in sources else 0)
        if version != NEVER and mirror.places[name] != "none":
            found[name] = (origin(name, sources), version)
    return found


def origin(name: str, sources: Mapping[str, set[str]]) -> str:
    """The resource whose contents these are, where that is certain: a copy of one thing, that is a copy of one, ..."""
    seen = {name}
    here = name
    while len(sources.get(here, ())) == 1:
        here = next(iter(sources[here]))
        if here in seen:
            return name
        seen.add(here)
    return name if here in sources else here


def rest(plan: Any, step: int, mirror: Mirror) -> Any:
    """The plan of what is left from ``step`` on, or ``None`` where the plan cannot be asked for it."""
    ask = getattr(plan, "rest", None)
    return ask(step, dict(mirror.places), contents(mirror)) if callable(ask) and step < plan.steps else None
