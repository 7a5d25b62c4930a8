"""A framework whose loops are graphs: from its own arguments to overrides, a plan, and calls in its own words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepgraph.adapters.arguments import ELSEWHERE, Arguments, read
from stepgraph.adapters.overrides import changed
from stepgraph.adapters.recorded import Words, recorded
from stepgraph.api import load
from stepgraph.compiler.compile import PASSES, compile
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Loop:
    """What the arguments mean for one graph, and those that it does not read."""

    meaning: Callable[[Arguments], Iterator[str]]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Framework:
    """``loops`` by the names of their graphs. ``unsupported`` are arguments that must have the value given there."""

    name: str
    loops: Mapping[str, Loop]
    unsupported: Mapping[str, Any]
    words: Words

    def overrides(self, config: Mapping[str, Any], loop: str) -> list[str]:
        """What the arguments change in a loop's graph, as ``stepgraph.load`` and the command line take it."""
        meaning = self.loop(loop).meaning
        return changed(loop, meaning(read(config, self.name, self.unsupported)))

    def ignored(self, config: Mapping[str, Any], loop: str) -> list[str]:
        """The given arguments that say nothing about the order of the loop's calls."""
        unread = (*ELSEWHERE, *self.unsupported, *self.loop(loop).ignored)
        read(config, self.name, self.unsupported)
        return [name for name in config if name in unread]

    def plan(self, loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> Plan:
        """The compiled loop."""
        return compile(load(loop, self.overrides(config, loop)), passes=passes)

    def calls(self, loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> list[dict[str, Any]]:
        """What the loop calls with these arguments, in the driver's own words; as written where ``passes=[]``."""
        return recorded(self.plan(loop, config, passes), self.words)

    def loop(self, name: str) -> Loop:
        """A loop by its name."""
        if name not in self.loops:
            known = ", ".join(self.loops)
            raise ConfigError(f"{self.name} has no loop '{name}'{did_you_mean(name, self.loops)} (known: {known})")
        return self.loops[name]
