"""Where the actors go: those that share a device share a bundle of a placement group, the others have their own.

The placement says who shares: whoever makes room for whom. Such actors take turns, so their bundle has what the
largest of them asks for, and each holds an equal part of it. Memory is nobody's turn: it adds up. A component of
several actors is on several devices: the first of each of those that share are together, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import floor
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.runtime.plans import owner

DEFAULT = "default"
"""The entry of ``actors`` for those that have none of their own."""
COUNT = "count"
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
    """The bundles of the actors of these components, in the order of their first one."""
    return [bundle for group in sharing(graph, names) for bundle in _of_each_rank(group, actors)]


def labels(name: str, actors: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The names of a component's actors: its own, or one a rank."""
    count = count_of(name, actors)
    return [name] if count == 1 else [f"{name}/{rank}" for rank in range(count)]


def count_of(name: str, actors: Mapping[str, Mapping[str, Any]]) -> int:
    """How many actors a component is. They are never what one has by default: few components can be several."""
    count = (actors.get(name) or {}).get(COUNT, 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"executor.actors.{name}.{COUNT}={count}: give a whole number from 1")
    return count


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
    usual, own = actors.get(DEFAULT) or {}, actors.get(name) or {}
    _check_words(DEFAULT, usual, WORDS)
    _check_words(name, own, (COUNT, *WORDS))
    return {word: value for word, value in {**usual, **own}.items() if word != COUNT}


def wants(name: str, actors: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The resources of an actor by Ray's names, without those it wants nothing of."""
    said = options_of(name, actors)
    amounts = {kind: said.get(word) or 0 for word, kind in AMOUNTS.items()} | {MEMORY: said.get(MEMORY) or 0}
    return {kind: float(amount) for kind, amount in {**amounts, **(said.get("resources") or {})}.items() if amount}


def check_names(actors: Mapping[str, Any], names: Iterable[str], functions: Sequence[str] = ()) -> None:
    """Refuse an entry of ``actors`` that cannot be anybody's: neither a component's nor a phase's that is none's."""
    known = (DEFAULT, *names)
    for name in actors:
        if name not in known and name not in functions:
            phases = f"; phases that are functions: {', '.join(functions)}" if functions else ""
            raise ConfigError(
                f"executor.actors.{name}: there is no such component{did_you_mean(name, (*known, *functions))} "
                f"(there are: {', '.join(known)}{phases})"
            )


def _check_words(name: str, said: Mapping[str, Any], known: Sequence[str]) -> None:
    for word in said:
        if word not in known:
            raise ConfigError(f"executor.actors.{name}: no option {word!r}{did_you_mean(word, known)}")


def _of_each_rank(group: tuple[str, ...], actors: Mapping[str, Mapping[str, Any]]) -> list[Bundle]:
    wanted = {name: wants(name, actors) for name in group}
    ranks = zip_longest(*([(label, wanted[name]) for label in labels(name, actors)] for name in group))
    return [_bundle(dict(one for one in rank if one)) for rank in ranks]


def _bundle(wanted: Mapping[str, Mapping[str, float]]) -> Bundle:
    group = tuple(wanted)
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
