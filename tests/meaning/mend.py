"""Make a drawn graph legal: strike out, or mend by a move, what offends the machine, one thing at a time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .declared import Setup, declared, world
from .machine import Violation, run

LISTS = ("reads", "updates", "writes")


def drop_unwritten(graph: dict[str, Any]) -> None:
    """A value that no phase writes is a slip of the pen, which is refused before anything is compiled."""
    listed = [phase for part in ("start", "step", "end") for phase in graph[part].values() if phase]
    written = {name for phase in listed for name in phase.get("writes", ())}
    for phase in listed:
        phase["reads"] = [name for name in phase.get("reads", ()) if name in {*graph["resources"], *written}]


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
    part = next(part for part in ("step", "start", "end") if wrong.phase in graph.get(part, {}))
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
