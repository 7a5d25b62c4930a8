"""The forward sweep alone: what changes nothing that matters goes, and nothing else."""

from __future__ import annotations

from typing import Any

from stepgraph.api import load
from stepgraph.compiler.lower import Layout
from stepgraph.compiler.settled import at_start

from .made import brief, plan

A = {"a": "weights", "b": "weights", "c": "weights"}


def left(step: dict[str, Any], resources: Any = None, **more: Any) -> list[str]:
    return brief(plan(step, resources or A, passes=["settled"], **more).calls())


def test_a_move_to_where_a_thing_is_goes() -> None:
    assert left({"off": {"moves": {"a": "host"}}, "use": {"needs": {"a": "host"}}}) == ["0 use"]


def test_a_move_away_from_where_a_thing_is_wanted_stays() -> None:
    step = {"on": {"moves": {"a": "device"}}, "use": {"needs": {"a": "device"}}}
    assert left(step) == ["0 on a>device", "0 use"]


def test_a_move_goes_where_every_need_until_the_next_move_is_met_anyway() -> None:
    step = {
        "off": {"moves": {"a": "disk"}},
        "use": {"needs": {"a": "!device"}},
        "on": {"moves": {"a": "device"}},
        "work": {"needs": {"a": "device"}},
    }
    assert left(step, places=["disk"]) == ["0 use", "0 on a>device", "0 work"]


def test_after_a_move_the_next_one_to_the_same_place_goes() -> None:
    step = {
        "on": {"moves": {"a": "device"}},
        "use": {"needs": {"a": "device"}},
        "again": {"moves": {"a": "device"}},
        "more": {"needs": {"a": "device"}},
    }
    assert left(step) == ["0 on a>device", "0 use", "0 more"]


def test_a_part_that_is_dropped_leaves_the_thing_where_it_was() -> None:
    """b stays at the host: the later move to the device is no repetition."""
    step = {
        "both": {"moves": {"a": "device", "b": "device"}},
        "use": {"needs": {"a": "device"}},
        "on": {"moves": {"b": "device"}},
        "more": {"needs": {"b": "device"}},
    }
    assert left(step) == ["0 both a>device", "0 use", "0 on b>device", "0 more"]


def test_a_copy_of_contents_that_are_there_goes() -> None:
    sync, read = {"copies": {"b": "a"}}, {"reads": ["b"]}
    assert left({"one": sync, "use": read, "two": sync, "see": read}) == ["0 one b<a", "0 use", "0 see"]


def test_a_copy_after_its_source_was_changed_stays() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}, "learn": {"updates": ["a"]}}
    assert left(step, steps=2) == ["0 sync b<a", "0 use", "0 learn", "1 sync b<a", "1 use", "1 learn"]


def test_a_copy_after_its_target_was_changed_stays() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "learn": {"updates": ["b"]}}
    assert left(step, steps=2) == ["0 sync b<a", "0 learn", "1 sync b<a", "1 learn"]


def test_two_changes_make_two_contents() -> None:
    """Both b and c are changed by the same phase: that does not make them equal."""
    step = {"learn": {"updates": ["a"], "writes": ["b"]}, "sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}}
    assert left(step) == ["0 learn", "0 sync b<a", "0 use"]


def test_things_that_start_with_contents_start_with_their_own() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}}
    assert left(step) == ["0 sync b<a", "0 use"]


def test_a_copy_into_what_was_freed_stays() -> None:
    step = {
        "sync": {"copies": {"b": "a"}},
        "use": {"reads": ["b"]},
        "away": {"reads": ["a"], "moves": {"b": "none"}},
        "on": {"moves": {"b": "host"}},
        "again": {"copies": {"b": "a"}},
        "see": {"reads": ["b"]},
    }
    assert left(step) == ["0 sync b<a", "0 use", "0 away b>none", "0 on b>host", "0 again b<a", "0 see"]


def test_contents_that_came_round_are_the_same() -> None:
    step = {
        "fill": {"writes": ["a"]},
        "one": {"copies": {"b": "a"}},
        "two": {"copies": {"c": "b"}},
        "home": {"copies": {"a": "c"}},
        "use": {"reads": ["a", "b", "c"]},
    }
    assert left(step) == ["0 fill", "0 one b<a", "0 two c<b", "0 use"]


def test_a_fused_call_that_changes_something_stays_whole() -> None:
    step = {"both": {"moves": {"a": "host", "b": "device"}, "whole": True}, "use": {"needs": {"b": "device"}}}
    assert left(step) == ["0 both a>host b>device", "0 use"]


def test_work_that_moves_to_where_a_thing_is_stays() -> None:
    assert left({"use": {"reads": ["a"], "moves": {"a": "host"}}}) == ["0 use a>host"]


def test_pure_work_that_nobody_reads_and_that_moves_nothing_goes() -> None:
    step = {"ref": {"reads": ["a"], "moves": {"a": "host"}, "pure": True}}
    assert left(step) == []


def test_what_starts_without_contents_is_equal_to_nothing() -> None:
    layout = Layout(load({"resources": {"a": {"kind": "weights"}, "b": {"kind": "weights"}}}))
    assert at_start(layout, 0b01) == (1, 0)
    assert at_start(layout, 0b11, ("same", "same")) == (1, 1)
    assert at_start(layout, 0b10, ("same", "same")) == (0, 1)
