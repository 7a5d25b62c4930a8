"""An actor: one component, the calls that its phases make of it, and what the other actors ask it.

Calls come one at a time on the actor's own thread, in the order in which they were handed over. What others ask (a
batch of prompts, a score, a version) is answered beside them on threads of its own, so that a call that asks another
actor never waits for that one's calls.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stepgraph.errors import RunError
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep, Planned
from stepgraph.registry import COMPONENTS, resolve
from stepgraph.runtime.bind import Binding, bind
from stepgraph.runtime.build import TARGET
from stepgraph.runtime.call import Call, Caller, Outcome, Returned, staleness
from stepgraph.runtime.context import RunContext
from stepgraph.runtime.contract import Prompt, Stream
from stepgraph.runtime.ray_parcel import Lost
from stepgraph.runtime.ray_wire import SKIPPED, About, Answer, Failed, Order, Recipe, Surface
from stepgraph.runtime.saving import fresh
from stepgraph.runtime.schedule import Section, Task
from stepgraph.runtime.transport import Channel, Parcel, Sender, Spot

ASKS = "asks"
"""The group of threads that answers."""
ASKED_AT_ONCE = 4
MARK = "__stepgraph"


class Host:
    """Runs in an actor. Everything it is asked is a method."""

    def __init__(self, recipe: Recipe, graph: Graph, folder: str, paths: Sequence[str]) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        self._recipe, self._graph = recipe, graph
        self._component: Any = None
        self._all: dict[str, Any] = {}
        self._bindings: dict[Phase, Binding] = {}
        self._streams: dict[str, Stream] = {}
        self._senders: dict[tuple[str, Channel], Sender] = {}
        self._taken: dict[str, Taken] = {}
        self._lock = threading.Lock()
        self._kept: socket.socket | None = None

    def meeting(self) -> str:
        """Where the members of this actor's group can meet: a port of this machine that nobody else will be given.

        It is bound, and not listened at, so that the component can do both, however late it does.
        """
        ray: Any = importlib.import_module("ray")
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{self._kept.getsockname()[1]}"

    def build(self, meeting: str = "") -> Surface:
        """Make the component, here: it may hold what cannot travel."""
        recipe = self._recipe
        if recipe.shared is None:
            return Surface("functions", where=where_of(recipe.title))
        target = resolve(recipe.target, f"{recipe.name}.{TARGET}", COMPONENTS)
        self._component = target(replace(recipe.shared, meeting=meeting), **recipe.options)
        return surface_of(self._component, where_of(recipe.title))

    def meet(self, others: Mapping[str, Any]) -> None:
        """Learn who else is there."""
        mine = {} if self._component is None else {self._recipe.name: self._component}
        self._all = {**others, **mine}

    def guard(self) -> None:
        """End with the node that this actor is on, and end what else it started."""
        threading.Thread(target=end_with_parent, daemon=True, name="guard").start()

    def now(self) -> float:
        return time.monotonic()

    def perform(self, order: Order, *given: Any) -> Any:
        """Run a call, unless one that it waits for failed. Gives the answer, then the contents of each value."""
        answers, rest = given[: order.waits], given[order.waits :]
        if any(answer.stops for answer in answers):
            return _with_values(SKIPPED, order, {})
        pieces = iter(rest)
        contents = {name: _whole(list(islice(pieces, count))) for name, count in order.contents.items()}
        parcels = dict(zip(order.sources, pieces, strict=True))
        try:
            return self._performed(order, contents, parcels)
        except Exception as error:  # what comes before the body: a target that is not found here, say
            now = time.monotonic()
            where = where_of(self._recipe.title)
            return _with_values(Answer(now, now, error=Failed.of(error), where=where), order, {})

    def spot(self) -> Spot:
        """Where this actor is, as far as that decides how weights travel."""
        return here()

    def export(self, source: str, channel: Channel, *answers: Answer) -> Parcel | None:
        """The weights behind a resource, once these calls are over."""
        if any(answer.stops for answer in answers):
            return None  # nobody will open it: its receiver waits for the same calls
        try:
            return self._sender(source, channel).send(self._component.weights(source))
        except Exception as error:
            return Lost(Failed.of(error), where_of(self._recipe.title))

    def take_part(self, source: str, channel: Channel, *answers: Answer) -> Any:
        """``export`` for one of a group: how it went, and a parcel, which is empty but for the first one's.

        Putting weights together may take every member, so the others go through theirs as the first one does.
        """
        began = time.monotonic()
        if self._recipe.rank == 0 or any(answer.stops for answer in answers):
            parcel = self.export(source, channel, *answers)
            failed = parcel.error if isinstance(parcel, Lost) else None
            return Answer(began, time.monotonic(), error=failed), parcel
        try:
            deque(self._component.weights(source).tensors(), maxlen=0)
        except Exception as error:
            return Answer(began, time.monotonic(), error=Failed.of(error)), None
        return Answer(began, time.monotonic()), None

    def _sender(self, source: str, channel: Channel) -> Sender:
        key = (source, channel)
        if key not in self._senders:
            self._senders[key] = channel.sender(self._all)
        return self._senders[key]

    def ask(self, word: str, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, list[Mapping[str, float]]]:
        """Call a method for another actor, or give an attribute; with what was logged meanwhile."""
        metrics: list[Mapping[str, float]] = []
        found = getattr(self._component, word)
        if not callable(found):
            return found, metrics
        args = [self._context(one, metrics) if isinstance(one, About) else one for one in args]
        return found(*args, **named), metrics

    def close(self) -> None:
        """Let the component clean up."""
        for sender in self._senders.values():
            sender.close()
        close = getattr(self._component, "close", None)
        if callable(close):
            close()

    def stream(self, name: str) -> int | None:
        """Open a stream of the component, once. Gives its length, where it has one."""
        if name not in self._streams:
            self._streams[name] = self._component.stream(name)
        batches: int | None = getattr(self._streams[name], "batches", None)
        return batches

    def take(self, name: str) -> tuple[list[Prompt], int]:
        """A batch, and the cursor after it."""
        stream = self._streams[name]
        return stream.take(), stream.cursor

    def first(self, name: str, call: int) -> int:
        """Where a stream was when the first of several actors took from it for this call."""
        return self._taken_for(name, call).first

    def batch(self, name: str, call: int, at: int) -> list[Prompt]:
        """A batch for one of several actors, taken from the stream once for all of them."""
        return self._taken_for(name, call).batch(at)

    def _taken_for(self, name: str, call: int) -> Taken:
        with self._lock:
            if name not in self._taken or self._taken[name].call != call:
                self._taken[name] = Taken(self._streams[name], call)
            return self._taken[name]

    def cursor(self, name: str, seek: int | None = None) -> int:
        """Where a stream is, after going where it is told to."""
        if seek is not None:
            self._streams[name].seek(seek)
        return self._streams[name].cursor

    def _performed(self, order: Order, contents: dict[str, Any], parcels: dict[str, Parcel]) -> Any:
        first = self._recipe.rank == 0
        saver, metrics, retries = Folder(order.part, first), list[Mapping[str, float]](), list[tuple[int, Failed]]()
        call = self._call(order, contents, saver, metrics)
        senders = {self._graph.resources[source].of for source in parcels}
        components = {**self._all, **{name: Delivered(self._all[name], parcels) for name in senders}}
        outcome = Caller(
            self._graph, components, lambda _, attempt, error: retries.append((attempt, Failed.of(error)))
        ).perform(call)
        outcome = _of_lists(outcome) if order.divided else outcome
        old = staleness(call, self._graph) if outcome.error is None else None
        metrics += [] if old is None else [{"staleness": old}]
        where = where_of(self._recipe.title) if retries or outcome.error else ""
        answer = _answer(outcome, metrics=tuple(metrics), retries=tuple(retries), saved=saver.written, where=where)
        return _with_values(answer, order, outcome.returned.values)

    def _call(self, order: Order, contents: dict[str, Any], saver: Folder, metrics: list[Mapping[str, float]]) -> Call:
        head = order.phases[0]
        binding = self._bound(head)
        streams = {name: self._here(name, stream) for name, stream in order.streams.items()}
        section = Section(0, order.label, CompiledStep(order.about.step, 0, (), ()))
        return Call(
            task=Task(section, order.phases),
            bound=binding.of(head),
            context=self._context(order.about, metrics, saver, binding.hooks_of(head)),
            contents={**contents, **streams},
            streams={name: stream for name, stream in streams.items() if name in head.updates},
            versions=order.versions,
            after=order.after,
            places=order.places,
        )

    def _context(
        self,
        about: About,
        metrics: list[Mapping[str, float]],
        saver: Any = None,
        hooks: Mapping[str, Any] | None = None,
    ) -> RunContext:
        told = {one.name: getattr(about, one.name) for one in fields(about)}
        return RunContext(
            **told, components=self._all, record=metrics.append, saver=saver or _no_saver(about), hooks=hooks or {}
        )

    def _bound(self, planned: Planned) -> Binding:
        if planned.phase not in self._bindings:
            self._bindings[planned.phase] = bind(_Only(self._graph, planned), self._all)
        return self._bindings[planned.phase]

    def _here(self, name: str, stream: Any) -> Any:
        """The stream itself where it is this actor's own."""
        return self._streams[name] if getattr(stream, "of", None) == self._recipe.name else stream


