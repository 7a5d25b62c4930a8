"""Runs a plan on Ray: each component is an actor, contents pass between actors as object references.

The plan, the order, the checks and the records are those of a run in one process; only who performs a call differs. A
step's calls go out at once, each with references to what it waits for, so that no phase waits for the driver.

The run directory must be on a file system that the actors see under the same name.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError, RunError
from stepgraph.ir.graph import Graph
from stepgraph.runtime import run as local
from stepgraph.runtime.build import TARGET, makers_of, shared_of
from stepgraph.runtime.call import Call, Outcome, Retried, Returned
from stepgraph.runtime.plans import RunnablePlan, named, owner
from stepgraph.runtime.ray_host import ASKED_AT_ONCE, ASKS, Host, Remote, RemoteStream
from stepgraph.runtime.ray_room import Bundle, bundles, check_names, options_of
from stepgraph.runtime.ray_wire import About, Answer, Order, Recipe, Surface
from stepgraph.runtime.report import Report
from stepgraph.runtime.result import Result
from stepgraph.runtime.saving import Part
from stepgraph.runtime.schedule import Task
from stepgraph.runtime.transport import Channels, Transport, transport_of
from stepgraph.runtime.workers import Handed, NotRun, Reported

FUNCTIONS = "functions"
"""The actor that runs phases which are no component's."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to use Ray. Times are in seconds; ``actors`` are resources and environments by component."""

    address: str | None = None
    actors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)
    chain: bool = True
    room_s: float = 60.0
    start_s: float = 900.0
    grace_s: float = 5.0


def run(
    plan: RunnablePlan,
    components: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    address: str | None = None,
    actors: Mapping[str, Any] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    init: Mapping[str, Any] | None = None,
    chain: bool = True,
    room_s: float = 60.0,
    start_s: float = 900.0,
    grace_s: float = 5.0,
    **rest: Any,
) -> Result:
    """Run a plan with the components that ``config`` describes, each in an actor. ``rest`` is for any executor's run.

    ``address`` is a cluster's; without one, and without RAY_ADDRESS, one is started here and ended with the run.
    """
    if find_spec("ray") is None:
        raise ConfigError("executor=ray needs ray: pip install 'stepgraph[ray]'")
    if components is not None or config is None:
        raise ConfigError("executor=ray builds each component in its actor: give a config, not components")
    options = Options(address, actors or {}, runtime_env or {}, init or {}, chain, room_s, start_s, grace_s)
    return local.run(plan, config=config, hire=Hiring(config, options), **rest)


@dataclass(frozen=True, slots=True)
class Hiring:
    """Gets the actors ready for a plan. Everything is checked before the first one is started."""

    config: Mapping[str, Any]
    options: Options

    def __call__(self, plan: RunnablePlan, run_dir: Path, seed: int, report: Report) -> RayCrew:
        recipes = recipes_of(self.config, plan, run_dir, seed)
        sections = [name for name in self.config if TARGET in _section(self.config, name)]
        check_names(self.options.actors, dict.fromkeys((*recipes, *sections, FUNCTIONS)))
        transport = transport_of(self.config)
        Channels.apart(transport, recipes, FUNCTIONS).check(plan)
        return RayCrew(plan, recipes, self.options, report, transport)


@dataclass(frozen=True, slots=True)
class Member:
    """An actor of the run. ``late`` is what to add to its clock to have the driver's."""

    name: str
    actor: Any
    surface: Surface
    late: float = 0.0


