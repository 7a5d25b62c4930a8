"""The compiler's side: compile a configuration, and look at the result as calls and as what waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import yaml

from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.compiler import compile as compile_graph
from stepgraph.ir.plan import CompiledStep

from .declared import WORDS, Setup, room
from .least import needs_now
from .machine import Call, Seen

ROOT = Path(__file__).parents[2]
SHARED: dict[str, dict[str, Any]] = {
    "colocated": {"makes_room": {"trainer": ["engine"], "engine": ["trainer"]}},
    "split": {"makes_room": {}, "at": {"policy": "device", "engine": "device", "kv": "device"}},
    "kv_only": {"makes_room": {"trainer": ["engine"], "kv": ["trainer"]}},
}


@lru_cache
def shipped(name: str) -> dict[str, Any]:
    graph: dict[str, Any] = yaml.safe_load((ROOT / "graphs" / f"{name}.yaml").read_text())
    return graph


def ways(graph: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The placements of any graph with a trainer and an engine, whatever its resources are called."""
    placed = {name: entry for name, entry in graph["resources"].items() if not isinstance(entry, str)}
    works_there = [name for name, entry in placed.items() if (entry["kind"], entry["of"]) != ("scratch", "trainer")]
    caches = [name for name, entry in placed.items() if entry["kind"] == "scratch" and entry["of"] == "engine"]
    return {
        "colocated": SHARED["colocated"],
        "split": {"makes_room": {}, "at": dict.fromkeys(works_there, "device")},
        "kv_only": {"makes_room": {"trainer": ["engine"], **{name: ["trainer"] for name in caches}}},
    }


def plan(setup: Setup, passes: Sequence[str] = ("dead", "settled")) -> Plan:
    """Compile a configuration. Raises ``GraphError`` where it is refused."""
    graph = spec.parse(dict(setup.graph), dict(setup.placement), dict(setup.run))
    return compile_graph(graph, passes=tuple(passes))


def known(calls: Sequence[Call], listed: Sequence[Call]) -> list[dict[str, Any]]:
    """The compiler's calls with what only the declared list tells: own needs, who asked for the others, purity."""
    left = iter(listed)
    out = []
    for one in calls:
        given = next(other for other in left if (other["phase"], other["step"]) == (one["phase"], one["step"]))
        out.append({**one, **{word: given[word] for word in ("slot", "own", "room", "pure")}})
    return out


def faithful(mine: Sequence[Call], listed: Sequence[Call]) -> None:
    """The compiler took handoff parts and pure work away, and did nothing else: no call is new, moved or altered."""
    left = iter(listed)
    for one in mine:
        given = next(other for other in left if must_stay(one, other))
        unaltered(one, given)
    rest = [one["phase"] for one in left if one["kind"] == "work" and not one["pure"]]
    assert not rest, f"work that is due is missing: {rest}"


def must_stay(one: Call, other: Call) -> bool:
    """Whether these are the same call. Work that is passed over on the way was lost, unless it is pure."""
    found = (one["phase"], one["slot"]) == (other["phase"], other["slot"])
    assert found or other["kind"] == "handoff" or other["pure"], f"lost or moved: {other['phase']} in {other['slot']}"
    return found


def unaltered(one: Call, given: Call) -> None:
    for word in WORDS:
        mine, theirs = one.get(word) or {}, given.get(word) or {}
        if word in ("moves", "copies") and given["kind"] == "handoff":
            assert mine.items() <= theirs.items()
            assert not given.get("whole") or mine == theirs
        elif word == "needs" and given["kind"] == "handoff":
            assert mine == needs_now(given, one.get("moves", {})), f"needs of {one['phase']} in {one['slot']}"
        else:
            assert sorted(mine) == sorted(theirs) if isinstance(mine, list) else mine == theirs, (one["phase"], word)


def apart(setup: Setup) -> set[frozenset[str]]:
    """Pairs that leave the device for each other."""
    pairs = set(room(setup))
    return {frozenset(pair) for pair in pairs if pair[::-1] in pairs and pair[0] != pair[1]}


def fits(setup: Setup, theirs: Seen) -> Callable[[frozenset[str]], bool]:
    """What the placement wants apart shares the device only where the declared list has all of it there at once."""
    pairs, shared = apart(setup), set(theirs.together)
    return lambda here: all(any(group <= there for there in shared) for group in groups(here, pairs))


def groups(here: frozenset[str], pairs: set[frozenset[str]]) -> Iterator[frozenset[str]]:
    for size in range(2, len(here) + 1):
        for group in combinations(sorted(here), size):
            if all(frozenset(pair) in pairs for pair in combinations(group, 2)):
                yield frozenset(group)


Node = tuple[int, int]


def stages(compiled: Plan) -> list[CompiledStep]:
    return [compiled.start, *(compiled.step(k) for k in range(compiled.first, compiled.steps)), compiled.end]


def as_call(stage: int, last: int, one: Any) -> dict[str, Any]:
    nowhere = "start" if stage < last else "end"
    words = {word: getattr(one, word) for word in ("reads", "writes", "updates", "needs", "moves", "copies")}
    slot = nowhere if one.for_step is None else one.for_step
    return {"step": one.for_step, "phase": one.name, "kind": one.kind, "slot": slot, "whole": one.phase.whole, **words}


def nodes(compiled: Plan) -> dict[Node, dict[str, Any]]:
    """Every call of the run by the stage it runs in and its place there."""
    every = stages(compiled)
    last = len(every) - 1
    return {(s, i): as_call(s, last, one) for s, stage in enumerate(every) for i, one in enumerate(stage.phases)}


def waits(compiled: Plan) -> dict[Node, set[Node]]:
    """What each call waits for: ``x`` is the latest run of x in its own stage, ``x@previous`` the latest before that.

    Only what runs ahead of the first step has two runs of one name in a stage; the one listed before is meant then.
    """
    out: dict[Node, set[Node]] = {}
    latest: dict[str, Node] = {}
    for s, stage in enumerate(stages(compiled)):
        here: dict[str, Node] = {}
        for i, one in enumerate(stage.phases):
            out[s, i] = {node for word in one.after for node in meant(word, here, latest)}
            here[one.name] = (s, i)
        latest.update(here)
    return out


def meant(word: str, here: dict[str, Node], latest: dict[str, Node]) -> set[Node]:
    name, _, before = word.partition("@")
    if before:
        return {latest[name]} if name in latest else set()
    return {here[name]}


def legal_orders(compiled: Plan, random: Random, count: int = 3) -> Iterator[list[dict[str, Any]]]:
    """Orders in which one process could run the calls: the one that puts late calls first, and some by chance."""
    calls, before = nodes(compiled), waits(compiled)
    yield [calls[node] for node in sort(before, max)]
    for _ in range(count):
        yield [calls[node] for node in sort(before, lambda ready: random.choice(sorted(ready)))]


def sort(before: dict[Node, set[Node]], pick: Any) -> list[Node]:
    done: list[Node] = []
    left = dict(before)
    while left:
        ready = [node for node, wanted in left.items() if wanted.isdisjoint(left)]
        assert ready, "calls wait for each other in a ring"
        done.append(pick(ready))
        del left[done[-1]]
    return done
