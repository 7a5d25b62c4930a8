"""Find what every phase runs, before anything starts: a typing error must not cost an hour of training.

``use`` is ``component.method``, ``pkg.mod.name``, ``pkg.mod:name``, ``./file.py:name``, or an entry point of
``stepgraph.phases``. A method gets the context first, then contents by name. A function gets by name what it asks for:
contents, components of which the phase declares something, options, ``ctx``.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.hooks import adapted, slots_of
from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import Planned
from stepgraph.phases import SLOTS
from stepgraph.registry import resolve
from stepgraph.runtime.plans import RunnablePlan, by_name, kept, kind_of, named, owner

CONTEXT = "ctx"
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a phase runs. ``component`` is empty for a function. ``asked`` are the parameters that can be given by name,
    ``required`` those of them that must be.
    """

    use: str
    body: Callable[..., Any]
    component: str = ""
    asked: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """Every target of a plan: bodies by ``use``, hooks by phase and slot."""

    bodies: Mapping[str, Bound]
    hooks: Mapping[tuple[str, str], Any] = field(default_factory=dict)

    def of(self, planned: Planned) -> Bound:
        return self.bodies[planned.use]

    def joined(self, other: Binding) -> Binding:
        """Both, for a plan that goes on in another one's place."""
        return Binding({**self.bodies, **other.bodies}, {**self.hooks, **other.hooks})

    def hooks_of(self, planned: Planned) -> dict[str, Any]:
        return {slot: self.hooks[planned.name, slot] for slot in planned.phase.hooks}


def bind(plan: RunnablePlan, components: Mapping[str, Any]) -> Binding:
    """Resolve every ``use``, hook, source of weights and stream of the plan, or say what is missing."""
    bodies: dict[str, Bound] = {}
    hooks: dict[tuple[str, str], Any] = {}
    for planned in kept(plan):
        if planned.use not in bodies:
            bodies[planned.use] = bind_one(planned.name, planned.use, components)
        hooks |= bound_hooks(planned, bodies[planned.use])
        _check_sources(plan, planned, bodies[planned.use], components)
        _check_streams(plan, planned, components)
        check_arguments(plan.graph, planned, bodies[planned.use], components)
    return Binding(bodies, hooks)


def bind_one(phase: str, use: str, components: Mapping[str, Any]) -> Bound:
    """Resolve one ``use`` of a phase."""
    if not use:
        raise ConfigError(f"{phase}: nothing to run; give it `use: component.method` or `use: pkg.mod.name`")
    name, _, method = use.partition(".")
    if name in components and method.isidentifier():
        return _bound(use, _method(phase, name, method, components[name]), name)
    if method.isidentifier() and name.isidentifier() and importlib.util.find_spec(name) is None:
        known = ", ".join(sorted(components)) or "none"
        raise ConfigError(f"{phase}: no component {name!r}{did_you_mean(name, components)} (there are: {known})")
    return bind_function(phase, use)


def bind_function(phase: str, use: str) -> Bound:
    """Resolve a target that is no component's method."""
    return function_bound(phase, use, resolve(use, phase))


def function_bound(phase: str, use: str, body: Any) -> Bound:
    """Take a function for a body, or say why it cannot be one."""
    if not callable(body):
        raise ConfigError(f"{phase}: {use} is not callable but a {type(body).__name__}")
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigError(f"{phase}: {use} is a generator: a body returns {{name: contents}} once; take its yield out")
    return _bound(use, body)


def _bound(use: str, body: Callable[..., Any], component: str = "") -> Bound:
    try:
        parameters = inspect.signature(body).parameters.values()
    except ValueError:  # some built-ins have none
        return Bound(use, body, component)
    asked = [one for one in parameters if one.kind in NAMED]
    required = tuple(one.name for one in asked if one.default is one.empty)
    return Bound(use, body, component, tuple(one.name for one in asked), required)


def bound_hooks(planned: Planned, bound: Bound) -> dict[tuple[str, str], Any]:
    """The phase's hooks, resolved, and adapted where its body says which slots it has."""
    found: dict[tuple[str, str], Any] = {}
    slots = slots_of(bound.body)
    fixed = SLOTS.get(planned.use.partition(".")[2], ()) if bound.component else ()
    for slot, target in planned.phase.hooks.items():
        who = f"{planned.name}.hooks.{slot}"
        if slot not in slots and (slots or fixed):
            has = f"slots: {', '.join(slots)}" if slots else "it has no slots"
            raise ConfigError(f"{who}: {planned.use} does not call it{did_you_mean(slot, slots)} ({has})")
        use, settings = _settings(target)
        hook = resolve(use, who) if isinstance(use, str) else use
        found[planned.name, slot] = adapted(slot, hook, who, settings) if slot in slots else hook
    return found


def _settings(target: Any) -> tuple[Any, dict[str, Any]]:
    """A hook's target, and its settings where it is written as a mapping."""
    if not isinstance(target, Mapping):
        return target, {}
    return target.get("use"), {str(key): value for key, value in target.items() if key != "use"}


