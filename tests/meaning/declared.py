"""From a configuration to the list of calls that it declares, read straight from the words of the language.

The compiler has its own way there. This one is slow and literal, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .machine import CARRIED, PLACED, State, World, begin, holds, move

Config = Mapping[str, Any]
WORDS = ("reads", "writes", "updates", "needs", "moves", "copies", "whole")


@dataclass(frozen=True)
class Setup:
    """What ``spec.parse`` gets: the graph, the placement and the run."""

    graph: Config
    placement: Config
    run: Config

    @property
    def first(self) -> int:
        return int(self.run.get("first", 0))

    @property
    def steps(self) -> int:
        """The step after the last: the cap, or the end of the last epoch where that comes first."""
        ends = [self.run["steps"]] if self.run.get("steps") is not None else []
        if self.run.get("epochs") is not None:
            ends.append(self.run["epochs"] * self.run["steps_per_epoch"])
        return int(min(ends))

    @property
    def complete(self) -> bool:
        """A run resumed after its last step: there is nothing to do, not even ``start``, and nothing is kept."""
        return self.first > 0 and self.first >= self.steps


def resources(setup: Setup) -> dict[str, dict[str, Any]]:
    """Each declared resource with its kind, component and first place; the placement's ``at`` overrides the graph's."""
    out: dict[str, dict[str, Any]] = {}
    for name, given in setup.graph.get("resources", {}).items():
        entry = {"kind": given} if isinstance(given, str) else dict(given or {})
        at = setup.placement.get("at", {}).get(name, entry.get("at", "host"))
        out[name] = {"kind": entry.get("kind", "value"), "of": entry.get("of", ""), "at": at}
    return out


def world(setup: Setup) -> World:
    """Where things start. At ``none``, or as a target of copies, they start without contents."""
    known = resources(setup)
    placed = {name: entry["at"] for name, entry in known.items() if entry["kind"] in PLACED}
    full = [name for name, entry in known.items() if entry["kind"] in CARRIED and entry["at"] != "none"]
    targets = {target for phase in every_phase(setup) for target in phase.get("copies", {})}
    contents = {name: f"{name}@start" for name in full if name not in targets}
    keep = {} if setup.complete else setup.graph.get("keep", {})
    return World({name: entry["kind"] for name, entry in known.items()}, placed, contents, keep)


def every_phase(setup: Setup) -> list[dict[str, Any]]:
    graph = setup.graph
    return [dict(phase or {}) for part in ("start", "step", "end") for phase in (graph.get(part) or {}).values()]


def section(setup: Setup, part: str) -> dict[str, dict[str, Any]]:
    """The phases of ``start`` or ``end``: an entry named like one of the step's is that one, without its gate."""
    step, out = setup.graph.get("step", {}), {}
    for name, given in (setup.graph.get(part) or {}).items():
        inherited = {word: value for word, value in step.get(name, {}).items() if word not in ("when", "ahead")}
        out[name] = {**inherited, **(given or {})}
    return {name: phase for name, phase in out.items() if phase.get("enabled", True)}


def due(setup: Setup, name: str, step: int) -> bool:
    """Whether a phase of the step is due in one step: any named trigger fires it, inside its window."""
    phase = setup.graph["step"][name]
    when = phase.get("when") or {}
    if not phase.get("enabled", True) or step < (when.get("from") or 0):
        return False
    if when.get("until") is not None and step >= when["until"]:
        return False
    fired = [fires(setup, word, given, step) for word, given in when.items() if word not in ("from", "until")]
    return any(fired) if fired else True


def fires(setup: Setup, word: str, given: Any, step: int) -> bool:
    if given is None or given is False:
        return False
    if word == "with":
        return due(setup, given, step)
    return {
        "every": word == "every" and (step + 1) % given == 0,
        "steps": word == "steps" and step in given,
        "first": step == setup.first,
        "last": step == setup.steps - 1,
        "epoch_end": word == "epoch_end" and (step + 1) % setup.run["steps_per_epoch"] == 0,
    }[word]


def call(name: str, phase: Config, step: int | None, slot: int | str) -> dict[str, Any]:
    """One call as the plan prints it, with its ``slot`` and ``own``: what the graph itself needs."""
    words = {word: phase[word] for word in WORDS if phase.get(word)}
    only = not any(word in words for word in ("reads", "writes", "updates"))
    handoff = only and ("moves" in words or "copies" in words)
    kind = "handoff" if handoff else "work"
    rest = {"own": dict(phase.get("needs", {})), "pure": bool(phase.get("pure")), "use": phase.get("use", "")}
    return {"step": step, "slot": slot, "phase": name, "kind": kind, **words, **rest}


def expand(setup: Setup) -> Iterator[dict[str, Any]]:
    """``start``, what runs ahead of the first step, the steps top to bottom, ``end``; without the placement's needs."""
    if setup.complete:
        return
    yield from (call(name, phase, None, "start") for name, phase in section(setup, "start").items())
    phases = setup.graph.get("step", {})
    deepest = max((phase.get("ahead", 0) for phase in phases.values()), default=0)
    for step in range(setup.first - deepest, setup.steps):
        for name, phase in phases.items():
            works_for = step + phase.get("ahead", 0)
            if setup.first <= works_for < setup.steps and due(setup, name, works_for):
                yield call(name, phase, works_for, works_for)
    yield from (call(name, phase, None, "end") for name, phase in section(setup, "end").items())


def room(setup: Setup) -> list[tuple[str, str]]:
    """Pairs (x, y): x leaves the device for y. A name means a component first, else one resource."""
    known = resources(setup)

    def members(name: str) -> list[str]:
        own = [thing for thing, entry in known.items() if entry["of"] == name and entry["kind"] in PLACED]
        return own or [name]

    wanted = (setup.placement.get("makes_room") or {}).items()
    return [(x, y) for left, rights in wanted for right in rights for x in members(left) for y in members(right)]


def asked(one: Config, pairs: list[tuple[str, str]], state: State) -> dict[str, list[str]]:
    """What must be off the device for one call, and for whom. A phase's own needs win.

    Work asks for what it needs on the device. What work only puts there, and what a handoff needs or puts there, asks
    where the declared list meets it.
    """
    needed = {name for name, place in one["own"].items() if place == "device"}
    put = {name for name, place in one.get("moves", {}).items() if place == "device"}
    always = needed if one["kind"] == "work" else set()
    out: dict[str, list[str]] = {}
    for x, y in pairs:
        asks = y in always or (y in needed | put and holds(state.place[x], "!device"))
        if asks and x != y and x not in one["own"]:
            out.setdefault(x, []).append(y)
    return out


def declared(setup: Setup) -> list[dict[str, Any]]:
    """The declared list with the placement's needs: each call's ``room`` says who asked for which of them."""
    here, pairs, out = world(setup), room(setup), []
    state = begin(here)
    for one in expand(setup):
        asks = asked(one, pairs, state)
        needs = {**one["own"], **dict.fromkeys(asks, "!device")}
        out.append({**one, "room": asks, **({"needs": needs} if needs else {})})
        go(here, state, one)
    return out


def go(here: World, state: State, one: Config) -> None:
    """Only places matter here; whether the list is legal is for the machine to say."""
    move(here, state, {**one, "kind": "handoff"})


def printed(one: Config) -> dict[str, Any]:
    """A call as the plan prints it: its own words and the needs, nothing empty; order within lists is free."""
    out = {word: one[word] for word in ("step", "phase", "kind", "use", *WORDS) if one.get(word) or word == "step"}
    return {word: sorted(value) if isinstance(value, (list, tuple)) else value for word, value in out.items()}
