"""The backward sweep alone: what nobody will miss goes, part by part, and nothing else."""

from __future__ import annotations

from typing import Any

from .made import COLOCATED, brief, plan

A = {"a": "weights", "b": "weights", "c": "weights"}


def left(step: dict[str, Any], resources: Any = None, **more: Any) -> list[str]:
    return brief(plan(step, resources or A, passes=["dead"], **more).calls())


def test_a_move_that_the_next_one_undoes_unseen_goes() -> None:
    step = {"on": {"moves": {"a": "device"}}, "off": {"moves": {"a": "host"}}, "use": {"needs": {"a": "host"}}}
    assert left(step) == ["0 off a>host", "0 use"]


def test_a_copy_that_the_next_one_overwrites_unseen_goes() -> None:
    step = {"one": {"copies": {"b": "a"}}, "two": {"copies": {"b": "c"}}, "use": {"reads": ["b"]}}
    assert left(step) == ["0 two b<c", "0 use"]


def test_a_copy_whose_target_is_written_anew_goes() -> None:
    assert left({"sync": {"copies": {"b": "a"}}, "fill": {"writes": ["b"]}, "use": {"reads": ["b"]}}) == [
        "0 fill",
        "0 use",
    ]


def test_a_copy_whose_target_is_changed_in_place_stays() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "learn": {"updates": ["b"]}}
    assert left(step) == ["0 sync b<a", "0 learn"]


def test_a_copy_whose_target_is_freed_unseen_goes() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "away": {"reads": ["a"], "moves": {"b": "none"}}}
    assert left(step) == ["0 away b>none"]


def test_work_that_moves_still_wants_what_it_reads() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"], "moves": {"c": "device"}}}
    assert left(step) == ["0 sync b<a", "0 use c>device"]


def test_work_that_moves_still_wants_what_it_needs() -> None:
    step = {"on": {"moves": {"b": "device"}}, "use": {"reads": ["a"], "needs": {"b": "device"}, "moves": {"b": "host"}}}
    assert left(step) == ["0 on b>device", "0 use b>host"]


def test_a_copy_wants_the_copy_that_feeds_it() -> None:
    step = {"one": {"copies": {"b": "a"}}, "two": {"copies": {"c": "b"}}, "use": {"reads": ["c"]}}
    assert left(step) == ["0 one b<a", "0 two c<b", "0 use"]


def test_a_handoff_that_is_kept_wants_the_places_it_needs() -> None:
    step = {
        "on": {"moves": {"a": "device"}},
        "sync": {"copies": {"b": "a"}, "needs": {"a": "device"}},
        "use": {"reads": ["b"]},
    }
    assert left(step) == ["0 on a>device", "0 sync b<a", "0 use"]


def test_parts_count_singly() -> None:
    step = {"both": {"moves": {"a": "device", "b": "device"}, "copies": {"c": "a"}}, "use": {"needs": {"b": "device"}}}
    assert left(step) == ["0 both b>device", "0 use"]


def test_pure_work_goes_where_nobody_reads_what_it_makes() -> None:
    step = {"ref": {"reads": ["a"], "writes": ["x"], "pure": True}, "use": {"writes": ["y"]}}
    assert left(step) == ["0 use"]
    assert left({**step, "use": {"reads": ["x"]}}) == ["0 ref", "0 use"]


def test_pure_work_stays_for_a_move_that_is_wanted() -> None:
    step = {"ref": {"reads": ["a"], "moves": {"a": "device"}, "pure": True}, "use": {"needs": {"a": "device"}}}
    assert left(step) == ["0 ref a>device", "0 use"]


def test_pure_work_that_writes_to_the_outside_world_stays() -> None:
    assert left({"log": {"writes": ["out"], "pure": True}}, {"out": "sink"}) == ["0 log"]


def test_other_work_stays_though_nobody_reads_what_it_makes() -> None:
    assert left({"ref": {"reads": ["a"], "writes": ["x"]}}) == ["0 ref"]


def test_having_to_be_anywhere_but_freed_is_no_reason_to_move() -> None:
    assert left({"on": {"moves": {"a": "device"}}, "use": {"reads": ["a"]}}) == ["0 use"]


def test_what_was_freed_is_moved_back_before_it_gets_contents() -> None:
    resources = {**A, "b": {"kind": "weights", "at": "none"}}
    step = {"on": {"moves": {"b": "host"}}, "sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}}
    assert left(step, resources) == ["0 on b>host", "0 sync b<a", "0 use"]


def test_what_is_kept_at_the_end_is_wanted_in_its_place_and_with_its_contents() -> None:
    step = {"on": {"moves": {"b": "device"}}, "sync": {"copies": {"b": "a"}}}
    assert left(step, keep={"b": "device"}) == ["0 on b>device", "0 sync b<a"]
    assert brief(plan(step, A, keep={"b": "any"}).calls()) == ["0 sync b<a"]
    assert left(step) == []


def test_a_swap_stays_whole_where_the_two_must_not_meet() -> None:
    """Putting b there without taking a away would bring together what the list keeps apart."""
    resources = {
        "a": {"kind": "weights", "of": "trainer", "at": "device"},
        "b": {"kind": "weights", "of": "engine", "at": "host"},
    }
    step = {"swap": {"moves": {"b": "device", "a": "host"}}}
    keep = {"a": "any", "b": "device"}
    assert left(step, resources, keep=keep, placement=COLOCATED) == ["0 swap b>device a>host"]
    assert left(step, resources, keep=keep) == ["0 swap b>device"]


def test_a_swap_stays_whole_whichever_half_is_written_first() -> None:
    resources = {
        "a": {"kind": "weights", "of": "trainer", "at": "device"},
        "b": {"kind": "weights", "of": "engine", "at": "host"},
    }
    step = {"swap": {"moves": {"a": "host", "b": "device"}}}
    assert left(step, resources, keep={"b": "device"}, placement=COLOCATED) == ["0 swap a>host b>device"]


def test_what_is_written_anew_where_it_was_freed_is_brought_back_first() -> None:
    step = {"away": {"reads": ["a"], "moves": {"b": "none"}}, "back": {"moves": {"b": "device"}}}
    step |= {"fill": {"writes": ["b"]}, "use": {"reads": ["b"]}}
    assert left(step) == ["0 away b>none", "0 back b>device", "0 fill", "0 use"]
