"""Plug-ins: what a target names, and what packages offer by entry points. Nothing is imported before it is named.

A target is ``pkg.mod.name``, ``pkg.mod:name``, ``./file.py:name``, or the name of an entry point. A plan wants only
what its ``@phase`` says, and reads that from the source where it can; a run imports it. A broken plug-in is an error
of whoever names it, and of nobody else.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from stepgraph.errors import ConfigError, MissingTarget, did_you_mean
from stepgraph.phases import declared
from stepgraph.source import located, parsed, words_in

PHASES, COMPONENTS, CONF, TRACKERS = (f"stepgraph.{name}" for name in ("phases", "components", "conf", "trackers"))
GROUPS = (PHASES, COMPONENTS, CONF, TRACKERS)
HEAVY = ("torch", "transformers", "ray", "vllm", "deepspeed", "jax", "tensorflow")
"""Packages that take seconds to import, which a plan should not cost."""

CURE = {
    PHASES: "write component.method, pkg.mod.name, ./file.py:name, or the name of an installed phase",
    COMPONENTS: "write pkg.mod.Class, ./file.py:Class, or the name of an installed component",
    TRACKERS: "write pkg.mod.Class, ./file.py:Class, or the name of an installed tracker",
}
CONTENTS = ("reads", "writes", "updates", "needs", "moves", "copies")
CHANGED = "__stepgraph_changed__"
_costs: dict[str, str] = {}
"""Module -> what importing it cost, where that was much."""


# ---- what a target names -------------------------------------------------------------------------------------------


def resolve(target: str, who: str, group: str = PHASES) -> Any:
    """Import what ``target`` names, or say in one line why that cannot be had."""
    place, name = whole(target, who, group)
    return attribute(place, name, target, who)


def whole(target: str, who: str, group: str = PHASES) -> tuple[str, str]:
    """The module or file of a target, and the name in it, where an entry point may stand for both."""
    if target.endswith((".py", ".py:")):
        raise ConfigError(f"{who}: {target!r} is a file and names nothing in it: write {target.rstrip(':')}:NAME")
    place, name = split(target)
    return (place, name) if place else split(entry_point(target, who, group).value)


def attribute(place: str, name: str, target: str, who: str) -> Any:
    """What a module, which is imported, calls by a name."""
    found: Any = module(place, target, who)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{who}: {place} has no {part!r}{did_you_mean(part, dir(found))} (from {target!r})")
        found = getattr(found, part)
    return found


def split(target: str) -> tuple[str, str]:
    """The module or file of a target, and the name in it.

    >>> split("pkg.mod.name"), split("./file.py:name"), split("name")
    (('pkg.mod', 'name'), ('./file.py', 'name'), ('', 'name'))
    """
    place, colon, name = target.rpartition(":")
    if not colon:
        place, _, name = target.rpartition(".")
    return place, name


def entry_point(name: str, who: str, group: str = PHASES) -> EntryPoint:
    """The entry point of that name; two packages that offer one name for two things are told apart by their targets."""
    points = entry_points(group=group)
    found = {point.value: point for point in points if point.name == name}
    if not found:
        hint = did_you_mean(name, points.names)
        raise MissingTarget(f"{who}: nothing is called {name!r}{hint}; {CURE.get(group, CURE[PHASES])}")
    if len(found) > 1:
        offered = " and ".join(f"{package_of(point)} ({value})" for value, point in found.items())
        raise ConfigError(f"{who}: {name!r} is offered by {offered}: write the target in the brackets")
    return next(iter(found.values()))


def package_of(point: EntryPoint) -> str:
    """The package and version that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def module(place: str, target: str, who: str) -> ModuleType:
    """Import a module by its dotted name, or from a file."""
    if place.endswith(".py"):
        return _file_module(place, target, who)
    try:
        return _timed(place, lambda: importlib.import_module(place))
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise MissingTarget(
                f"{who}: no module {error.name!r} for {target!r}; is it installed, or is a name wrong?"
            ) from None
        raise _broken(target, who, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(target, who, error) from error


def _file_module(place: str, target: str, who: str) -> ModuleType:
    path = Path(place)
    file, changed = _file(path, who), path.stat().st_mtime_ns
    name = f"stepgraph_file_{path.stem}_{blake2b(str(file).encode(), digest_size=6).hexdigest()}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, CHANGED, None) == changed:
        return known
    parsed(path, who)
    try:
        return _timed(place, lambda: _executed(name, file, changed))
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise _broken(target, who, error) from error


def _file(path: Path, who: str) -> Path:
    if not path.is_file():
        raise MissingTarget(f"{who}: no file {str(path)!r} (looked in {Path.cwd()})")
    return path.resolve()


def _executed(name: str, file: Path, changed: int) -> ModuleType:
    """Run a file as a module. Its folder is looked in last, so that it can import what lies beside it."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    loader = _Fresh(name, str(file))
    spec = ModuleSpec(name, loader, origin=str(file))
    spec.has_location = True
    made = module_from_spec(spec)
    setattr(made, CHANGED, changed)
    sys.modules[name] = made  # dataclasses and pickle look their module up while it is executed
    loader.exec_module(made)
    return made


class _Fresh(SourceFileLoader):
    """Reads the source each time: bytecode is taken for that of a file that was changed within a second, and written
    beside it, where a plan leaves nothing behind.
    """

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _broken(target: str, who: str, error: BaseException) -> ConfigError:
    said = " ".join(str(error).split())
    return ConfigError(f"{who}: {target!r} cannot be imported: {type(error).__name__}: {said}{_line(target, error)}")


def _line(target: str, error: BaseException) -> str:
    """Where in the target's own file an error comes from."""
    place, _ = split(target)
    if not place.endswith(".py"):
        return ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, place)]
    return f" ({place}, line {lines[-1]})" if lines else ""


