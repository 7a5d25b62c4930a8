"""Find what every phase runs, before anything starts: a typing error must not cost an hour of training.

``use`` is ``component.method``, ``pkg.mod.name``, ``pkg.mod:name``, ``./file.py:name``, or an entry point of
``stepgraph.phases``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.plan import Planned
from stepgraph.runtime.plans import RunnablePlan, kept, kind_of, owner

ENTRY_POINTS = "stepgraph.phases"


@dataclass(frozen=True, slots=True)
class Bound:
    """What a phase runs. ``component`` is empty for a function; ``first`` names its first positional parameter."""

    use: str
    body: Callable[..., Any]
    component: str = ""
    first: str = ""

    def takes_context(self, contents: Iterable[str]) -> bool:
        """Methods always get the context; a function does unless its first parameter is one of the contents."""
        return bool(self.component) or bool(self.first and self.first not in set(contents))


@dataclass(frozen=True, slots=True)
class Binding:
    """Every target of a plan: bodies by ``use``, hooks by their text."""

    bodies: Mapping[str, Bound]
    hooks: Mapping[str, Any] = field(default_factory=dict)

    def of(self, planned: Planned) -> Bound:
        return self.bodies[planned.use]

    def joined(self, other: Binding) -> Binding:
        """Both, for a plan that goes on in another one's place."""
        return Binding({**self.bodies, **other.bodies}, {**self.hooks, **other.hooks})

    def hooks_of(self, planned: Planned) -> dict[str, Any]:
        return {
            slot: self.hooks.get(target, target) if isinstance(target, str) else target
            for slot, target in planned.phase.hooks.items()
        }


def bind(plan: RunnablePlan, components: Mapping[str, Any]) -> Binding:
    """Resolve every ``use``, hook, source of weights and stream of the plan, or say what is missing."""
    bodies: dict[str, Bound] = {}
    hooks: dict[str, Any] = {}
    for planned in kept(plan):
        if planned.use not in bodies:
            bodies[planned.use] = bind_one(planned.name, planned.use, components)
        for target in planned.phase.hooks.values():
            if isinstance(target, str) and target not in hooks:
                hooks[target] = resolve(target, f"{planned.name}: hook")
        _check_sources(plan, planned, components)
        _check_streams(plan, planned, components)
    return Binding(bodies, hooks)


def bind_one(phase: str, use: str, components: Mapping[str, Any]) -> Bound:
    """Resolve one ``use`` of a phase."""
    if not use:
        raise ConfigError(f"{phase}: nothing to run; give it `use: component.method` or `use: pkg.mod.name`")
    name, _, method = use.partition(".")
    if name in components and method.isidentifier():
        return Bound(use, _method(phase, name, method, components[name]), component=name)
    if method.isidentifier() and name.isidentifier() and importlib.util.find_spec(name) is None:
        known = ", ".join(sorted(components)) or "none"
        raise ConfigError(f"{phase}: no component {name!r}{did_you_mean(name, components)} (there are: {known})")
    body = resolve(use, phase)
    if not callable(body):
        raise ConfigError(f"{phase}: {use} is not callable but a {type(body).__name__}")
    return Bound(use, body, first=_first_parameter(body))


def resolve(target: str, who: str) -> Any:
    """Import what ``target`` names: ``pkg.mod.name``, ``pkg.mod:name``, ``./file.py:name`` or an entry point."""
    place, colon, name = target.rpartition(":")
    if not colon:
        place, _, name = target.rpartition(".")
    if not place:
        return _entry_point(target, who)
    found: Any = _module(place, target, who)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{who}: {place} has no {part!r}{did_you_mean(part, dir(found))} (from {target!r})")
        found = getattr(found, part)
    return found


def _method(phase: str, name: str, method: str, component: Any) -> Callable[..., Any]:
    found = getattr(component, method, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    public = [word for word in dir(component) if not word.startswith("_")]
    hint = did_you_mean(method, public)
    raise ConfigError(f"{phase}: component {name} ({type(component).__name__}) has no method {method!r}{hint}")


def _module(place: str, target: str, who: str) -> ModuleType:
    if place.endswith(".py"):
        return _file_module(Path(place), who)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(error.name + ".")):
            raise  # a module that is there but needs another one: its own error says which
        raise ConfigError(
            f"{who}: no module {error.name!r} for {target!r}; is it installed, or is a name wrong?"
        ) from None


def _file_module(path: Path, who: str) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{who}: no file {str(path)!r} (looked in {Path.cwd()})")
    name = f"stepgraph_file_{path.stem}_{abs(hash(path.resolve())):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{who}: {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up while it is executed
    spec.loader.exec_module(module)
    return module


def _entry_point(name: str, who: str) -> Any:
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        cure = "write component.method, pkg.mod.name or ./file.py:name"
        raise ConfigError(f"{who}: nothing is called {name!r}{did_you_mean(name, points)}; {cure}")
    return points[name].load()


def _first_parameter(body: Callable[..., Any]) -> str:
    try:
        parameters = list(inspect.signature(body).parameters.values())
    except ValueError:  # some built-ins have no signature: they get the context, as methods do
        return "ctx"
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return parameters[0].name if parameters and parameters[0].kind in positional else ""


def _check_sources(plan: RunnablePlan, planned: Planned, components: Mapping[str, Any]) -> None:
    for source in planned.copies.values():
        name = owner(plan.graph, source)
        if not callable(getattr(components.get(name), "weights", None)):
            raise ConfigError(
                f"{planned.name}: copies from {source}, but its component {name or '(none: give it `of`)'} "
                f"has no method 'weights' or is not there"
            )


def _check_streams(plan: RunnablePlan, planned: Planned, components: Mapping[str, Any]) -> None:
    for name in (*planned.reads, *planned.updates):
        if kind_of(plan.graph, name) != "stream":
            continue
        provider = owner(plan.graph, name) or "data"
        found = components.get(provider)
        if not (hasattr(found, "stream") or hasattr(found, "take")):
            raise ConfigError(f"{planned.name}: takes from {name}, but component {provider!r} that has it is not there")
