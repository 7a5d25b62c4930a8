"""Who performs calls: the threads of this process, or anybody else who takes a ``Call`` and gives an ``Outcome``.

The executor decides what runs and when, and knows no more of who runs it than is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stepgraph.errors import RunError
from stepgraph.ir.graph import Graph
from stepgraph.runtime.call import Call, Caller, Outcome, Retried
from stepgraph.runtime.plans import RunnablePlan
from stepgraph.runtime.report import Report
from stepgraph.runtime.schedule import Task

THREADS = 32


class NotRun(RunError):
    """A call that was handed over did not begin: what it waits for failed, or it was taken back."""


@dataclass(frozen=True, slots=True)
class Reported(Outcome):
    """An outcome from elsewhere. ``saved``: a part of a checkpoint was written there, and is to be committed here."""

    saved: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """A call that was handed over. ``values`` stand for what it will write, and may be passed on before it has."""

    outcome: Future[Outcome]
    values: Mapping[str, Any] = field(default_factory=dict)


class Workers(Protocol):
    """Takes calls. ``chains``: also those that wait for others it was given; it keeps the order itself then."""

    @property
    def chains(self) -> bool: ...

    def submit(self, call: Call, after: Iterable[Task]) -> Handed:
        """Perform the call once those of ``after`` are over, unless one of them failed."""
        ...

    def take_back(self, tasks: Iterable[Task]) -> None:
        """Do not begin these, where that can still be."""
        ...

    def finish(self) -> None:
        """Nothing more will come."""
        ...


class Crew(Protocol):
    """The components of a run, or what stands for them, and the workers that call them."""

    @property
    def components(self) -> Mapping[str, Any]: ...

    def workers(self, graph: Graph, retried: Retried) -> Workers: ...

    def close(self, report: Report) -> None: ...


Hire = Callable[[RunnablePlan, Path, int, Report], Crew]
"""Gets everything ready to perform the calls of a plan: (plan, run directory, seed, report)."""


class Threads:
    """Performs calls in this process, each on a thread, when all that it waits for is over."""

    chains = False

    def __init__(self, graph: Graph, components: Mapping[str, Any], retried: Retried) -> None:
        self._caller = Caller(graph, components, retried)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stepgraph")

    def submit(self, call: Call, after: Iterable[Task]) -> Handed:
        return Handed(self._pool.submit(self._caller.perform, call))

    def take_back(self, tasks: Iterable[Task]) -> None:
        """Nothing that was handed over waits."""

    def finish(self) -> None:
        self._pool.shutdown(wait=True)
