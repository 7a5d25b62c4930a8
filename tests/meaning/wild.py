"""Wild graphs: random things, random phases, chains and rings of copies. Most are mended until they are legal."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .declared import Setup
from .mend import drop_unwritten, legal
from .schedules import gates, runs

CARRIED = ("weights", "weights", "weights", "state", "scratch")
Known = dict[str, Any]


@st.composite
def things(draw: st.DrawFn, places: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    count = draw(st.integers(2, 4))
    names = ("a", "b", "c", "d")[:count]
    return {name: draw(thing(places)) for name in names}


def thing(places: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    at = st.sampled_from(("device", "host", *places))
    owner = st.sampled_from(("left", "right"))
    return st.fixed_dictionaries({"kind": st.sampled_from(CARRIED), "of": owner, "at": at})


def some(names: list[str], most: int = 2) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=most, unique=True) if names else st.just([])


@st.composite
def moves(draw: st.DrawFn, names: list[str], places: tuple[str, ...], least: int = 1) -> dict[str, str]:
    chosen = draw(st.lists(st.sampled_from(names), min_size=least, max_size=3, unique=True))
    return {name: draw(st.sampled_from(("device", "device", "host", *places))) for name in chosen}


@st.composite
def needs(draw: st.DrawFn, names: list[str], places: tuple[str, ...]) -> dict[str, str]:
    wants = ("device", "device", "device", "!device", "host", "!none", *places[:1])
    return {name: draw(st.sampled_from(wants)) for name in draw(some(names))}


@st.composite
def copies(draw: st.DrawFn, full: list[str]) -> dict[str, str]:
    """One or two copies; within one phase nothing is both a source and a target."""
    pairs = draw(st.lists(st.tuples(st.sampled_from(full), st.sampled_from(full)), min_size=1, max_size=2))
    out: dict[str, str] = {}
    for target, source in pairs:
        if target != source and target not in out.values() and source not in out:
            out[target] = source
    return out


@st.composite
def handoff(draw: st.DrawFn, known: dict[str, Any], places: tuple[str, ...]) -> dict[str, Any]:
    names = list(known)
    full = carried(known)
    shape = draw(st.sampled_from(("moves", "moves", "copies", "both")))
    out: dict[str, Any] = {}
    if shape != "copies" or len(full) < 2:
        out["moves"] = draw(moves(names, places))
    if shape != "moves" and len(full) > 1:
        freed = {name for name, place in out.get("moves", {}).items() if place == "none"}
        out["copies"] = {t: s for t, s in draw(copies(full)).items() if not freed & {t, s}}
    if draw(st.integers(0, 3)) == 3:
        out["needs"] = draw(needs(names, places))
    return {**out, **({"whole": True} if draw(st.integers(0, 5)) == 5 else {})}


def carried(known: dict[str, Any]) -> list[str]:
    return [name for name, entry in known.items() if entry["kind"] != "scratch"]


@st.composite
def work(draw: st.DrawFn, known: dict[str, Any], places: tuple[str, ...]) -> dict[str, Any]:
    names, full = list(known), carried(known)
    pure = draw(st.integers(0, 4)) == 4
    outside = [] if pure else ["p", "out"]
    out: dict[str, Any] = {"needs": draw(needs(names, places)), "reads": draw(some([*names, "v", "w"], 3))}
    out["updates"] = [name for name in draw(some([*full, "v"], 1)) if name not in out["reads"]]
    out["writes"] = draw(some(["v", "w", *outside[1:], *full[:1]], 1))
    out["writes"] = [name for name in out["writes"] if name not in out["updates"] + out["reads"]]
    if not pure and draw(st.integers(0, 2)) == 2:
        out["updates"].append("p")
    if draw(st.integers(0, 4)) == 4:
        out["moves"] = draw(moves(names, places))
    if draw(st.integers(0, 6)) == 6 and len(full) > 1:
        freed = {name for name, place in out.get("moves", {}).items() if place == "none"}
        out["copies"] = {t: s for t, s in draw(copies(full)).items() if not freed & {t, s}}
    return {**out, **({"pure": True} if pure else {})}


@st.composite
def phases(draw: st.DrawFn, prefix: str, known: Known, places: tuple[str, ...], count: tuple[int, int]) -> Known:
    out: dict[str, Any] = {}
    for index in range(draw(st.integers(*count))):
        name = f"{prefix}{index}"
        phase = draw(st.one_of(handoff(known, places), work(known, places)))
        out[name] = {"use": f"left.{name}", **{word: value for word, value in phase.items() if value}}
    return out


@st.composite
def timed(draw: st.DrawFn, phase: Known, name: str, names: tuple[str, ...]) -> Known:
    """One phase in three has a gate, perhaps that of an earlier one; now and then one runs ahead, or is off."""
    before = names[: names.index(name)]
    when = draw(gates(before)) if draw(st.integers(0, 2)) == 2 else None
    ahead, off = draw(st.sampled_from([0] * 12 + [1, 1, 2])), draw(st.integers(0, 15)) == 15
    out = {**phase, **({"when": when} if when else {}), **({"ahead": ahead} if ahead else {})}
    return {**out, "enabled": False} if off and not phase.get("copies") else out


@st.composite
def wild(draw: st.DrawFn) -> Setup:
    """A wild graph; three in four are made legal."""
    places = ("host", "none", *(("disk",) if draw(st.integers(0, 3)) == 3 else ()))
    known = draw(things(places))
    step = draw(phases("x", known, places, (3, 7)))
    step = {name: draw(timed(phase, name, tuple(step))) for name, phase in step.items()}
    graph = {"name": "wild", "resources": {**known, "p": "stream", "out": "sink"}, "step": step}
    again = {name: None for name in draw(some(list(step), 1)) if step[name].get("enabled", True)}
    graph["start"] = {**draw(phases("s", known, places, (0, 2))), **again}
    graph["end"] = draw(phases("e", known, places, (0, 1)))
    graph["keep"] = draw(keeps(carried(known)))
    drop_unwritten(graph)
    setup = Setup({**graph, **({"places": ["disk"]} if "disk" in places else {})}, draw(rooms(known)), draw(runs(4)))
    return setup if draw(st.integers(0, 3)) == 3 else legal(setup, draw(st.integers(0, 6)))


def keeps(names: list[str]) -> st.SearchStrategy[dict[str, str]]:
    if not names:
        return st.just({})
    return st.dictionaries(st.sampled_from(names), st.sampled_from(("any", "any", "device", "host")), max_size=3)


@st.composite
def rooms(draw: st.DrawFn, known: dict[str, Any]) -> dict[str, Any]:
    owners = sorted({entry["of"] for entry in known.values()})
    pick = st.sampled_from([*known, *owners])
    both = {one: [other for other in owners if other != one] for one in owners}
    free = st.dictionaries(pick, st.lists(pick, min_size=1, max_size=2, unique=True), max_size=2)
    return {"makes_room": draw(st.one_of(st.just({}), st.just(both), free))}
