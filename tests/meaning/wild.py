"""Wild graphs: random things, random phases, chains and rings of copies. Most are mended until they are legal."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from .declared import Setup, declared, world
from .machine import Violation, run
from .schedules import gates, runs

CARRIED = ("weights", "weights", "weights", "state", "scratch")
Known = dict[str, Any]
LISTS = ("reads", "updates", "writes")


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
    out: dict[str, Any] = {"needs": draw(needs(names, places)), "reads": draw(some([*full, "v", "w"], 3))}
    out["updates"] = [name for name in draw(some(full, 1)) if name not in out["reads"]]
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
def wild(draw: st.DrawFn) -> Setup:
    """A wild graph; three in four are made legal."""
    places = ("host", "none", *(("disk",) if draw(st.integers(0, 3)) == 3 else ()))
    known = draw(things(places))
    step = draw(phases("x", known, places, (3, 7)))
    for name, phase in step.items():
        when, ahead = draw(gates()) if draw(st.integers(0, 2)) == 2 else None, draw(st.integers(0, 9)) == 9
        step[name] = {**phase, **({"when": when} if when else {}), **({"ahead": 1} if ahead else {})}
    graph = {"name": "wild", "resources": {**known, "p": "stream", "out": "sink"}, "step": step}
    graph["start"] = draw(phases("s", known, places, (0, 2)))
    graph["end"] = draw(phases("e", known, places, (0, 1)))
    graph["keep"] = draw(keeps(carried(known)))
    drop_unwritten(graph)
    setup = Setup({**graph, **({"places": ["disk"]} if "disk" in places else {})}, draw(rooms(known)), draw(runs(4)))
    return setup if draw(st.integers(0, 3)) == 3 else legal(setup, draw(st.integers(0, 6)))


def drop_unwritten(graph: Known) -> None:
    """A value that no phase writes is a slip of the pen, which is refused before anything is compiled."""
    listed = [phase for part in ("start", "step", "end") for phase in graph[part].values()]
    written = {name for phase in listed for name in phase.get("writes", ())}
    for phase in listed:
        phase["reads"] = [name for name in phase.get("reads", ()) if name in {*graph["resources"], *written}]


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


def legal(setup: Setup, budget: int = 0) -> Setup:
    """Mend what offends the machine, one thing at a time, until nothing does."""
    graph = deepcopy(dict(setup.graph))
    while True:
        now = Setup(graph, setup.placement, setup.run)
        try:
            run(world(now), declared(now))
        except Violation as wrong:
            budget = mend(graph, wrong, budget)
            drop_unwritten(graph)
            continue
        return now


def mend(graph: dict[str, Any], wrong: Violation, budget: int) -> int:
    """While the budget lasts, put a move before a phase that misses its place; then strike the need out."""
    if wrong.phase == "keep":
        del graph["keep"][wrong.resource]
        return budget
    part = next(part for part in ("start", "step", "end") if wrong.phase in graph.get(part, {}))
    phase = graph[part][wrong.phase]
    want = phase.get("needs", {}).get(wrong.resource, "!device")
    if wrong.what.startswith("needs") and budget and not phase.get("ahead"):
        place = {"!device": "host", "!none": "device"}.get(want, want)
        graph[part] = inserted(graph[part], wrong.phase, f"m{budget}", {"moves": {wrong.resource: place}})
        return budget - 1
    strike(phase, wrong)
    return budget


def inserted(phases: dict[str, Any], before: str, name: str, phase: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for other, given in phases.items():
        if other == before:
            out[name] = {"use": f"right.{name}", **phase}
        out[other] = given
    return out


def strike(phase: dict[str, Any], wrong: Violation) -> None:
    if wrong.what.startswith("needs"):
        on_device = [name for name, place in phase["needs"].items() if place == "device"]
        gone = [wrong.resource] if wrong.resource in phase["needs"] else on_device
        phase["needs"] = {name: place for name, place in phase["needs"].items() if name not in gone}
        return
    if wrong.what == "freed twice":
        del phase["moves"][wrong.resource]
        return
    for word in LISTS:
        phase[word] = [name for name in phase.get(word, ()) if name != wrong.resource]
    phase["copies"] = {t: s for t, s in phase.get("copies", {}).items() if wrong.resource not in (t, s)}
