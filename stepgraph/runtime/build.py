"""Make the components that a plan uses, and no others: a run that only evaluates builds no trainer.

``_target_`` is the spelling of Hydra, resolved here: it must work without Hydra, and say what is wrong in one line.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.plan import Planned
from stepgraph.registry import COMPONENTS, resolve
from stepgraph.runtime.bind import bind_function, check_arguments
from stepgraph.runtime.contract import Shared
from stepgraph.runtime.plans import RunnablePlan, kept, named, owner
from stepgraph.runtime.transport import Channels, transport_of

TARGET = "_target_"
OWN = "components"
ASKS = "asks"
"""The attribute in which a component names the others that its bodies call through ``ctx.components``."""


def build_components(config: Mapping[str, Any], plan: RunnablePlan, run_dir: Path, seed: int = 0) -> dict[str, Any]:
    """Every component that a kept phase of the plan uses, built from its section of the configuration."""
    Channels(transport_of(config)).check(plan)
    made = shared_of(config, run_dir, seed)
    return {name: target(made, **options) for name, (target, options) in makers_of(config, plan).items()}


def shared_of(config: Mapping[str, Any], run_dir: Path, seed: int = 0) -> Shared:
    """What every component is built with."""
    return Shared(
        model=dict(config.get("model") or {}),
        data=dict(config.get("data") or {}),
        seed=seed,
        run_dir=Path(run_dir),
        devices=str(config.get("devices") or "auto"),
    )


def makers_of(config: Mapping[str, Any], plan: RunnablePlan) -> dict[str, tuple[Any, dict[str, Any]]]:
    """What builds each component that the plan uses, and with which options. All are checked; none is built."""
    makers: dict[str, tuple[Any, dict[str, Any]]] = {}
    names = wanted(config, plan)
    while names:
        name = names.pop(0)
        makers[name] = _maker(name, config, plan)
        names += [other for other in getattr(makers[name][0], ASKS, ()) if other not in (*makers, *names)]
    check_functions(plan, makers)
    return makers


def wanted(config: Mapping[str, Any], plan: RunnablePlan) -> list[str]:
    """The names of those components, in the order of first use."""
    names: dict[str, None] = {}
    for planned in kept(plan):
        component = planned.phase.component
        if component and (section_of(config, component) is not None or not _is_module(component)):
            names[component] = None
        else:
            names |= dict.fromkeys(asked(config, plan, planned))
        read = named(plan.graph, planned.reads, "weights")
        names |= dict.fromkeys(owner(plan.graph, source) for source in (*read, *planned.copies.values()))
        streams = named(plan.graph, (*planned.reads, *planned.updates), "stream")
        names |= dict.fromkeys(owner(plan.graph, stream) or "data" for stream in streams)
    if names and TARGET in (config.get("data") or {}):
        names["data"] = None
    return [name for name in names if name]


def check_functions(plan: RunnablePlan, components: Mapping[str, Any]) -> None:
    """Refuse a function that cannot be called, before a model is loaded: it matters only which components there are."""
    for planned in kept(plan):
        if planned.phase.component not in components:
            check_arguments(plan.graph, planned, bind_function(planned.name, planned.use), components)


def section_of(config: Mapping[str, Any], name: str) -> Any:
    """The section of a component: one of ours at the top, one of a user's own under ``components``."""
    own = config.get(OWN)
    return own[name] if isinstance(own, Mapping) and name in own else config.get(name)


def asked(config: Mapping[str, Any], plan: RunnablePlan, planned: Planned) -> list[str]:
    """The components that a function may use: those of what it declares, and those that it takes by name."""
    owners = [owner(plan.graph, name) for name in planned.phase.touched()]
    taken = [name for name in bind_function(planned.name, planned.use).asked if name not in plan.graph.resources]
    sections = {name: section_of(config, name) for name in (*owners, *taken) if name}
    return [name for name, section in sections.items() if isinstance(section, Mapping) and TARGET in section]


def target_of(config: Mapping[str, Any], name: str) -> str:
    """What a component's section names to make it, or what is wrong with the section."""
    section = section_of(config, name)
    if not isinstance(section, Mapping):
        groups = [key for key, value in config.items() if isinstance(value, Mapping) and TARGET in value]
        raise ConfigError(
            f"component {name!r}: the configuration has no section of that name{did_you_mean(name, groups)}; "
            f"{OWN}.{name}.{TARGET}=pkg.mod.Class makes one"
        )
    if not section.get(TARGET):
        raise ConfigError(
            f"component {name!r}: its section has no {TARGET}; name the class, as in {TARGET}: pkg.mod.Class"
        )
    return str(section[TARGET])


def _maker(name: str, config: Mapping[str, Any], plan: RunnablePlan) -> tuple[Any, dict[str, Any]]:
    named_target = target_of(config, name)
    target = resolve(named_target, f"component {name!r}", COMPONENTS)
    if not callable(target):
        raise ConfigError(f"component {name!r}: {named_target} is not callable")
    options = {str(key): value for key, value in section_of(config, name).items() if key != TARGET}
    return target, _checked(name, target, {**options, **_places(name, target, plan)})


def _places(name: str, target: Any, plan: RunnablePlan) -> dict[str, Any]:
    """Where the component's resources start, for a component that asks."""
    if "places" not in _parameters(target):
        return {}
    return {"places": {one.name: one.at for one in plan.graph.resources.values() if one.placed and one.of == name}}


def _checked(name: str, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    parameters = _parameters(target)
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return options
    rest = list(parameters.values())[1:]  # the first one is `shared`
    known = [one.name for one in rest if one.kind is not inspect.Parameter.VAR_POSITIONAL]
    what = getattr(target, "__name__", repr(target))
    for option in options:
        if option not in known:
            offered = f" (there are: {', '.join(known)})" if known else ""
            raise ConfigError(f"{name}: {what} has no option {option!r}{did_you_mean(option, known)}{offered}")
    missing = [one for one in known if one not in options and parameters[one].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(f"{name}: {what} needs {', '.join(f'{name}.{one}' for one in missing)}")
    return options


def _parameters(target: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters
    except ValueError:
        return {}


def _is_module(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None