class RayCrew:
    """The actors of a run, from the first one's room to the last one's end."""

    def __init__(
        self,
        plan: RunnablePlan,
        recipes: Mapping[str, Recipe],
        options: Options,
        report: Report,
        transport: Transport,
    ) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._options, self._graph = options, plan.graph
        self._plan, self._transport = plan, transport
        self._bundles = bundles(plan.graph, list(recipes), options.actors)
        self._owned = self._started = False
        """Whether this run connected to the cluster, and whether it started it."""
        self._group: Any = None
        self.members: dict[str, Member] = {}
        self._actors: dict[str, Any] = {}
        self.channels = Channels(transport)
        self._dead = False
        try:
            self._connect()
            self._start(recipes)
        except BaseException:
            self.close(report)
            raise
        report.line(self._told())

    @property
    def components(self) -> Mapping[str, Any]:
        """What the driver sees of the components. It asks on each actor's own thread, where its calls run, too."""
        return {
            name: named_as(one.surface.kind)(name, one.actor, one.surface, "")
            for name, one in self.members.items()
            if name != FUNCTIONS
        }

    def workers(self, graph: Graph, retried: Retried) -> RayWorkers:
        return RayWorkers(self, graph, retried, self._options.chain)

    def lost(self) -> None:
        """An actor died: whatever still runs has a little time to end by itself, as it may be saving."""
        if not self._dead:
            self._dead = True
            timer = threading.Timer(self._options.grace_s, self._kill)
            timer.daemon = True
            timer.start()

    def close(self, report: Report) -> None:
        """End what was started here, and nothing else."""
        if not self._ray.is_initialized():
            return
        if not self._dead:
            self._ask_to_close(report)
        self._dead = True
        self._kill()
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
        if self._owned:
            self._ray.shutdown()

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        address = self._options.address or os.environ.get("RAY_ADDRESS") or "local"
        check_address(address)
        quiet = {"include_dashboard": False} if address == "local" else {}
        said = {"log_to_driver": False, "logging_level": "ERROR", **quiet, **self._options.init}
        try:
            self._ray.init(address=address, **said)
        except (ConnectionError, ValueError) as error:
            raise ConfigError(f"executor.address={address}: {' '.join(str(error).split())}") from error
        self._owned, self._started = True, address == "local"

    def _start(self, recipes: Mapping[str, Recipe]) -> None:
        places = self._room()
        for name, recipe in recipes.items():
            self._actors[name] = self._new(recipe, places.get(name))
        spots = self._ready({name: actor.spot.remote() for name, actor in self._actors.items()})
        spots = {name: (spot,) for name, spot in spots.items()}
        self.channels = Channels(self._transport, spots, FUNCTIONS).check(self._plan)
        surfaces = self._ready({name: actor.build.remote() for name, actor in self._actors.items()})
        self.members = {
            name: Member(name, actor, surfaces[name], self._late(actor)) for name, actor in self._actors.items()
        }
        if self._started:
            self._ray.get([actor.guard.remote() for actor in self._actors.values()])
        others = {name: Remote(name, one.actor, one.surface) for name, one in self.members.items() if name != FUNCTIONS}
        self._ray.get(
            [
                actor.meet.remote({key: one for key, one in others.items() if key != name})
                for name, actor in self._actors.items()
            ]
        )

    def _room(self) -> dict[str, tuple[int, Mapping[str, float]]]:
        """Wait for room for all bundles together: the number of its bundle, and its part of it, for each actor."""
        wanted = [bundle for bundle in self._bundles if bundle.whole]
        if not wanted:
            return {}
        self._group = self._ray.util.placement_group([dict(bundle.whole) for bundle in wanted], strategy="PACK")
        if not self._group.wait(timeout_seconds=self._options.room_s):
            raise ConfigError(self._no_room(wanted))
        return {name: (number, bundle.shares[name]) for number, bundle in enumerate(wanted) for name in bundle.names}

    def _no_room(self, wanted: Iterable[Bundle]) -> str:
        kinds = dict.fromkeys(kind for bundle in wanted for kind in bundle.whole)
        there, free = self._ray.cluster_resources(), self._ray.available_resources()
        has = ", ".join(f"{there.get(kind, 0):g} {kind} ({free.get(kind, 0):g} free)" for kind in kinds)
        return (
            f"no room on the cluster within {self._options.room_s:g} s for {'; '.join(map(str, wanted))}: "
            f"it has {has}; ask for less in executor.actors, or wait longer with executor.room_s"
        )

    def _new(self, recipe: Recipe, place: tuple[int, Mapping[str, float]] | None) -> Any:
        number, share = place or (-1, {})
        said = options_of(recipe.name, self._options.actors)
        environment = {**self._options.runtime_env, **(said.get("runtime_env") or {})}
        kinds = dict(share)
        options: dict[str, Any] = {"num_cpus": kinds.pop("CPU", 0), "num_gpus": kinds.pop("GPU", 0)}
        options |= {"memory": kinds.pop("memory")} if "memory" in kinds else {}
        options |= {"resources": kinds} if kinds else {}
        options |= {"runtime_env": environment} if environment else {}
        options |= {"scheduling_strategy": self._strategy(number)} if place else {}
        remote = self._ray.remote(
            max_restarts=0, max_task_retries=0, concurrency_groups={ASKS: ASKED_AT_ONCE}, **options
        )(Host)
        return remote.remote(recipe, self._graph, str(Path.cwd()), [path for path in sys.path if path])

    def _strategy(self, number: int) -> Any:
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        return strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)

    def _ready(self, built: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found = self._ray.get(list(built.values()), timeout=self._options.start_s)
        except self._ray.exceptions.GetTimeoutError:
            _, late = self._ray.wait(list(built.values()), num_returns=len(built), timeout=0)
            names = ", ".join(name for name, ref in built.items() if ref in late)
            raise RunError(
                f"not ready within {self._options.start_s:g} s: {names}; wait longer with executor.start_s"
            ) from None
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise RunError(f"an actor could not start: {_first_words(error)}") from error
        return dict(zip(built, found, strict=True))

    def _late(self, actor: Any) -> float:
        """How far the driver's clock is ahead of an actor's; nothing where that cannot be told from the way there."""
        began = time.monotonic()
        there = self._ray.get(actor.now.remote())
        ended = time.monotonic()
        late: float = (began + ended) / 2 - there
        return late if abs(late) > ended - began else 0.0

    def _ask_to_close(self, report: Report) -> None:
        asked = {name: one.actor.close.remote() for name, one in self.members.items()}
        for name, ref in asked.items():
            self._wait_for_close(name, ref, report)

    def _wait_for_close(self, name: str, ref: Any, report: Report) -> None:
        try:
            self._ray.get(ref, timeout=self._options.grace_s)
        except self._ray.exceptions.RayError as error:
            report.line(f"warning: closing {name} failed: {_first_words(error)}")

    def _kill(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)

    def _told(self) -> str:
        where = "a cluster of its own" if self._started else "the cluster"
        groups = " | ".join("+".join(bundle.names) for bundle in self._bundles)
        weights = "".join(f"; weights go by {name}" for name in self.channels.names)
        return f"ray: {len(self._actors)} actors on {where}, by device: {groups}{weights}"


class RayWorkers:
    """Hands calls to the actors. One that waits for others goes out at once, with references to their answers."""

    def __init__(self, crew: RayCrew, graph: Graph, retried: Retried, chains: bool) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._crew, self._graph, self._retried, self.chains = crew, graph, retried, chains
        self._answers: dict[Task, Any] = {}

    def submit(self, call: Call, after: Iterable[Task]) -> Handed:
        member = self._crew.members[call.bound.component or FUNCTIONS]
        waits = [self._answers[task] for task in after]
        sources = [one for one in dict.fromkeys(call.copies.values()) if owner(self._graph, one) != member.name]
        parcels = [self._exported(source, member.name, waits) for source in sources]
        order = self._order(call, member, len(waits), tuple(sources))
        given = [*waits, *(call.contents[name] for name in order.contents), *parcels]
        refs = member.actor.perform.options(num_returns=1 + len(order.values)).remote(order, *given)
        answer, *contents = refs if order.values else [refs]
        self._answers[call.task] = answer
        handed = Handed(Future(), dict(zip(order.values, contents, strict=True)))
        answer.future().add_done_callback(partial(self._report, call, member, handed))
        return handed

    def take_back(self, tasks: Iterable[Task]) -> None:
        """Cancel them: Ray drops a call of an actor that has not begun."""
        for task in tasks:
            if task in self._answers:
                self._ray.cancel(self._answers[task])

    def finish(self) -> None:
        """The actors end with the crew."""

    def _exported(self, source: str, receiver: str, waits: list[Any]) -> Any:
        sender = owner(self._graph, source)
        channel = self._crew.channels.of(sender, receiver)
        return self._crew.members[sender].actor.export.remote(source, channel, *waits)

    def _order(self, call: Call, member: Member, waits: int, sources: tuple[str, ...]) -> Order:
        context, head = call.context, call.head
        streams = {name: one for name, one in call.contents.items() if isinstance(one, RemoteStream)}
        part = context.saver.place() if isinstance(context.saver, Part) else context.run_dir
        return Order(
            phases=call.phases,
            label=call.task.section.label,
            about=About(context.step, context.phase, context.run_dir.absolute(), context.seed),
            part=part.absolute(),
            waits=waits,
            contents=tuple(name for name in call.contents if name not in streams),
            streams=streams,
            sources=sources,
            values=named(self._graph, (*head.writes, *head.updates), "value"),
            versions=call.versions,
            after=call.after,
            places=call.places,
        )

    def _report(self, call: Call, member: Member, handed: Handed, answer: Future[Answer]) -> None:
        """Runs on a thread of Ray's, where an error would be swallowed and the run would wait for ever."""
        try:
            found = self._found(call, member, answer)
            if found.error is None:
                found = replace(found, returned=replace(found.returned, values=handed.values))
        except BaseException as error:
            found = _failed(call, member, error)
        self._answers.pop(call.task, None)
        handed.outcome.set_result(found)

    def _found(self, call: Call, member: Member, future: Future[Answer]) -> Outcome:
        exceptions = self._ray.exceptions
        error = future.exception()
        if isinstance(error, (exceptions.TaskCancelledError, exceptions.RayTaskError)):
            return _failed(call, member, NotRun(f"{call.task.name}: what it waits for was lost: {_first_words(error)}"))
        if isinstance(error, exceptions.RayError):
            self._crew.lost()
            return _failed(call, member, RunError(f"its actor died: {_first_words(error)} [{member.surface.where}]"))
        return self._told(call, member, future.result())

    def _told(self, call: Call, member: Member, answer: Answer) -> Outcome:
        where = member.surface.where
        for attempt, failed in answer.retries:
            self._retried(call, attempt, failed.error(where))
        for metrics in answer.metrics:
            call.context.record(metrics)
        if answer.skipped:
            return _failed(call, member, NotRun(f"{call.task.name}: not run, as what it waits for failed"))
        return Reported(
            call.task,
            answer.began + member.late,
            answer.ended + member.late,
            f"actor {member.name}",
            returned=Returned(sinks=answer.sinks, bytes=answer.bytes),
            cursors=answer.cursors,
            warnings=answer.warnings,
            error=None if answer.error is None else answer.error.error(where),
            attempts=answer.attempts,
            saved=answer.saved,
        )


def recipes_of(config: Mapping[str, Any], plan: RunnablePlan, run_dir: Path, seed: int) -> dict[str, Recipe]:
    """How each actor builds its component. Everything is checked here, before anything is started."""
    shared = shared_of(config, Path(run_dir).absolute(), seed)
    made = {
        name: Recipe(name, str(_section(config, name)[TARGET]), options, shared)
        for name, (_, options) in makers_of(config, plan).items()
    }
    plain = any(phase.enabled and phase.component not in made for phase in plan.graph.phases)
    return {**made, FUNCTIONS: Recipe(FUNCTIONS)} if plain else made


def check_address(address: str, seconds: float = 10.0) -> None:
    """Refuse an address where nobody answers: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # `auto`, `local`: Ray knows at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except OSError as error:
        raise ConfigError(f"executor.address={address}: no cluster answers there ({error})") from error


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def named_as(kind: str) -> type[Remote]:
    """A class of the component's name, so that an error about it reads as it would in one process."""
    return type(kind, (Remote,), {"__reduce__": lambda one: (Remote, (one._name, one._actor, one._surface))})


def _failed(call: Call, member: Member, error: BaseException) -> Outcome:
    now = time.monotonic()
    return Outcome(call.task, now, now, f"actor {member.name}", error=error)


def _first_words(error: BaseException | None) -> str:
    """The first line of what Ray says: the others are for its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