def _same(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _timed(place: str, load: Callable[[], ModuleType]) -> ModuleType:
    """Import, and remember what it brought in that takes long."""
    before, began = _heavy(), time.perf_counter()
    made = load()
    brought = [name for name in _heavy() if name not in before]
    if brought:
        _costs[place] = f"{', '.join(brought)} ({time.perf_counter() - began:.1f} s)"
    return made


def _heavy() -> list[str]:
    return [name for name in HEAVY if name in sys.modules]


# ---- what a plan asks ----------------------------------------------------------------------------------------------


def words_of(target: str, who: str) -> tuple[dict[str, Any], str]:
    """What the ``@phase`` of a target says, and a warning where finding that out cost seconds."""
    place, name = whole(target, who)
    file = _file(Path(place), who) if place.endswith(".py") else located(place)
    words = words_in(file, name, who) if file else None
    if words is not None:
        return words, ""
    words = declared(attribute(place, name, target, who))
    cost = _costs.get(place)
    cure = "write its @phase in plain literals, or import that inside the function"
    return words, f"{who}: reading {target} for the plan imported {cost}: {cure}" if cost else ""


# ---- what is installed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point. ``error`` says why it cannot be used; ``says`` what its ``@phase`` declares."""

    group: str
    name: str
    target: str
    package: str
    says: str = ""
    error: str = ""


def plugins() -> list[Plugin]:
    """Every entry point of ours, imported to see whether it can be: one that cannot hides no other."""
    points = [(group, point) for group in GROUPS for point in entry_points(group=group)]
    found = {(group, point.name, point.value): _plugin(group, point) for group, point in points}
    return [found[key] for key in sorted(found)]


def _plugin(group: str, point: EntryPoint) -> Plugin:
    made = Plugin(group, point.name, point.value, package_of(point))
    try:
        found = module(point.value, point.value, point.name) if group == CONF else resolve(point.value, point.name)
    except ConfigError as error:
        said = str(error).removeprefix(f"{point.name}: ").removeprefix(f"{point.value!r} ")
        return Plugin(group, point.name, point.value, made.package, error=said)
    return Plugin(group, point.name, point.value, made.package, said_of(declared(found)))


def listed(words: Mapping[str, Any], word: str) -> list[str]:
    """The names under a word: of a list, of a mapping without what it takes out, or one alone."""
    value = words.get(word)
    if isinstance(value, Mapping):
        return [name for name, said in value.items() if said and isinstance(name, str)]
    if not isinstance(value, list | tuple | set):
        return [value] if isinstance(value, str) else []
    return [one for one in value if isinstance(one, str)]


def said_of(words: Mapping[str, Any]) -> str:
    """The contents that a phase declares, in a few words."""
    return "; ".join(f"{word} {', '.join(names)}" for word in CONTENTS if (names := listed(words, word)))
