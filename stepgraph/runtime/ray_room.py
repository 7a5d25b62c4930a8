"""Where the actors go: those that share a device share a bundle of a placement group, the others have their own.

The placement says who shares: whoever makes room for whom. Such actors take turns, so their bundle has what the
largest of them asks for, and each holds an equal part of it. Memory is nobody's turn: it adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.runtime.plans import owner

DEFAULT = "default"
"""The entry of ``actors`` for those that have none of their own."""
WORDS = ("num_cpus", "num_gpus", "memory", "resources", "runtime_env")
AMOUNTS = {"num_cpus": "CPU", "num_gpus": "GPU"}
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the actors of one device get together, and what each holds of it."""

    names: tuple[str, ...]
    whole: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        wants = ", ".join(f"{amount:g} {kind}" for kind, amount in self.whole.items()) or "nothing"
        return f"{'+'.join(self.names)}: {wants}"


def bundles(graph: Graph, names: Sequence[str], actors: Mapping[str, Mapping[str, Any]]) -> list[Bundle]:
    """The bundles of these actors, in the order of their first one."""
    return [_bundle(group, {name: wants(name, actors) for name in group}) for group in sharing(graph, names)]


def sharing(graph: Graph, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Who shares a device with whom: those that the placement lets make room for each other, directly or not."""
    groups = [{name} for name in names]
    for who, others in graph.placement.makes_room:
        together = {_component(graph, one) for one in (who, *others)}
        joined = [group for group in groups if group & together]
        groups = [group for group in groups if not group & together]
        groups += [set().union(*joined)] if joined else []
    ordered = [tuple(name for name in names if name in group) for group in groups]
    return sorted(ordered, key=lambda group: names.index(group[0]))


def options_of(name: str, actors: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the configuration says of an actor."""
    found = {**(actors.get(DEFAULT) or {}), **(actors.get(name) or {})}
    for word in found:
        if word not in WORDS:
            raise ConfigError(f"executor.actors.{name}: no option {word!r}{did_you_mean(word, WORDS)}")
    return found


def wants(name: str, actors: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The resources of an actor by Ray's names, without those it wants nothing of."""
    said = options_of(name, actors)
    amounts = {kind: said.get(word) or 0 for word, kind in AMOUNTS.items()} | {MEMORY: said.get(MEMORY) or 0}
    return {kind: float(amount) for kind, amount in {**amounts, **(said.get("resources") or {})}.items() if amount}


def check_names(actors: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse an entry of ``actors`` that cannot be anybody's."""
    known = (DEFAULT, *names)
    for name in actors:
        if name not in known:
            raise ConfigError(
                f"executor.actors.{name}: there is no such component{did_you_mean(name, known)} "
                f"(there are: {', '.join(known)})"
            )


def _bundle(group: tuple[str, ...], wanted: Mapping[str, Mapping[str, float]]) -> Bundle:
    kinds = dict.fromkeys(kind for one in wanted.values() for kind in one)
    whole = {kind: _together(kind, [one.get(kind, 0.0) for one in wanted.values()]) for kind in kinds}
    if len(group) > 1 and whole.get("GPU", 0) > 1:
        raise ConfigError(
            f"{' and '.join(group)} share a device, and an actor is one process: "
            f"their num_gpus in executor.actors is at most 1"
        )
    shares = {
        name: {
            kind: wanted[name].get(kind, 0.0) if kind == MEMORY else _part(whole[kind], len(group)) for kind in kinds
        }
        for name in group
    }
    return Bundle(group, whole, shares)


def _together(kind: str, amounts: Sequence[float]) -> float:
    return sum(amounts) if kind == MEMORY else max(amounts)


def _part(whole: float, count: int) -> float:
    """Rounded down to what Ray can count, so that the parts fit."""
    return floor(10_000 * whole / count) / 10_000


def _component(graph: Graph, name: str) -> str:
    return owner(graph, name) or name