class Folder:
    """Where a part of a checkpoint is written. That it is whole is told, and committed by the driver.

    All members of a group write into one folder, which the first one makes and removes: when they may is theirs to say.
    """

    def __init__(self, path: Path, mine: bool = True) -> None:
        self._path, self._mine, self.written = path, mine, False

    @contextmanager
    def __call__(self) -> Iterator[Path]:
        if self._mine:
            fresh(self._path)
        try:
            yield self._path
        except BaseException:
            if self._mine:
                shutil.rmtree(self._path, ignore_errors=True)
            raise
        self.written = True


class Taken:
    """What was taken from a stream for one call of several actors: each of them gets the same batches."""

    def __init__(self, stream: Stream, call: int) -> None:
        self.call, self.first = call, stream.cursor
        self._stream, self._batches, self._lock = stream, list[list[Prompt]](), threading.Lock()

    def batch(self, at: int) -> list[Prompt]:
        number = at - self.first
        if number < 0:
            raise RunError(
                f"a stream that several actors take from cannot go back to {at}: this call began at {self.first}"
            )
        with self._lock:
            while len(self._batches) <= number:
                self._batches.append(self._stream.take())
            return self._batches[number]


class Delivered:
    """A component whose weights have come already."""

    def __init__(self, component: Any, parcels: Mapping[str, Parcel]) -> None:
        self._component, self._parcels = component, parcels

    def weights(self, source: str) -> Any:
        return self._parcels[source].weights()

    def __getattr__(self, word: str) -> Any:
        return getattr(self._component, word)


