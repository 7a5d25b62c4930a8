"""The recorded calls: for each loop, configurations in the framework's own arguments, and what its driver called."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from meaning.declared import Setup

from stepgraph.adapters import miles, slime
from stepgraph.api import apply, read_graph
from stepgraph.compiler.plan import Plan

FOLDER = Path(__file__).parents[1] / "vectors"
LOOPS = ("miles_sync", "miles_async", "slime_sync", "slime_async")
HANDOFFS = ("offload", "reload", "clear", "sync")
Call = Mapping[str, Any]


def of(loop: str) -> ModuleType:
    """The adapter of a loop."""
    return miles if loop in miles.LOOPS else slime


@lru_cache
def recordings(loop: str) -> list[dict[str, Any]]:
    with lzma.open(FOLDER / f"{loop}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def plan(loop: str, number: int, passes: tuple[str, ...] = ("dead", "settled")) -> Plan:
    found: Plan = of(loop).plan(loop, recordings(loop)[number]["config"], passes)
    return found


def translated(compiled: Plan, loop: str) -> list[dict[str, Any]]:
    from stepgraph.adapters.recorded import recorded

    return recorded(compiled, of(loop).WORDS)


def handoff(call: Call) -> bool:
    return str(call["phase"]).startswith(HANDOFFS)


def work(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for call in calls if not handoff(call)]


def dropped(fewer: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[int] | None:
    """The places in ``calls`` that ``fewer`` leaves out; ``None`` where it is no subsequence.

    A call that is still made may name fewer memory tags. Where equal calls follow each other the first is matched.
    """
    left = iter(fewer)
    want = next(left, None)
    out = []
    for place, call in enumerate(calls):
        if want is not None and same(want, call):
            want = next(left, None)
        else:
            out.append(place)
    return out if want is None else None


def same(smaller: Call, call: Call) -> bool:
    tags, of = set(smaller.get("tags", ())), set(call.get("tags", ()))
    return (
        {**smaller, "tags": 0} == {**call, "tags": 0}
        if not (tags or of)
        else bare(smaller) == bare(call) and tags <= of
    )


def bare(call: Call) -> dict[str, Any]:
    return {word: said for word, said in call.items() if word != "tags"}


def stale_evals(calls: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Evals of weights that the actor has left behind: the step, and how many updates behind."""
    trained = synced = 0
    for call in calls:
        trained += call["phase"] == "train_actor"
        synced = trained if call["phase"] == "sync_weights" else synced
        if call["phase"] == "eval" and synced != trained:
            yield call["step"], trained - synced


def setup(loop: str, overrides: list[str]) -> Setup:
    """What the compiler gets, as the abstract machine reads it."""
    sections: dict[str, Any] = {"graph": read_graph(loop)[0], "placement": {}, "run": {}}
    for override in overrides:
        apply(sections, override)
    return Setup(*(without_nulls(sections[name]) for name in ("graph", "placement", "run")))


def without_nulls(value: Any, key: str = "") -> Any:
    """An entry of null is one that is not there; but in a gate it is a trigger that never fires, and in ``start`` the
    step's phase."""
    if not isinstance(value, Mapping):
        return value
    keep = key in ("when", "start", "end")
    return {name: without_nulls(said, name) for name, said in value.items() if said is not None or keep}
