"""Runs a plan on Ray: each component is an actor or several, contents pass between actors as object references.

The plan, the order, the checks and the records are those of a run in one process; only who performs a call differs. A
step's calls go out at once, each with references to what it waits for, so that no phase waits for the driver.

The run directory must be on a file system that the actors see under the same name.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stepgraph.errors import ConfigError, RunError
from stepgraph.ir.graph import Graph
from stepgraph.runtime import run as local
from stepgraph.runtime.build import TARGET, makers_of, section_of, shared_of
from stepgraph.runtime.call import Call, Outcome, Retried, taken_from
from stepgraph.runtime.plans import RunnablePlan, by_name, owner
from stepgraph.runtime.ray_group import (
    DIVIDES,
    Blame,
    Everyone,
    Gathering,
    Group,
    Member,
    Pieces,
    Word,
    blamed,
    cause,
    check_groups,
    first_words,
    joined,
    logged,
    not_run,
    pieces_of,
    word_of_death,
)
from stepgraph.runtime.ray_host import ASKED_AT_ONCE, ASKS, Host, Remote, RemoteStream
from stepgraph.runtime.ray_room import Bundle, bundles, check_names, labels, options_of, wants
from stepgraph.runtime.ray_task import Setting, TaskMember, functions_of, ray_options, resources, tasks_of, try_out
from stepgraph.runtime.ray_wire import About, Answer, Order, Recipe
from stepgraph.runtime.report import Report
from stepgraph.runtime.result import Result
from stepgraph.runtime.saving import Part
from stepgraph.runtime.schedule import Task
from stepgraph.runtime.transport import Channels, Spot, Transport, transport_of
from stepgraph.runtime.workers import Handed

Performer = Member | TaskMember
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
        recipes = recipes_of(self.config, plan, run_dir, seed, self.options.actors)
        sections = [name for name in self.config if TARGET in _section(self.config, name)]
        functions = functions_of(plan.graph, recipes)
        check_names(self.options.actors, dict.fromkeys((*recipes, *sections, FUNCTIONS)), list(functions))
        transport = transport_of(self.config)
        Channels.apart(transport, recipes, FUNCTIONS).check(plan)
        return RayCrew(plan, recipes, self.options, report, transport)


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
        self._uses = tasks_of(plan.graph, recipes, options.actors)
        self._asking = {name: ray_options(name, options.actors, options.runtime_env) for name in self._uses}
        self._bundles = bundles(plan.graph, list(recipes), options.actors)
        self._labels = {name: labels(name, options.actors) for name in recipes}
        self._owned = self._started = False
        """Whether this run connected to the cluster, and whether it started it."""
        self._group: Any = None
        self.groups: dict[str, Group] = {}
        self._tasks: dict[str, Group] = {}
        self.running: set[Any] = set()
        """What tasks that are not over yet will answer."""
        self._actors: dict[str, Any] = {}
        self.channels = Channels(transport)
        self._dead, self._ending = False, threading.Lock()
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
        return {name: self._seen(group) for name, group in self.groups.items() if name != FUNCTIONS}

    def workers(self, graph: Graph, retried: Retried) -> RayWorkers:
        return RayWorkers(self, graph, retried, self._options)

    def group_of(self, call: Call) -> Group:
        """Who performs a call."""
        if call.bound.component:
            return self.groups[call.bound.component]
        return self._tasks.get(call.head.name) or self.groups[FUNCTIONS]

    def end_others(self, failed: Word, heard: list[Any]) -> None:
        """End the members of a group that do not answer, as they wait for one that failed."""
        groups = [group for group in self.groups.values() if failed.member in group.members]
        silent = [member for group in groups for member in group.members if member not in heard]
        with self._ending:
            for member in (one for one in silent if one.label in self._actors):
                self._ray.kill(member.actor)

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
            for rank, label in enumerate(self._labels[name]):
                self._actors[label] = self._new(recipe.member(rank, len(self._labels[name])), places.get(label))
        self.channels = Channels(self._transport, self._spots(), FUNCTIONS).check(self._plan)
        surfaces = self._ready(self._building())
        for name, recipe in recipes.items():
            members = tuple(
                Member(label, self._actors[label], surfaces[label], self._late(self._actors[label]))
                for label in self._labels[name]
            )
            self.groups[name] = Group(name, members, recipe.divides, f"actor {name}")
        if self._started:
            self._ray.get([actor.guard.remote() for actor in self._actors.values()])
        self._introduce()
        self._tasks = self._tried()

    def _spots(self) -> dict[str, tuple[Spot, ...]]:
        spots = self._ready({label: actor.spot.remote() for label, actor in self._actors.items()})
        anywhere = {name: (Spot("", 0, "a task, wherever there is room"),) for name in self._uses}
        return {**anywhere, **{name: tuple(spots[label] for label in of) for name, of in self._labels.items()}}

    def _building(self) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for of in self._labels.values():
            meeting = self._actors[of[0]].meeting.remote() if len(of) > 1 else ""
            built |= {label: self._actors[label].build.remote(meeting) for label in of}
        return built

    def _introduce(self) -> None:
        """Tell every actor of the components that it is none of. A question to a group goes to its first member."""
        remotes = self._remotes()
        self._ray.get(
            [
                self._actors[label].meet.remote({name: one for name, one in remotes.items() if name != own})
                for own, of in self._labels.items()
                for label in of
            ]
        )

    def _remotes(self) -> dict[str, Remote]:
        firsts = {name: group.first for name, group in self.groups.items() if name != FUNCTIONS}
        return {name: Remote(name, one.actor, one.surface) for name, one in firsts.items()}

    def _tried(self) -> dict[str, Group]:
        """The phases that run as tasks, once each of them has run one."""
        if not self._uses:
            return {}
        paths = tuple(path for path in sys.path if path)
        setting = self._ray.put(Setting(self._graph, str(Path.cwd()), paths, self._remotes()))
        tasks = {name: TaskMember.of(name, setting, asking) for name, asking in self._asking.items()}
        late = try_out(tasks, self._uses, self._options.room_s)
        if late:
            raise ConfigError(self._no_room([Bundle((name,), wants(name, self._options.actors)) for name in late]))
        return {name: Group(name, (task,), title=f"task {name}") for name, task in tasks.items()}

    def _seen(self, group: Group) -> Any:
        first = group.first
        if not group.several:
            return named_as(first.surface.kind)(group.name, first.actor, first.surface, "")
        return type(first.surface.kind, (Everyone,), {})(group, self._options.grace_s, self.end_others)

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
        options = resources(share)
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
            raise RunError(f"an actor could not start: {first_words(error)}") from error
        return dict(zip(built, found, strict=True))

    def _late(self, actor: Any) -> float:
        """How far the driver's clock is ahead of an actor's; nothing where that cannot be told from the way there."""
        began = time.monotonic()
        there = self._ray.get(actor.now.remote())
        ended = time.monotonic()
        late: float = (began + ended) / 2 - there
        return late if abs(late) > ended - began else 0.0

    def _ask_to_close(self, report: Report) -> None:
        members = [member for group in self.groups.values() for member in group.members]
        asked = {member.actor.close.remote(): member.label for member in members}
        self._ray.wait(list(asked), num_returns=max(1, len(asked)), timeout=self._options.grace_s) if asked else None
        for ref, label in asked.items():
            self._look_at_close(label, ref, report)

    def _look_at_close(self, label: str, ref: Any, report: Report) -> None:
        try:
            self._ray.get(ref, timeout=0)
        except self._ray.exceptions.RayError as error:
            report.line(f"warning: closing {label} failed: {first_words(error)}")

    def _kill(self) -> None:
        """Once: asked anything after it was shut down, Ray would start again."""
        with self._ending:
            actors, self._actors = self._actors, {}
            tasks, self.running = self.running, set()
            for actor in actors.values():
                self._ray.kill(actor)
            for answer in tasks:
                self._ray.cancel(answer, force=True)

    def _told(self) -> str:
        where = "a cluster of its own" if self._started else "the cluster"
        groups = " | ".join("+".join(bundle.names) for bundle in self._bundles)
        groups += f"; tasks: {', '.join(self._tasks)}" if self._tasks else ""
        weights = "".join(f"; weights go by {name}" for name in self.channels.names)
        return f"ray: {len(self._actors)} actors on {where}, by device: {groups}{weights}"


class RayWorkers:
    """Hands calls to the actors. One that waits for others goes out at once, with references to their answers."""

    def __init__(self, crew: RayCrew, graph: Graph, retried: Retried, options: Options) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._crew, self._graph, self._retried, self.chains = crew, graph, retried, options.chain
        self._grace = options.grace_s
        self._answers: dict[Task, tuple[Any, ...]] = {}
        self._numbers = count()

    def submit(self, call: Call, after: Iterable[Task]) -> Handed:
        group = self._crew.group_of(call)
        waits = [answer for task in after for answer in self._answers[task]]
        taken = dict.fromkeys(taken_from(self._graph, call).values())
        sources = [one for one in taken if owner(self._graph, one) != group.name]
        parts, parcels = self._exported(sources, group.name, waits)
        order = self._order(call, group, len(waits), tuple(sources))
        contents = [piece for name in order.contents for piece in pieces_of(call.contents[name])]
        refs = self._performed(group, order, [*waits, *contents, *parcels])
        answers = {answer: member for member, (answer, *_) in zip(group.members, refs, strict=True)}
        self._answers = {task: found for task, found in self._answers.items() if not task.finished}
        self._answers[call.task] = tuple(answers)
        handed = Handed(Future(), _values(order, refs))
        self._watch(call, group, handed, order, {**parts, **answers})
        return handed

    def take_back(self, tasks: Iterable[Task]) -> None:
        """Cancel them: Ray drops a call of an actor that has not begun."""
        for task in tasks:
            for answer in self._answers.get(task, ()):
                self._ray.cancel(answer)

    def fetched(self, contents: Any) -> Any:
        """The contents behind a reference."""
        return self._ray.get(contents) if isinstance(contents, self._ray.ObjectRef) else contents

    def finish(self) -> None:
        """The actors end with the crew."""

    def _performed(self, group: Group, order: Order, given: list[Any]) -> list[list[Any]]:
        """What each member will answer, and the values: all members' where each makes a part, else the first one's."""
        alone = replace(order, values=())
        found = []
        for rank, member in enumerate(group.members):
            mine = order if rank == 0 or order.divided else alone
            refs = member.submit(mine, given, 1 + len(mine.values))
            found.append(list(refs) if mine.values else [refs])
        return found

    def _exported(self, sources: Iterable[str], receiver: str, waits: list[Any]) -> tuple[dict[Any, Member], list[Any]]:
        """The parcels of these sources; and, where it takes several to make one, what each of them will answer."""
        parts: dict[Any, Member] = {}
        parcels = []
        for source in sources:
            sender = self._crew.groups[owner(self._graph, source)]
            given = (source, self._crew.channels.of(sender.name, receiver), *waits)
            if not sender.several:
                parcels.append(sender.first.actor.export.remote(*given))
                continue
            made = [one.actor.take_part.options(num_returns=2).remote(*given) for one in sender.members]
            parts |= {answer: member for (answer, _), member in zip(made, sender.members, strict=True)}
            parcels.append(made[0][1])
        return parts, parcels

    def _order(self, call: Call, group: Group, waits: int, sources: tuple[str, ...]) -> Order:
        context, head = call.context, call.head
        streams = {name: one for name, one in call.contents.items() if isinstance(one, RemoteStream)}
        part = context.saver.place() if isinstance(context.saver, Part) else context.run_dir
        number = next(self._numbers)
        return Order(
            phases=call.phases,
            label=call.task.section.label,
            about=About(context.step, context.phase, context.run_dir.absolute(), context.seed),
            part=part.absolute(),
            waits=waits,
            contents={name: len(pieces_of(one)) for name, one in call.contents.items() if name not in streams},
            streams={name: one.shared(number) for name, one in streams.items()} if group.several else streams,
            sources=sources,
            values=by_name(self._graph, (*head.writes, *head.updates)),
            versions=call.versions,
            after=call.after,
            places=call.places,
            divided=group.shares_out(head),
        )

    def _watch(self, call: Call, group: Group, handed: Handed, order: Order, parties: Mapping[Any, Performer]) -> None:
        """Settle the call when all who take part in it have answered."""
        self._crew.running |= {answer for answer, member in parties.items() if isinstance(member, TaskMember)}
        over = partial(self._settle, call, group, handed, order)
        grace = None if order.divided else self._grace
        gathering = Gathering(len(parties), over, self._crew.end_others, grace)
        for answer, member in parties.items():
            answer.future().add_done_callback(partial(self._hear, call, gathering, member, answer))

    def _hear(self, call: Call, gathering: Gathering, member: Performer, ref: Any, answer: Future[Answer]) -> None:
        """Runs on a thread of Ray's, where an error would be swallowed and the run would wait for ever."""
        self._crew.running.discard(ref)
        try:
            word = self._word(call, member, answer)
        except BaseException as error:
            word = Word(member, None, error)
        gathering.heard(word)

    def _settle(self, call: Call, group: Group, handed: Handed, order: Order, words: list[Word]) -> None:
        try:
            found = self._joined(call, group, order, words)
            if found.error is None:
                found = replace(found, returned=replace(found.returned, values=handed.values))
        except BaseException as error:
            now = time.monotonic()
            found = Outcome(call.task, now, now, group.title, error=error)
        handed.outcome.set_result(found)

    def _joined(self, call: Call, group: Group, order: Order, words: list[Word]) -> Outcome:
        for word in words:
            for attempt, failed in word.answer.retries if word.answer else ():
                self._retried(call, attempt, failed.error(word.answer.where if word.answer else ""))
        for numbers in logged(group, words, order.divided):
            call.context.record(numbers)
        found = joined(call, group, words, cause(words))
        if found.error is not None and any(word.answer and word.answer.saved for word in words):
            shutil.rmtree(order.part, ignore_errors=True)  # a part that only some have written is none
        return found

    def _word(self, call: Call, member: Performer, future: Future[Answer]) -> Word:
        exceptions = self._ray.exceptions
        error = future.exception()
        if isinstance(error, (exceptions.TaskCancelledError, exceptions.RayTaskError)):
            why = f"what it waits for was lost: {first_words(error)}"
            return Word(member, None, not_run(call, why), Blame.NOT_RUN)
        if isinstance(error, exceptions.RayError):
            if isinstance(member, Member):
                self._crew.lost()
            return word_of_death(member, error)
        answer = future.result()
        if answer.skipped:
            return Word(member, answer, not_run(call, "not run, as what it waits for failed"), Blame.NOT_RUN)
        failed, answer = answer.error, member.timed(answer)
        if failed is None:
            return Word(member, answer)
        return Word(
            member, answer, failed.error(answer.where or member.surface.where), blamed(f"{failed.kind}: {failed.text}")
        )


