"""What an executor asks of a plan, and the few questions about one that several modules share.

A protocol, so that the runtime knows nothing of the compiler: whatever answers these is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import CompiledStep, Planned


class HasPhases(Protocol):
    """A compiled step, or a group of equal ones."""

    @property
    def phases(self) -> tuple[Planned, ...]: ...


class RunnablePlan(Protocol):
    """A compiled run: ``first`` up to, not including, ``steps``, with what comes before and after."""

    @property
    def graph(self) -> Graph: ...

    @property
    def first(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def start(self) -> CompiledStep: ...

    @property
    def end(self) -> CompiledStep: ...

    @property
    def variants(self) -> Any: ...

    def step(self, k: int, /) -> CompiledStep: ...

    def to_dict(self) -> dict[str, Any]: ...


def kept(plan: RunnablePlan) -> Iterator[Planned]:
    """Every phase that will run at least once; each variant is looked at once, however long the run is."""
    yield from chain(plan.start.phases, *(variant.phases for variant in plan.variants), plan.end.phases)


def empty(plan: RunnablePlan) -> bool:
    """Whether nothing at all would run."""
    return not any(True for _ in kept(plan)) or (
        plan.first >= plan.steps and not plan.start.phases and not plan.end.phases
    )


def named(graph: Graph, names: tuple[str, ...], *kinds: str) -> tuple[str, ...]:
    """Those of ``names`` that are of one of these kinds; a name that is not listed is a value."""
    return tuple(name for name in names if kind_of(graph, name) in kinds)


def kind_of(graph: Graph, name: str) -> str:
    """The kind of a resource."""
    resource = graph.resources.get(name)
    return resource.kind if resource else "value"


def held(graph: Graph, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``names`` that are state of no component: the run holds it."""
    return tuple(name for name in named(graph, names, "state") if not owner(graph, name))


def by_name(graph: Graph, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``names`` whose contents a body gets and gives back by name."""
    return (*named(graph, names, "value"), *held(graph, names))


def owner(graph: Graph, name: str) -> str:
    """The component that a resource belongs to, or an empty string."""
    resource = graph.resources.get(name)
    return resource.of if resource else ""
