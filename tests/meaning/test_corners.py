"""Corners where a plan once went wrong, each on the smallest graph that shows it."""

from __future__ import annotations

from random import Random
from typing import Any

from . import against
from .declared import Setup, declared, world
from .least import removable
from .machine import run
from .test_meaning import agree

ROOM = {"makes_room": {"left": ["right"], "right": ["left"]}}


def setup(things: dict[str, Any], step: dict[str, Any], placement: Any = None, steps: int = 2, **more: Any) -> Setup:
    named = {name: {"use": f"some.{name}", **phase} for name, phase in step.items()}
    graph = {"name": "corner", "resources": things, "step": named, **more}
    return Setup(graph, placement or {}, {"steps": steps})


def left(one: Setup) -> list[dict[str, Any]]:
    return against.known(against.plan(one).calls(), declared(one))


def holds(one: Setup) -> None:
    """Sound in the order of the list and in every other legal one, and nothing more can go."""
    theirs = run(world(one), declared(one))
    for passes in (("dead", "settled"), ()):
        for calls in against.legal_orders(against.plan(one, passes), Random(0)):
            agree(one, run(world(one), calls), theirs)
    assert removable(world(one), left(one), theirs, against.fits(one, theirs)) == []


def weights(of: str = "", at: str = "host") -> dict[str, str]:
    return {"kind": "weights", "of": of, "at": at}


def test_what_work_frees_comes_back_before_it_is_freed_again() -> None:
    one = setup({"b": weights()}, {"free": {"writes": ["v"], "moves": {"b": "none"}}, "back": {"moves": {"b": "host"}}})
    holds(one)
    assert [call["phase"] for call in left(one)] == ["free", "back", "free"]


def test_a_call_that_swaps_two_things_never_leaves_both_on_the_device() -> None:
    things = {"a": weights("left", "device"), "b": weights("right")}
    swap = {"swap": {"moves": {"b": "device", "a": "host"}}}
    one = setup(things, swap, ROOM, 1, keep={"a": "any", "b": "device"})
    holds(one)
    assert left(one)[0]["moves"] == {"b": "device", "a": "host"}


def test_pure_work_goes_also_where_it_moves_something() -> None:
    things = {"a": {"kind": "state"}, "c": {"kind": "scratch"}}
    look = {"reads": ["a"], "needs": {"c": "device"}, "moves": {"c": "device"}, "pure": True}
    one = setup(things, {"wake": {"moves": {"c": "device"}}, "look": look, "use": {"needs": {"c": "device"}}}, steps=1)
    holds(one)
    assert [call["phase"] for call in left(one)] == ["wake", "use"]


def test_a_fused_call_goes_whose_parts_are_useless_for_different_reasons() -> None:
    fused = {"moves": {"a": "device"}, "copies": {"c": "a"}, "whole": True}
    one = setup({"a": weights(), "c": weights()}, {"fused": fused, "make": {"writes": ["a"]}}, steps=1)
    holds(one)
    assert [call["phase"] for call in left(one)] == ["make"]


def test_a_need_of_the_placement_is_printed_only_in_the_steps_that_meet_it() -> None:
    things = {"a": weights("left"), "b": weights("right")}
    step = {"wake_b": {"moves": {"b": "device"}}, "wake_a": {"moves": {"a": "device"}}}
    one = setup(things, step, {"makes_room": {"left": ["right"]}})
    holds(one)
    needs = [[dict(phase.needs) for phase in against.plan(one, ()).step(k).phases] for k in (0, 1)]
    assert needs == [[{"a": "!device"}, {}], [{}, {}]]


def test_what_runs_twice_before_the_first_step_still_comes_before_the_first_step() -> None:
    step = {"log": {"ahead": 2}, "draw": {"updates": ["p"]}}
    one = setup({"p": "stream"}, step, start={"first": {"use": "some.first", "updates": ["p"]}})
    holds(one)


def test_further_ahead_is_earlier_before_the_first_step_too() -> None:
    step = {"near": {"ahead": 1, "reads": ["v"]}, "far": {"ahead": 2, "writes": ["v"]}}
    calls = [(call["phase"], call["step"]) for call in left(setup({}, step, steps=3))]
    assert calls == [("far", 0), ("near", 0), ("far", 1), ("near", 1), ("far", 2), ("near", 2)]