def recipes_of(
    config: Mapping[str, Any],
    plan: RunnablePlan,
    run_dir: Path,
    seed: int,
    actors: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Recipe]:
    """How each actor builds its component. Everything is checked here, before anything is started."""
    shared, makers = shared_of(config, Path(run_dir).absolute(), seed), makers_of(config, plan)
    check_groups(plan, {name: target for name, (target, _) in makers.items()}, actors)
    made = {
        name: Recipe(name, str(_section(config, name)[TARGET]), options, shared, tuple(getattr(target, DIVIDES, ())))
        for name, (target, options) in makers.items()
    }
    plain = functions_of(plan.graph, made).keys() - tasks_of(plan.graph, made, actors).keys()
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
    section = section_of(config, name)
    return section if isinstance(section, Mapping) else {}


def named_as(kind: str) -> type[Remote]:
    """A class of the component's name, so that an error about it reads as it would in one process."""
    return type(kind, (Remote,), {"__reduce__": lambda one: (Remote, (one._name, one._actor, one._surface))})


def _values(order: Order, refs: list[list[Any]]) -> dict[str, Any]:
    """What stands for the values that a call will write."""
    made = [found for _, *found in refs if found] if order.divided else [refs[0][1:]]
    parts = {name: tuple(one[place] for one in made) for place, name in enumerate(order.values)}
    return {name: Pieces(found) if len(found) > 1 else found[0] for name, found in parts.items()}
