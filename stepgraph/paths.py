"""Where configuration and graphs are: the packaged ones, and the user's, which come first.

``conf/`` and ``graphs/`` stand at the top of a checkout and inside the package in a wheel; nobody else has to know.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata, util
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ENTRY_POINTS = "stepgraph.conf"
ENVIRONMENT = "STEPGRAPH_PATH"


def home() -> Path:
    """The folder that holds the packaged ``conf/`` and ``graphs/``."""
    return PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent


def projects() -> list[Path]:
    """Folders whose ``conf/`` and ``graphs/`` are searched, first wins: here, environment, plug-ins, the packaged."""
    named = (Path(entry) for entry in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if entry)
    found = [Path.cwd(), *named, *_plugins(), home()]
    return list(dict.fromkeys(folder.resolve() for folder in found))


def folders(name: str) -> list[Path]:
    """The existing folders called ``name`` (``conf`` or ``graphs``), first wins."""
    return [folder / name for folder in projects() if (folder / name).is_dir()]


def graph_file(name: str, under: Path | None = None) -> Path | None:
    """The YAML file of the graph called ``name``; with ``under``, the one that this file shadows."""
    found = [path for folder in folders("graphs") if (path := folder / f"{name}.yaml").is_file()]
    if under in found:
        found = found[found.index(under) + 1 :]
    return found[0] if found else None


def shown(path: Path) -> str:
    """``path`` as people read it: relative to where they are, or to the packaged folder."""
    for base in (Path.cwd(), home()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


@cache
def _plugins() -> tuple[Path, ...]:
    """The folder of each package named by an entry point, found without importing the package itself."""
    specs = [util.find_spec(entry.value) for entry in metadata.entry_points(group=ENTRY_POINTS)]
    return tuple(Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ())
