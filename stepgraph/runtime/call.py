"""One call of a body: what it is given, what it must give back, and whether what it says is so.

``Caller.perform`` runs on a worker thread and touches nothing shared: what it needs is in the ``Call``, what it found
in the ``Outcome``.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from stepgraph.errors import RunError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import Planned
from stepgraph.runtime.bind import Bound, arguments, sources_of, undeclared, visible
from stepgraph.runtime.context import RunContext
from stepgraph.runtime.contract import Rollout, Stream, Weights
from stepgraph.runtime.mirror import stamped, version_of
from stepgraph.runtime.plans import by_name, held, named, owner
from stepgraph.runtime.schedule import Task

GIB = 2**30
HONEST = 0.8
"""An offload that frees less than this part of the declared size is reported."""


class PhaseTimeout(RunError):
    """A body took longer than its ``timeout_s``."""


@dataclass(frozen=True, slots=True)
class Call:
    """All that a worker thread needs. ``versions`` are held before, ``after`` once done; ``places`` hold before."""

    task: Task
    bound: Bound
    context: RunContext
    contents: Mapping[str, Any]
    streams: Mapping[str, Stream]
    versions: Mapping[str, int]
    after: Mapping[str, int]
    places: Mapping[str, str]

    @property
    def phases(self) -> tuple[Planned, ...]:
        return self.task.phases

    @property
    def head(self) -> Planned:
        return self.task.head

    @property
    def moves(self) -> dict[str, str]:
        return {name: place for phase in self.phases for name, place in phase.moves.items()}

    @property
    def copies(self) -> dict[str, str]:
        return {target: source for phase in self.phases for target, source in phase.copies.items()}


@dataclass(frozen=True, slots=True)
class Returned:
    """What a body gave back: contents of values, what it says of sinks, bytes that moved."""

    values: Mapping[str, Any] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call went. Times are of ``time.monotonic``."""

    task: Task
    began: float
    ended: float
    thread: str
    returned: Returned = Returned()
    cursors: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: BaseException | None = None
    attempts: int = 1

    @property
    def seconds(self) -> float:
        return self.ended - self.began


Retried = Callable[[Call, int, BaseException], None]


class Caller:
    """Runs calls against the components."""

    def __init__(self, graph: Graph, components: Mapping[str, Any], retried: Retried) -> None:
        self._graph = graph
        self._components = components
        self._retried = retried

    def perform(self, call: Call) -> Outcome:
        """Run the body, as often as its ``retries`` allow, and check what it says. Never raises."""
        began, attempt, marks = time.monotonic(), 0, {name: stream.cursor for name, stream in call.streams.items()}
        while True:
            found = self._tried(call, attempt)
            if isinstance(found, Returned):
                return self._outcome(call, began, attempt, returned=found, warnings=tuple(self._doubts(call, found)))
            if attempt >= call.head.phase.retries or not _may_pass(found):
                return self._outcome(call, began, attempt, error=found)
            attempt += 1
            self._retried(call, attempt, found)
            rewind(call.streams, marks)

    def _tried(self, call: Call, attempt: int) -> Returned | BaseException:
        try:
            return self._attempt(call, attempt)
        except BaseException as error:  # handed to the executor, which alone decides what a failure means
            return error

    def _outcome(self, call: Call, began: float, attempt: int, **fields: Any) -> Outcome:
        cursors = {name: stream.cursor for name, stream in call.streams.items()}
        thread = threading.current_thread().name
        return Outcome(call.task, began, time.monotonic(), thread, cursors=cursors, attempts=attempt + 1, **fields)

    def _attempt(self, call: Call, attempt: int) -> Returned:
        given = within(call.head.phase.timeout_s, call.task.name, lambda: self._body(call, attempt))
        returned = taken_handoff(call, given) if call.head.kind == "handoff" else taken_work(self._graph, call, given)
        self._check_versions(call)
        check_rollouts(self._graph, call, returned)
        return returned

    def _body(self, call: Call, attempt: int) -> Any:
        context = RunContext(**{**_fields(call.context), "attempt": attempt, "versions": dict(call.versions)})
        if not call.bound.component:
            context = replace(context, components=Declared(self._graph, call.head, self._components))
        parts = {"moves": call.moves, "weights": self._weights(call)}
        parts = {name: part for name, part in parts.items() if part}
        positional, given = arguments(
            call.head,
            call.bound,
            context=context,
            contents=self._contents(call),
            parts=parts,
            components=self._components,
        )
        return finished(call.bound.body(*positional, **given))

    def _contents(self, call: Call) -> dict[str, Any]:
        """What the body gets by name. Of state that it changes it gets a copy: what others hold must stay as it was."""
        changed = held(self._graph, call.head.updates)
        return {name: copy.deepcopy(one) if name in changed else one for name, one in call.contents.items()}

    def _weights(self, call: Call) -> dict[str, Weights]:
        return {name: self._source(call, source) for name, source in taken_from(self._graph, call).items()}

    def _source(self, call: Call, source: str) -> Weights:
        name = owner(self._graph, source)
        weights: Weights = self._components[name].weights(source)
        held = call.versions.get(source)
        if held is not None and weights.version != held:
            raise RunError(
                f"{call.task.name}: {name} gives {source} in version {weights.version}, but it should hold {held}"
            )
        return weights

    def _check_versions(self, call: Call) -> None:
        for name in sorted(stamped(self._graph, call.phases)):
            said, should = version_of(self._components, self._graph, name), call.after[name]
            if said is not None and said != should:
                who = owner(self._graph, name)
                raise RunError(
                    f"{call.task.name}: {who} says that {name} holds version {said}, but it should hold {should}"
                )

    def _doubts(self, call: Call, returned: Returned) -> Iterator[str]:
        for name, place in call.moves.items():
            resource = self._graph.resources.get(name)
            left = call.places.get(name) == "device" and place != "device"
            if not left or resource is None or not resource.size or name not in returned.bytes:
                continue
            freed = returned.bytes[name] / GIB
            if freed < HONEST * resource.size:
                declared = f"its declared size is {resource.size:.3g} GiB"
                yield f"{call.task.name}: freed {freed:.3g} GiB of {name}, but {declared}"