class Remote:
    """Another actor's component: its methods are asked there. ``lane`` is the group of threads that answers."""

    def __init__(self, name: str, actor: Any, surface: Surface, lane: str = ASKS) -> None:
        self._name, self._actor, self._surface, self._lane = name, actor, surface, lane

    def __getattr__(self, word: str) -> Any:
        if word.startswith("_"):
            raise AttributeError(word)
        if word == "stream" and word in self._surface.methods:
            return self._stream
        if word in self._surface.methods:
            return self._method(word)
        if word in self._surface.attributes:
            return self._asked(word)
        raise AttributeError(f"{self._name} ({self._surface.kind}) has no {word!r}")

    def __dir__(self) -> list[str]:
        return [*self._surface.methods, *self._surface.attributes]

    def _stream(self, name: str) -> RemoteStream:
        return RemoteStream(self._name, name, self._actor, _get(_lane(self._actor.stream, ASKS).remote(name)))

    def _method(self, word: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            return self._asked(word, *args, **named)

        call.__dict__.update(self._surface.marks.get(word, {}))
        signature = self._surface.methods[word]
        if signature is not None:
            call.__dict__["__signature__"] = signature
        return call

    def _asked(self, word: str, *args: Any, **named: Any) -> Any:
        contexts = [one for one in args if isinstance(one, RunContext)]
        sent = [_about(one) if isinstance(one, RunContext) else one for one in args]
        found, metrics = _get(_lane(self._actor.ask, self._lane).remote(word, sent, named), self._surface.where)
        for context in contexts:
            for numbers in metrics:
                context.log(**numbers)
        return found


class RemoteStream:
    """A stream that lives with its component. Each take is one question to that actor."""

    def __init__(self, of: str, name: str, actor: Any, batches: int | None) -> None:
        self.of, self._name, self._actor, self.batches = of, name, actor, batches
        self._known: int | None = None

    @property
    def cursor(self) -> int:
        known, self._known = self._known, None  # what the take told holds for the question after it, and no longer
        return self._ask("cursor") if known is None else known

    def take(self) -> list[Prompt]:
        batch: list[Prompt]
        batch, self._known = self._ask("take")
        return batch

    def seek(self, cursor: int) -> None:
        self._known = None
        self._ask("cursor", cursor)

    def shared(self, call: int) -> SharedStream:
        """The stream as each of several actors gets it for a call."""
        return SharedStream(self, call)

    def _ask(self, word: str, *args: Any) -> Any:
        return _get(_lane(getattr(self._actor, word), ASKS).remote(self._name, *args))


class SharedStream:
    """A stream that several actors take from for one call. Each has a cursor of its own, and moves on by itself."""

    def __init__(self, stream: RemoteStream, call: int) -> None:
        self._stream, self._call = stream, call
        self.of, self.batches = stream.of, stream.batches
        self._at: int | None = None

    @property
    def cursor(self) -> int:
        if self._at is None:
            self._at = int(self._stream._ask("first", self._call))
        return self._at

    def take(self) -> list[Prompt]:
        batch: list[Prompt] = self._stream._ask("batch", self._call, self.cursor)
        self._at = self.cursor + 1
        return batch

    def seek(self, cursor: int) -> None:
        self._at = cursor


@dataclass(frozen=True)
class _Only:
    """A plan of one phase, to bind it."""

    graph: Graph
    planned: Planned
    first: int = 0
    steps: int = 0
    variants: tuple[CompiledStep, ...] = ()

    @property
    def start(self) -> CompiledStep:
        return CompiledStep(None, 0, (self.planned,), ())

    @property
    def end(self) -> CompiledStep:
        return CompiledStep(None, 0, (), ())

    def step(self, k: int, /) -> CompiledStep:
        raise IndexError(k)

    def to_dict(self) -> dict[str, Any]:
        return {}


def end_with_parent(pause: float = 0.25) -> None:
    """Wait until the node's process is gone, as its driver is; then end all that it started.

    Its workers end by themselves, but Ray's agents first try for a minute to tell a cluster that is gone, too.
    """
    parent, children = os.getppid(), list[int]()
    while os.getppid() == parent:
        children = children_of(parent) or children
        time.sleep(pause)
    for child in [*(one for one in children if one != os.getpid()), os.getpid()]:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that one started; none where the system does not tell."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def surface_of(component: Any, where: str) -> Surface:
    """What can be asked of a component. Properties are not looked at: that could cost anything."""
    words = [word for word in dir(component) if not word.startswith("_")]
    static = {word: inspect.getattr_static(component, word) for word in words}
    plain = [word for word in words if not isinstance(static[word], property)]
    found = {word: getattr(component, word) for word in plain}
    methods = {word: one for word, one in found.items() if callable(one)}
    return Surface(
        type(component).__name__,
        {word: _signature(one) for word, one in methods.items()},
        {word: {k: v for k, v in vars(one).items() if k.startswith(MARK)} for word, one in _marked(methods)},
        tuple(word for word in words if word not in methods),
        where,
    )


def where_of(title: str) -> str:
    """This process, for an error: what it is, its number, its machine, and the file that has what it printed."""
    try:
        log = str(Path("/proc/self/fd/2").readlink())
    except OSError:
        log = ""
    ray: Any = importlib.import_module("ray")
    parts = [title, f"pid {os.getpid()}", f"node {ray.util.get_node_ip_address()} ({socket.gethostname()})"]
    return ", ".join([*parts, f"log {log}"] if log.startswith("/") else parts)


def here() -> Spot:
    """This process. Two that cannot see each other's processes share no machine, whatever Ray says."""
    ray: Any = importlib.import_module("ray")
    node = ray.get_runtime_context().get_node_id()
    try:
        seen = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        seen = ""
    gpus = tuple(str(one) for one in ray.get_gpu_ids())
    return Spot(f"{node} {seen}", os.getpid(), f"node {ray.util.get_node_ip_address()}, {node[:8]}", gpus)


def _marked(methods: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((word, one.__func__) for word, one in methods.items() if inspect.ismethod(one))


def _signature(body: Any) -> inspect.Signature | None:
    try:
        found = inspect.signature(body)
    except ValueError:
        return None
    bare = [one.replace(annotation=one.empty, default=_plain(one)) for one in found.parameters.values()]
    return inspect.Signature(bare)


def _plain(parameter: inspect.Parameter) -> Any:
    """A default matters here only by being there."""
    return parameter.empty if parameter.default is parameter.empty else None


def _answer(outcome: Outcome, **more: Any) -> Answer:
    return Answer(
        outcome.began,
        outcome.ended,
        error=None if outcome.error is None else Failed.of(outcome.error),
        sinks=outcome.returned.sinks,
        bytes=outcome.returned.bytes,
        cursors=outcome.cursors,
        warnings=outcome.warnings,
        attempts=outcome.attempts,
        **more,
    )


def _of_lists(outcome: Outcome) -> Outcome:
    """What each of several actors made a part of must be lists, or the parts could not be put together."""
    for name, contents in outcome.returned.values.items():
        if not isinstance(contents, list | tuple):
            error = RunError(
                f"{outcome.task.name}: returned a {type(contents).__name__} for {name}, but several actors have each a "
                f"part of it: return a list"
            )
            return replace(outcome, returned=Returned(), error=error)
    return outcome


def _whole(pieces: list[Any]) -> Any:
    """Contents, put together from the parts that several actors made."""
    return pieces[0] if len(pieces) == 1 else [one for piece in pieces for one in piece]


def _with_values(answer: Answer, order: Order, values: Mapping[str, Any]) -> Any:
    """As many things as the driver was told to expect."""
    if not order.values:
        return answer
    return (answer, *(values.get(name) for name in order.values))


def _no_saver(about: About) -> Callable[[], Any]:
    def refuse() -> Any:
        raise RunError(f"{about.phase}: a checkpoint is written by the component of its phase, not by one that it asks")

    return refuse


def _about(context: RunContext) -> About:
    return About(context.step, context.phase, context.run_dir, context.seed)


def _lane(method: Any, group: str) -> Any:
    return method.options(concurrency_group=group) if group else method


def _get(ref: Any, where: str = "") -> Any:
    """What was asked for; an error of whoever answered is raised as it was there."""
    ray: Any = importlib.import_module("ray")
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayActorError as error:
        raise RunError(f"an actor died while it was asked something{f' [{where}]' if where else ''}") from error
