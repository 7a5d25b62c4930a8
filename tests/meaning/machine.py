"""The abstract machine: runs a list of calls one after another and says what observers see.

It is the meaning of a graph in its plainest form, so that the compiler can be judged without the compiler's code.
Contents are tokens: two things have equal contents exactly when their tokens are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

Call = Mapping[str, Any]
CARRIED = ("weights", "state")
PLACED = ("weights", "state", "scratch")


class Violation(Exception):
    """The first thing that goes wrong: in which phase and step, with which resource, and what."""

    def __init__(self, call: Call, resource: str, what: str) -> None:
        self.phase, self.step, self.resource, self.what = call["phase"], call.get("step"), resource, what
        super().__init__(f"{self.phase} in step {self.step}: {resource}: {what}")


@dataclass(frozen=True)
class World:
    """What is fixed before the first call: kinds, where things start, what has contents, what must be kept."""

    kinds: Mapping[str, str]
    places: Mapping[str, str]
    contents: Mapping[str, str]
    keep: Mapping[str, str] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        return self.kinds.get(name, "value")


@dataclass
class State:
    """Where everything is, and what it holds. A value is held by its name and the step it belongs to."""

    place: dict[str, str]
    token: dict[Any, str]

    def copy(self) -> State:
        return State(dict(self.place), dict(self.token))


@dataclass
class Seen:
    """What observers see. ``work``: what each work call found; ``together``: what shared the device at each moment."""

    work: dict[tuple[str, Any], tuple[tuple[str, str], ...]] = field(default_factory=dict)
    sinks: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    together: list[frozenset[str]] = field(default_factory=list)


def labelled(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Give each call its ``slot``: the step it works for, or ``start`` or ``end``, which both print no step."""
    out: list[dict[str, Any]] = []
    for call in calls:
        stepped = any(other["slot"] not in ("start", "end") for other in out)
        nowhere = "end" if stepped else "start"
        out.append({**call, "slot": nowhere if call.get("step") is None else call["step"]})
    return out


def begin(world: World) -> State:
    streams = {name: f"{name}@start" for name, kind in world.kinds.items() if kind == "stream"}
    return State(dict(world.places), {**world.contents, **streams})


def run(world: World, calls: Iterable[Call]) -> Seen:
    """Run labelled calls in the order given. Raises the first :class:`Violation`."""
    state, seen = begin(world), Seen()
    seen.together.append(on_device(state))
    for call in calls:
        advance(world, state, call, seen)
        seen.together.append(on_device(state))
    seen.kept = kept_at_end(world, state)
    return seen


def advance(world: World, state: State, call: Call, seen: Seen) -> None:
    """One call: what must hold at entry, then moves, then copies, then contents made or changed."""
    check_needs(state, call)
    found = check_contents(world, state, call)
    found += copied_by_work(world, state, call)
    move(world, state, call)
    copy(world, state, call)
    make(world, state, call, found, seen)
    if call["kind"] == "work":
        seen.work[call["phase"], call["slot"]] = found


def check_needs(state: State, call: Call) -> None:
    for name, want in call.get("needs", {}).items():
        if not holds(state.place[name], want):
            raise Violation(call, name, f"needs {want}, is at {state.place[name]}")


def holds(place: str, want: str) -> bool:
    return place != want[1:] if want.startswith("!") else place == want


def check_contents(world: World, state: State, call: Call) -> tuple[tuple[str, str], ...]:
    """The contents that a call finds at entry in what it reads and updates. Those of scratch never matter."""
    names = [*call.get("reads", ()), *call.get("updates", ())]
    for name in names:
        if state.place.get(name) == "none":
            raise Violation(call, name, "contents wanted of what is freed")
    return tuple((name, contents(world, state, call, name)) for name in names if world.kind(name) in WITH_CONTENTS)


WITH_CONTENTS = ("value", "stream", *CARRIED)


def contents(world: World, state: State, call: Call, name: str) -> str:
    token = state.token.get(key(world, call, name))
    if token is None:
        raise Violation(call, name, "nothing gave it contents, or they were lost")
    return token


def key(world: World, call: Call, name: str) -> Any:
    """A value belongs to the step it is made for; everything else there is once."""
    return (name, call["slot"]) if world.kind(name) == "value" else name


def copied_by_work(world: World, state: State, call: Call) -> tuple[tuple[str, str], ...]:
    """Work that copies finds the contents of its sources; a handoff finds nothing."""
    if call["kind"] != "work":
        return ()
    return tuple((source, contents(world, state, call, source)) for source in call.get("copies", {}).values())


def move(world: World, state: State, call: Call) -> None:
    """All moves at once. Going to ``none`` loses the contents; work may not free twice, a handoff may."""
    for name, place in call.get("moves", {}).items():
        if call["kind"] == "work" and place == "none" == state.place[name]:
            raise Violation(call, name, "freed twice")
        state.place[name] = place
        if place == "none":
            state.token.pop(name, None)


def copy(world: World, state: State, call: Call) -> None:
    """All copies at once: each target takes what its source held before any of them."""
    pairs = call.get("copies", {})
    for name in [*pairs.values(), *pairs]:
        if state.place[name] == "none":
            raise Violation(call, name, "copied while freed")
    state.token.update({target: contents(world, state, call, source) for target, source in pairs.items()})


def make(world: World, state: State, call: Call, found: tuple[tuple[str, str], ...], seen: Seen) -> None:
    """New contents are a function of the phase, the step and the contents found."""
    for name in [*call.get("updates", ()), *call.get("writes", ())]:
        token = fresh(call, name, found)
        if world.kind(name) == "sink":
            seen.sinks.setdefault(name, []).append(token)
            continue
        refuse_write(world, state, call, name)
        state.token[key(world, call, name)] = token


def refuse_write(world: World, state: State, call: Call, name: str) -> None:
    if state.place.get(name) == "none":
        raise Violation(call, name, "contents made in what is freed")
    if world.kind(name) == "value" and name in call.get("writes", ()) and key(world, call, name) in state.token:
        raise Violation(call, name, "a second writer in one step")


def fresh(call: Call, name: str, found: tuple[tuple[str, str], ...]) -> str:
    what = repr((call["phase"], call["slot"], name, found)).encode()
    return f"{name} by {call['phase']}@{call['slot']} {blake2b(what, digest_size=6).hexdigest()}"


def on_device(state: State) -> frozenset[str]:
    return frozenset(name for name, place in state.place.items() if place == "device")


def kept_at_end(world: World, state: State) -> dict[str, str]:
    return {name: kept(world, state, name, want) for name, want in world.keep.items()}


def kept(world: World, state: State, name: str, want: str) -> str:
    """What ``keep`` finds in one resource: its contents, where it wants them."""
    end = {"phase": "keep", "slot": "end"}
    if want != "any" and not holds(state.place[name], want):
        raise Violation(end, name, f"kept at {want}, is at {state.place[name]}")
    return contents(world, state, end, name) if world.kind(name) in WITH_CONTENTS else ""