def taken_from(graph: Graph, call: Call) -> dict[str, str]:
    """Whose weights a call is given, by the name that its body finds them under."""
    return {**sources_of(graph, call.head, call.bound), **call.copies}


class Declared(Mapping[str, Any]):
    """The components as a function sees them: those of which its phase declares something, and those that hold nothing.

    What the compiler does not know of, it cannot order, so anything else is refused.
    """

    def __init__(self, graph: Graph, planned: Planned, components: Mapping[str, Any]) -> None:
        self._graph, self._planned, self._components = graph, planned, components

    def __getitem__(self, name: str) -> Any:
        if name in self._components and not visible(self._graph, self._planned, name):
            raise RunError(f"{self._planned.name}: took {undeclared(self._graph, name)}")
        return self._components[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._components if visible(self._graph, self._planned, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def finished(given: Any) -> Any:
    """What a body gave, awaited where it is a coroutine."""
    return asyncio.run(_awaited(given)) if inspect.isawaitable(given) else given


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


def _may_pass(error: BaseException) -> bool:
    """Whether trying again makes sense: not while a late call may still be at work, and not for an exit."""
    return isinstance(error, Exception) and not isinstance(error, PhaseTimeout)


def taken_work(graph: Graph, call: Call, given: Any) -> Returned:
    """Check that a body returned what its phase declares, all of it and nothing else."""
    planned = call.head
    values = by_name(graph, (*planned.writes, *planned.updates))
    sinks = named(graph, (*planned.writes, *planned.updates), "sink")
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise RunError(
            f"{planned.name}: returned a {type(given).__name__}; a body returns a mapping {{name: contents}}"
        )
    for name in given:
        if name not in values and name not in sinks:
            raise RunError(
                f"{planned.name}: returned {name!r}, which it does not declare to write{did_you_mean(name, values)}"
            )
    missing = [name for name in values if name not in given]
    if missing:
        raise RunError(f"{planned.name}: declares that it writes {', '.join(missing)}, but did not return it")
    return Returned({name: given[name] for name in values}, {name: given[name] for name in sinks if name in given})


def taken_handoff(call: Call, given: Any) -> Returned:
    """Check the bytes that a handoff says it moved; ``None`` says nothing."""
    if given is None:
        return Returned()
    if not isinstance(given, Mapping):
        raise RunError(
            f"{call.task.name}: returned a {type(given).__name__}; a handoff returns a mapping {{resource: bytes}}"
        )
    known = {**call.moves, **call.copies}
    for name in given:
        if name not in known:
            raise RunError(f"{call.task.name}: returned bytes of {name!r}, which it was not asked to move")
    return Returned(bytes={name: int(count) for name, count in given.items()})


def check_rollouts(graph: Graph, call: Call, returned: Returned) -> None:
    """Each rollout carries the version that made it: it must be the one that the phase was given to read."""
    read = {name: call.versions[name] for name in named(graph, call.head.reads, "weights") if name in call.versions}
    if not read or any(_rollouts(contents) for contents in call.contents.values()):
        return  # nothing sampled here: rollouts that a phase was given keep the version that made them
    for rollout in (one for contents in returned.values.values() for one in _rollouts(contents)):
        if rollout.version not in read.values():
            should = " or ".join(f"{name} version {number}" for name, number in read.items())
            raise RunError(
                f"{call.task.name}: a rollout says that version {rollout.version} made it, but it read {should}"
            )


def _rollouts(contents: Any) -> list[Rollout]:
    return [one for one in contents if isinstance(one, Rollout)] if isinstance(contents, (list, tuple)) else []


def staleness(call: Call, graph: Graph | None = None) -> int | None:
    """How many updates old the oldest rollout is that this phase learns from."""
    updates = call.head.updates if graph is None else named(graph, call.head.updates, "weights")
    updated = [call.versions[name] for name in updates if name in call.versions]
    made = [one.version for contents in call.contents.values() for one in _rollouts(contents)]
    return max(updated) - min(made) if updated and made else None


def within(seconds: float | None, who: str, body: Callable[[], Any]) -> Any:
    """Run ``body``, but not longer than ``seconds``: a thread cannot be ended, so one that is late is left behind."""
    if seconds is None:
        return body()
    result: Future[Any] = Future()
    threading.Thread(target=_settle, args=(result, body), daemon=True, name=threading.current_thread().name).start()
    if not wait([result], timeout=seconds).done:
        raise PhaseTimeout(f"{who}: took longer than its timeout_s of {seconds:g} s; its call is left behind")
    return result.result()


def _settle(result: Future[Any], body: Callable[[], Any]) -> None:
    try:
        result.set_result(body())
    except BaseException as error:
        result.set_exception(error)


def rewind(streams: Mapping[str, Stream], marks: Mapping[str, int]) -> None:
    """Give back what a failed attempt took, so that no prompt is skipped."""
    for name, stream in streams.items():
        stream.seek(marks[name])


def _fields(context: RunContext) -> dict[str, Any]:
    return {name: getattr(context, name) for name in RunContext.__dataclass_fields__}
