"""The judge judged: the machine and the search on lists short enough to check by hand."""

from __future__ import annotations

from typing import Any

import pytest

from .least import least, removable
from .machine import Violation, World, labelled, run

WORLD = World(
    {"a": "weights", "b": "weights", "kv": "scratch", "p": "stream", "out": "sink"},
    {"a": "host", "b": "host", "kv": "none"},
    {"a": "a@start"},
)


def listed(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Calls of step 0; a handoff is one that only moves or copies."""
    work = [bool({"reads", "updates", "writes"} & set(one)) or set(one) == {"needs"} for one in calls]
    kinds = ["work" if it_is else "handoff" for it_is in work]
    plain = {"step": 0, "room": {}, "pure": False}
    named = [{**plain, "phase": f"p{i}", "kind": kinds[i], "own": one.get("needs", {})} for i, one in enumerate(calls)]
    return labelled({**rest, **one} for rest, one in zip(named, calls, strict=True))


def keeping(**keep: str) -> World:
    return World(WORLD.kinds, WORLD.places, WORLD.contents, keep)


def wrong(*calls: dict[str, Any]) -> tuple[str, str, str]:
    with pytest.raises(Violation) as caught:
        run(WORLD, listed(*calls))
    return caught.value.phase, caught.value.resource, caught.value.what


def test_reading_what_nothing_filled_is_a_violation() -> None:
    assert wrong({"reads": ["b"]}) == ("p0", "b", "nothing gave it contents, or they were lost")
    assert wrong({"reads": ["v"]})[:2] == ("p0", "v")


def test_a_copy_gives_the_contents_that_the_source_has() -> None:
    seen = run(WORLD, listed({"copies": {"b": "a"}}, {"reads": ["a", "b"]}))
    assert seen.work["p1", 0] == (("a", "a@start"), ("b", "a@start"))


def test_contents_are_lost_where_a_thing_is_freed_and_kept_where_it_moves() -> None:
    assert run(WORLD, listed({"moves": {"a": "device"}}, {"reads": ["a"]})).work["p1", 0] == (("a", "a@start"),)
    assert wrong({"moves": {"a": "none"}}, {"moves": {"a": "host"}}, {"reads": ["a"]})[:2] == ("p2", "a")
    assert wrong({"moves": {"a": "none"}}, {"reads": ["a"]})[2] == "contents wanted of what is freed"


def test_moves_come_before_copies_and_needs_before_both() -> None:
    assert wrong({"needs": {"b": "device"}, "moves": {"b": "device"}})[:2] == ("p0", "b")
    assert wrong({"moves": {"b": "none"}, "copies": {"b": "a"}})[2] == "copied while freed"


def test_work_may_not_free_twice_and_a_handoff_may() -> None:
    assert wrong({"reads": ["a"], "moves": {"kv": "none"}})[2] == "freed twice"
    run(WORLD, listed({"moves": {"kv": "none"}}))


def test_a_value_has_one_writer_in_a_step_and_belongs_to_it() -> None:
    assert wrong({"writes": ["v"]}, {"writes": ["v"]})[2] == "a second writer in one step"
    calls = listed({"writes": ["v"]}, {"reads": ["v"]})
    with pytest.raises(Violation):
        run(WORLD, [calls[0], {**calls[1], "slot": 1}])


def test_new_contents_differ_where_the_step_or_what_was_read_does() -> None:
    once = run(WORLD, listed({"updates": ["a"]}, {"reads": ["a"]})).work["p1", 0]
    twice = run(WORLD, listed({"updates": ["a"]}, {"reads": ["a"]}, {"updates": ["a"]}, {"reads": ["a"]}))
    assert once == twice.work["p1", 0] != twice.work["p3", 0]


def test_sinks_receive_in_order_and_keep_wants_its_place() -> None:
    assert len(run(WORLD, listed({"writes": ["out"]}, {"writes": ["out"]})).sinks["out"]) == 2
    assert run(keeping(a="any"), []).kept == {"a": "a@start"}
    with pytest.raises(Violation):
        run(keeping(a="device"), [])


def test_the_search_finds_that_a_round_trip_is_for_nobody() -> None:
    there_and_back = listed({"moves": {"a": "device"}}, {"moves": {"a": "host"}}, {"reads": ["a"]})
    assert least(WORLD, there_and_back) == 0
    assert least(WORLD, listed({"moves": {"a": "device"}}, {"needs": {"a": "device"}}, {"moves": {"a": "host"}})) == 1


def test_the_search_takes_the_short_way_through_copies() -> None:
    calls = listed({"copies": {"c": "a"}}, {"copies": {"b": "a"}}, {"copies": {"b": "c"}})
    world = World({**WORLD.kinds, "c": "weights"}, {**WORLD.places, "c": "host"}, WORLD.contents, {"b": "any"})
    assert least(world, calls) == 1


def test_a_fused_call_goes_as_a_whole_or_not_at_all() -> None:
    calls = listed({"moves": {"a": "device", "b": "device"}}, {"needs": {"a": "device"}})
    assert least(WORLD, calls) == 1
    assert least(WORLD, [{**calls[0], "whole": True}, calls[1]]) == 2


def test_work_that_is_pure_goes_with_what_it_feeds_on() -> None:
    calls = listed({"moves": {"a": "device"}}, {"reads": ["a"], "writes": ["v"], "needs": {"a": "device"}})
    assert least(WORLD, calls) == 1
    assert least(WORLD, [calls[0], {**calls[1], "pure": True}]) == 0


def test_a_need_of_the_placement_goes_with_the_part_that_asked() -> None:
    moves = {"moves": {"b": "host"}}, {"moves": {"a": "device"}}, {"needs": {"a": "device"}}
    world = World(WORLD.kinds, {**WORLD.places, "b": "device"}, WORLD.contents)
    calls = listed(*moves)
    asking = [calls[0], {**calls[1], "room": {"b": ["a"]}, "needs": {"b": "!device"}}, calls[2]]
    assert (least(world, calls), least(world, asking)) == (1, 2)
    assert [what for _, _, what in removable(world, asking, run(world, asking))] == []
    assert len(removable(world, calls, run(world, calls))) == 1
