"""Loading a graph from Python, with the command line's own words for what is to be different."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.paths import folders, graph_file, shown
from stepgraph.spec import parse

SECTIONS = ("graph", "placement", "run", "max_staleness")


def load(graph: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Graph:
    """Read a graph: by name (``./graphs``, ``$STEPGRAPH_PATH``, plug-ins, the packaged ones), by path, or as a mapping.

    ``overrides`` are what the command line takes: ``placement=NAME``, ``graph.KEY=VALUE``, ``placement.KEY=VALUE``,
    ``run.KEY=VALUE``, ``max_staleness=N``, ``~graph.KEY``. Nothing else has a meaning for a graph, and is refused.

    >>> load("grpo", ["placement=split", "run.steps=3"]).run.steps
    3
    """
    content, source = read_graph(graph)
    sections: dict[str, Any] = {"graph": content, "placement": {}, "run": {}, "max_staleness": None}
    for override in sorted(overrides, key=lambda word: not word.lstrip("+").startswith("placement=")):
        apply(sections, override)
    return parse(
        sections["graph"],
        sections["placement"],
        sections["run"],
        max_staleness=sections["max_staleness"],
        source=source,
    )


def read_graph(graph: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The content of a graph and where it is from."""
    if isinstance(graph, Mapping):
        return copied(graph), ""
    path = Path(graph)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ConfigError(f"there is no graph file '{path}': give a path that exists, or a graph's name")
    else:
        found = graph_file(str(graph))
        if found is None:
            known = names("graphs")
            raise ConfigError(
                f"there is no graph '{graph}'{did_you_mean(str(graph), known)} (known: {', '.join(known)})"
            )
        path = found
    return extended(copied(read_yaml(path)), path.resolve()), shown(path.resolve())


def extended(content: dict[str, Any], path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A graph with what it ``extends``: its own words go over those, and ``null`` takes a phase of the step out.

    A graph that extends its own name means the one that it shadows.
    """
    if "defaults" in content:
        raise ConfigError(f"{shown(path)} has a defaults list, which only the command line reads: write extends: NAME")
    name = content.pop("extends", None)
    if name is None:
        return content
    found = graph_file(str(name), under=path)
    if found is None:
        hint = did_you_mean(str(name), names("graphs")) or f" (known: {', '.join(names('graphs'))})"
        raise ConfigError(f"{shown(path)} extends '{name}', and there is no such graph{hint}")
    if found in (path, *below):
        circle = " -> ".join(one.stem for one in (*below, path, found))
        raise ConfigError(f"{shown(path)} extends itself: {circle}")
    return over(extended(copied(read_yaml(found)), found, (*below, path)), content)


def over(base: dict[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """One graph's words over another's."""
    found = merged(base, content)
    step, given = base.get("step") or {}, content.get("step") or {}
    gone = {name for name, spec in given.items() if spec is None and name in step}
    if gone:
        found["step"] = {name: spec for name, spec in found["step"].items() if name not in gone}
    return found


def names(folder: str) -> list[str]:
    """The names of the YAML files in a kind of folder, the user's and the packaged."""
    return sorted({path.stem for place in folders(folder) for path in place.glob("*.yaml")})


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML file, read once as long as the file does not change."""
    return _read_yaml(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read_yaml(path: Path, _changed: int) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path} holds no mapping: a graph is name, resources, keep, start, step, end")
    return content


def copied(value: Any) -> Any:
    """A copy with no mapping or list shared, so that an override changes this graph alone."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def apply(sections: dict[str, Any], override: str) -> None:
    """Change the sections as one override says."""
    if override.startswith("~"):
        return remove(sections, override[1:].partition("=")[0].split("."), override)
    key, equals, text = override.lstrip("+").partition("=")
    if not equals:
        raise ConfigError(f"'{override}' is no override: write key=value, or ~key to take one out")
    if key == "placement":
        sections["placement"] = read_placement(text)
        return None
    head, *rest = key.split(".")
    if head in SECTIONS and not rest and head != "max_staleness":
        raise ConfigError(f"'{override}' says nothing of a key: write {head}.KEY=VALUE")
    if head not in SECTIONS:
        raise ConfigError(
            f"'{key}' has no meaning for a graph{did_you_mean(head, SECTIONS)} (known: {', '.join(SECTIONS)})"
        )
    return put(sections, [head, *rest], value_of(override, text))


def value_of(override: str, text: str) -> Any:
    """The value of an override, read as YAML."""
    try:
        return yaml.safe_load(text) if text else None
    except yaml.YAMLError as error:
        raise ConfigError(f"'{override}' is no override: {' '.join(str(error).split())}") from None


def read_placement(name: str) -> dict[str, Any]:
    """A placement by its name."""
    for folder in folders("conf"):
        path = folder / "placement" / f"{name}.yaml"
        if path.is_file():
            return {"name": name, **copied(read_yaml(path))}
    known = sorted({path.stem for folder in folders("conf") for path in (folder / "placement").glob("*.yaml")})
    raise ConfigError(f"there is no placement '{name}'{did_you_mean(name, known)} (known: {', '.join(known)})")


def put(node: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value in nested mappings; a mapping is merged into one that is there, as Hydra does."""
    for key in path[:-1]:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    old = node.get(path[-1])
    node[path[-1]] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for key, value in new.items():
        put(found, [key], value)
    return found


def remove(sections: dict[str, Any], path: Iterable[str], override: str) -> None:
    """Take a key out; one that is not there is refused."""
    node: Any = sections
    *parents, last = path
    if not parents:
        raise ConfigError(f"'{override}' takes a whole section out: name a key in it, ~{last}.KEY")
    for key in parents:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        known = node if isinstance(node, dict) else ()
        raise ConfigError(f"'{override}': there is no such key to take out{did_you_mean(last, known)}")
    del node[last]
