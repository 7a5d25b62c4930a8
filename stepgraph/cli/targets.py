"""Whether what a configuration names can be imported, without importing it: that could take torch its seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError
from stepgraph.registry import COMPONENTS

TARGET = "_target_"
OURS = "stepgraph.components."


def refuse_missing_packages(sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse the first component whose module, or what our own component needs, is not installed."""
    for name, section in sections.items():
        if TARGET in section:
            importable(name, str(section[TARGET]))


def importable(name: str, target: str) -> str:
    """Return ``target`` where it can be imported, as far as that shows without doing so."""
    place, colon, _ = target.rpartition(":")
    module = place if colon else target.rpartition(".")[0]
    if module.endswith(".py"):
        return _file(name, target, Path(module))
    if not module and any(point.name == target for point in metadata.entry_points(group=COMPONENTS)):
        return target
    if not module:
        raise ConfigError(f"{name}.{TARGET}={target} is no dotted path: write package.module.Class")
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        _find(name, target, ".".join(parts[:end]))
    _refuse_missing_extra(name, target)
    return target


def _file(name: str, target: str, path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"{name}.{TARGET}={target}: there is no file '{path}' in {Path.cwd()}")
    return target


def _find(name: str, target: str, module: str) -> None:
    try:
        found = util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{name}.{TARGET}={target}: {error}") from error
    if found is None:
        raise ConfigError(f"{name}.{TARGET}={target}: there is no module '{module}'; install it, or mend the name")


def _refuse_missing_extra(name: str, target: str) -> None:
    """Our components are there without what they need: that comes with the extra of the component's name."""
    if not target.startswith(OURS):
        return
    extra = target.removeprefix(OURS).partition(".")[0]
    missing = [package for package in required(extra) if util.find_spec(package.replace("-", "_")) is None]
    if missing:
        others = "".join(f", or 'stepgraph[{one}]' without a GPU" for one in on_cpu(extra))
        raise ConfigError(f"{name} needs {', '.join(missing)}: pip install 'stepgraph[{extra}]'{others}")


def on_cpu(extra: str) -> list[str]:
    """The extra of ours that brings the same packages for a machine without a GPU, where there is one."""
    return [one for one in (f"{extra}-cpu",) if required(one)]


def required(extra: str) -> list[str]:
    """The packages that an extra of ours asks for, from our own metadata; none where stepgraph is not installed."""
    try:
        requirements = metadata.requires("stepgraph") or []
    except metadata.PackageNotFoundError:
        return []
    marked = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    return [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requirements if marked.search(one)]
