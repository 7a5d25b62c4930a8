"""A phase that is no component's as a Ray task: Ray looks for a place with the resources that it asks for, each time.

All else about it is as in the actor for functions, whose code it runs: the same contract, errors, retries and timeouts.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepgraph.errors import ConfigError, RunError
from stepgraph.ir.graph import Graph
from stepgraph.registry import resolve
from stepgraph.runtime.ray_group import first_words
from stepgraph.runtime.ray_host import Host
from stepgraph.runtime.ray_room import DEFAULT, options_of, wants
from stepgraph.runtime.ray_wire import Answer, Order, Recipe, Surface


@dataclass(frozen=True, slots=True)
class Setting:
    """What a task needs to know of the run. It is the same for all, and sent once."""

    graph: Graph
    folder: str
    paths: tuple[str, ...]
    others: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class TaskMember:
    """Performs the calls of one phase, each in a process that Ray finds."""

    label: str
    setting: Any
    body: Any
    test: Any

    @classmethod
    def of(cls, label: str, setting: Any, options: Mapping[str, Any]) -> TaskMember:
        """Ray is told of the two functions once: it keeps what it is told as long as it runs."""
        remote = importlib.import_module("ray").remote(max_retries=0, **options)
        return cls(label, setting, remote(perform), remote(find))

    @property
    def surface(self) -> Surface:
        return Surface("functions", where=f"task {self.label}")

    def submit(self, order: Order, given: Sequence[Any], returns: int) -> Any:
        return self.body.options(num_returns=returns).remote(self.label, self.setting, order, *given)

    def timed(self, answer: Answer) -> Answer:
        """By the driver's clock: which machine's the task had is not known, but it has just ended."""
        late = time.monotonic() - answer.ended
        return replace(answer, began=answer.began + late, ended=answer.ended + late)

    def tried(self, use: str) -> Any:
        """A reference to nothing, there once a task of the phase had room, and found what it is to run."""
        return self.test.remote(self.label, self.setting, use)


def perform(label: str, setting: Setting, order: Order, *given: Any) -> Any:
    """Runs in the task."""
    return _host(label, setting).perform(order, *given)


def find(label: str, setting: Setting, use: str) -> None:
    """Runs in the task: the phase's target must be there, too."""
    _host(label, setting)
    resolve(use, label)


def functions_of(graph: Graph, components: Iterable[str]) -> dict[str, str]:
    """The phases that are no component's, with what each runs."""
    names = set(components)
    return {phase.name: phase.use for phase in graph.phases if phase.enabled and phase.component not in names}


def tasks_of(graph: Graph, components: Iterable[str], actors: Mapping[str, Any]) -> dict[str, str]:
    """Those of them that the configuration has an entry for. One of a component's name is the component's."""
    names = {DEFAULT, *components}
    return {name: use for name, use in functions_of(graph, names).items() if name in actors and name not in names}


def try_out(tasks: Mapping[str, TaskMember], uses: Mapping[str, str], seconds: float) -> list[str]:
    """Run a task for each phase that does nothing; those for which there is no room in that time."""
    ray: Any = importlib.import_module("ray")
    tried = {task.tried(uses[name]): name for name, task in tasks.items()}
    done, late = ray.wait(list(tried), num_returns=len(tried), timeout=seconds) if tried else ([], [])
    for ref in late:
        ray.cancel(ref)
    for ref in done:
        _check(ray, ref, tried[ref])
    return [tried[ref] for ref in late]


def ray_options(name: str, actors: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]) -> dict[str, Any]:
    """What Ray is told of a task: its resources and environment, on top of that of all."""
    environment = {**shared, **(options_of(name, actors).get("runtime_env") or {})}
    return {**resources(wants(name, actors)), **({"runtime_env": environment} if environment else {})}


def resources(amounts: Mapping[str, float]) -> dict[str, Any]:
    """Amounts by Ray's names, as its options."""
    kinds = dict(amounts)
    options: dict[str, Any] = {"num_cpus": kinds.pop("CPU", 0), "num_gpus": kinds.pop("GPU", 0)}
    options |= {"memory": kinds.pop("memory")} if "memory" in kinds else {}
    return options | ({"resources": kinds} if kinds else {})


def _host(label: str, setting: Setting) -> Host:
    host = Host(Recipe(label, kind="task"), setting.graph, setting.folder, setting.paths)
    host.meet(setting.others)
    return host


def _check(ray: Any, ref: Any, name: str) -> None:
    try:
        ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise _told(name, error.cause) from error
    except ray.exceptions.RayError as error:
        raise RunError(f"{name}: a task of it cannot start: {first_words(error)}") from error


def _told(name: str, cause: BaseException) -> BaseException:
    """Its own words where they are ours: what is not found there, say."""
    if isinstance(cause, ConfigError):
        return ConfigError(f"{cause} (looked for in a task with executor.actors.{name})")
    return RunError(f"{name}: a task of it cannot start: {type(cause).__name__}: {first_words(cause)}")
