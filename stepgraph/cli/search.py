"""Where Hydra looks: user folders ahead of the packaged ones, and every ``graphs/`` folder as the group ``graph``.

A tracker that a package offers is a choice of its group under that name, after any file of that name. All of this is
registered in this process only: an installed stepgraph changes nobody else's Hydra application.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from stepgraph.api import extended
from stepgraph.paths import folders, home
from stepgraph.registry import TRACKERS

GROUP = "graph"
EXTENDS = "extends"
LISTS = ("start", "end")


class GraphSource(ConfigSource):
    """A folder of graph files that Hydra sees as the config group ``graph``; the files need no ``@package`` line."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self.files = FileConfigSource(provider, self.path)

    @staticmethod
    def scheme() -> str:
        return "graphs"

    def load_config(self, config_path: str) -> ConfigResult:
        found = self.files.load_config(_inside(config_path))
        if not isinstance(found.config, DictConfig):
            return found
        if EXTENDS in found.config:
            file = Path(self.path).resolve() / f"{_inside(config_path).removesuffix('.yaml')}.yaml"
            content = OmegaConf.to_container(found.config, resolve=False)
            found = replace(found, config=OmegaConf.create(extended(cast(dict[str, Any], content), file)))
        _fill_empty_entries(cast(DictConfig, found.config))
        return found

    def available(self) -> bool:
        return self.files.available()

    def is_group(self, config_path: str) -> bool:
        return not config_path or (_is_ours(config_path) and self.files.is_group(_inside(config_path)))

    def is_config(self, config_path: str) -> bool:
        return _is_ours(config_path) and self.files.is_config(_inside(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if not config_path:
            return [GROUP] if results_filter is not ObjectType.CONFIG else []
        return self.files.list(_inside(config_path), results_filter)


class UserFolders(SearchPathPlugin):
    """Puts the user's folders before the packaged ones, which Hydra calls ``main``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        main = SearchPathQuery(provider="main")
        for folder in folders("conf"):
            if folder != packaged():
                search_path.prepend("user", f"file://{folder}", anchor=main)
        for folder in folders("graphs"):
            search_path.append("graphs", f"graphs://{folder}")


def packaged() -> Path:
    """The folder of the packaged configuration."""
    return home() / "conf"


def register() -> None:
    """Make them known to the Hydra of this process."""
    plugins = Plugins.instance()
    plugins.register(GraphSource)
    plugins.register(UserFolders)
    for name in entry_points(group=TRACKERS).names:
        ConfigStore.instance().store(name, {"_target_": name}, group="tracker")


def _is_ours(config_path: str) -> bool:
    return config_path == GROUP or config_path.startswith(f"{GROUP}/")


def _inside(config_path: str) -> str:
    return config_path[len(GROUP) + 1 :]


def _fill_empty_entries(graph: DictConfig) -> None:
    """Write an empty entry as ``{}``: it means the same, and Hydra's ``~graph.start.NAME`` cannot delete a null."""
    for name in LISTS:
        phases = OmegaConf.select(graph, name)
        for phase in phases if isinstance(phases, DictConfig) else ():
            if phases[phase] is None:
                phases[phase] = {}