# ---- what a body is given ------------------------------------------------------------------------------------------


def arguments(
    planned: Planned,
    bound: Bound,
    *,
    context: Any,
    contents: Mapping[str, Any],
    parts: Mapping[str, Any],
    components: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a body is called with, by position and by name. ``parts``: the moves and weights of it that there are."""
    handoff, options = planned.kind == "handoff", dict(planned.phase.options)
    if bound.component and handoff:
        return (context, *parts.values()), options
    taken = {name: part for name, part in parts.items() if handoff or name in bound.asked}
    given = {**contents, **taken, **options}
    if bound.component:
        return (context,), given
    given |= {name: components[name] for name in bound.asked if name in components and name not in given}
    return (), {**given, CONTEXT: context} if CONTEXT in bound.asked else given


def sources_of(graph: Graph, planned: Planned, bound: Bound) -> dict[str, str]:
    """Whose weights a body is given, by the name it finds them under: those that it copies, and, where it asks for
    ``weights``, those that it reads of other components.
    """
    asks = planned.kind == "work" and "weights" in bound.asked
    read = named(graph, planned.reads, "weights") if asks else ()
    return {**{name: name for name in read if owner(graph, name) not in ("", bound.component)}, **planned.copies}


def check_arguments(graph: Graph, planned: Planned, bound: Bound, components: Mapping[str, Any]) -> None:
    """Refuse a body that cannot be called with what its phase declares."""
    taken = (*planned.reads, *planned.updates)
    contents = dict.fromkeys((*by_name(graph, taken), *named(graph, taken, "stream")))
    given_parts = (("moves", planned.moves), ("weights", sources_of(graph, planned, bound)))
    parts = {name: None for name, said in given_parts if said}
    positional, given = arguments(
        planned, bound, context=CONTEXT, contents=contents, parts=parts, components=components
    )
    if not bound.component:
        _check_asked(graph, planned, bound, given, components)
    try:
        signature = inspect.signature(bound.body)
    except ValueError:  # some built-ins have none: the call will tell
        return
    try:
        signature.bind(*positional, **given)
    except TypeError as error:
        gets = ", ".join(["ctx", *parts][: len(positional)] + list(given)) or "nothing"
        cure = "" if bound.component else _cure(str(error))
        raise ConfigError(f"{planned.name}: {planned.use}{signature} is given {gets}: {error}{cure}") from None


def _check_asked(
    graph: Graph, planned: Planned, bound: Bound, given: Mapping[str, Any], components: Mapping[str, Any]
) -> None:
    """Say of each thing that a function asks for and may not have, what would give it."""
    for name in bound.asked:
        if name in given and name in components and not visible(graph, planned, name):
            raise ConfigError(f"{planned.name}: {planned.use} takes {undeclared(graph, name)}")
        if name in graph.resources and name not in given and name in bound.required:
            raise ConfigError(f"{planned.name}: {planned.use} takes {name!r}, which {_why_not(graph, planned, name)}")


def _cure(said: str) -> str:
    """What to do about a function that cannot be called so."""
    if said.startswith("missing"):
        return "; let the phase read it, set it in options, or give it a default"
    return "; take it as a parameter, or out of the phase's words" if "unexpected keyword" in said else ""


def _why_not(graph: Graph, planned: Planned, name: str) -> str:
    if kind_of(graph, name) == "stream" or by_name(graph, (name,)):
        return "the phase does not read: add it to its reads, or take the parameter out"
    who = owner(graph, name)
    return f"is {kind_of(graph, name)}" + (f" of a component: take {who!r} instead" if who else ", and not handed out")


def visible(graph: Graph, planned: Planned, component: str) -> bool:
    """Whether a function may use a component: one that holds nothing in the graph, or something that it declares."""
    held = {name for name, resource in graph.resources.items() if resource.of == component}
    return not held or bool(held & set(planned.phase.touched()))


def undeclared(graph: Graph, component: str) -> str:
    """What is wrong with using a component of which nothing is declared, and the cure."""
    held = ", ".join(name for name, resource in graph.resources.items() if resource.of == component)
    return f"the component {component!r}, but its phase declares nothing of it: read, update or need {held}"


def _method(phase: str, name: str, method: str, component: Any) -> Callable[..., Any]:
    found = getattr(component, method, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    public = [word for word in dir(component) if not word.startswith("_")]
    hint = did_you_mean(method, public)
    raise ConfigError(f"{phase}: component {name} ({type(component).__name__}) has no method {method!r}{hint}")


def _check_sources(plan: RunnablePlan, planned: Planned, bound: Bound, components: Mapping[str, Any]) -> None:
    for source in sources_of(plan.graph, planned, bound).values():
        name = owner(plan.graph, source)
        if not callable(getattr(components.get(name), "weights", None)):
            does = "copies from" if source in planned.copies.values() else "takes the weights of"
            raise ConfigError(
                f"{planned.name}: {does} {source}, but its component {name or '(none: give it `of`)'} "
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
