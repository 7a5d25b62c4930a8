"""Phases that only the run can fire: they keep alive what they want, kill nothing, and what they change is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from stepgraph.errors import GraphError

from .made import brief, plan

A = {"a": "weights", "b": "weights", "c": "weights"}
GO = {"when": {"file": "go"}}


def phases(step: dict[str, Any], **more: Any) -> list[str]:
    return brief(plan(step, A, **more).calls())


def test_it_keeps_alive_what_it_reads_and_needs() -> None:
    step = {"on": {"moves": {"a": "device"}}, "sync": {"copies": {"b": "a"}}}
    step["look"] = {"reads": ["b"], "needs": {"a": "device"}, **GO}
    assert phases(step) == ["0 on a>device", "0 sync b<a", "0 look"]


def test_a_copy_that_may_not_happen_does_not_spare_the_one_before() -> None:
    step = {"first": {"copies": {"b": "a"}}, "maybe": {"copies": {"b": "c"}, **GO}, "use": {"reads": ["b"]}}
    assert phases(step) == ["0 first b<a", "0 maybe b<c", "0 use"]
    assert phases({**step, "maybe": {"copies": {"b": "c"}}}) == ["0 maybe b<c", "0 use"]


def test_a_move_that_may_not_happen_does_not_spare_the_one_before() -> None:
    step = {
        "first": {"moves": {"a": "device"}},
        "maybe": {"moves": {"a": "device"}, **GO},
        "use": {"needs": {"a": "device"}},
    }
    assert phases(step)[0] == "0 first a>device"
    assert phases({**step, "maybe": {"moves": {"a": "device"}}})[0] == "0 maybe a>device"


def test_contents_that_it_may_change_are_copied_again() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}, "maybe": {"updates": ["a"], **GO}}
    assert phases(step, steps=2) == [f"{k} {one}" for k in (0, 1) for one in ("sync b<a", "use", "maybe")]


def test_contents_that_it_may_have_copied_are_not_taken_for_the_same() -> None:
    step = {
        "sync": {"copies": {"b": "a"}},
        "use": {"reads": ["b"]},
        "maybe": {"reads": ["a"], "copies": {"b": "c"}, **GO},
        "again": {"copies": {"b": "c"}},
        "see": {"reads": ["b"]},
    }
    assert "0 again b<c" in phases(step)


def test_where_it_may_have_moved_a_thing_the_next_move_stays() -> None:
    step = {
        "off": {"moves": {"a": "host"}},
        "far": {"needs": {"a": "host"}},
        "maybe": {"reads": ["c"], "moves": {"a": "device"}, **GO},
        "back": {"moves": {"a": "host"}},
        "use": {"needs": {"a": "host"}},
    }
    assert "0 back a>host" in phases(step)


def test_nobody_may_need_what_it_alone_gives() -> None:
    with pytest.raises(GraphError, match="use in step 0 needs a at device"):
        plan({"maybe": {"moves": {"a": "device"}, **GO}, "use": {"needs": {"a": "device"}}}, A)
    with pytest.raises(GraphError, match="use in step 0 takes b"):
        plan({"maybe": {"copies": {"b": "a"}, **GO}, "use": {"reads": ["b"]}}, A)
    with pytest.raises(GraphError, match="use in step 0 reads x"):
        plan({"maybe": {"writes": ["x"], **GO}, "use": {"reads": ["x"]}}, A)


def test_who_fires_with_it_may_read_what_it_may_write() -> None:
    step = {"maybe": {"writes": ["x"], **GO}, "log": {"reads": ["x"], "when": {"with": "maybe"}}}
    assert phases(step) == ["0 maybe", "0 log"]


def test_two_that_may_write_the_same_value_are_refused() -> None:
    with pytest.raises(GraphError, match="two in step 0 writes x, which one writes too"):
        plan({"one": {"writes": ["x"], **GO}, "two": {"writes": ["x"]}}, A)


def test_contents_that_it_may_free_are_lost() -> None:
    step = {"maybe": {"moves": {"a": "none"}, **GO}, "use": {"reads": ["a"]}}
    with pytest.raises(GraphError, match="use in step 0 needs a at device or host, but it is at none"):
        plan(step, A)


def test_what_may_be_written_is_written_anew_in_each_step() -> None:
    step = {"maybe": {"writes": ["x"], **GO}, "log": {"reads": ["x"], "when": {"with": "maybe"}}}
    assert phases(step, steps=2) == ["0 maybe", "0 log", "1 maybe", "1 log"]


FREED = {"away": {"reads": ["a"], "moves": {"b": "none"}}, "back": {"moves": {"b": "device"}}}
FILL, LOOK = {"writes": ["b"], **GO}, {"reads": ["b"], **GO}


def test_contents_that_it_may_have_given_are_lost_with_what_is_freed() -> None:
    with pytest.raises(GraphError, match="look in step 0 takes b, whose contents are lost since away in step 0"):
        plan({"fill": FILL, **FREED, "look": LOOK, "sync": {"copies": {"b": "a"}}}, A)


def test_a_copy_that_is_freed_before_it_may_be_read_goes() -> None:
    step = {"sync": {"copies": {"b": "a"}}, **FREED, "fill": FILL, "look": LOOK}
    assert phases(step, passes=["dead"]) == ["0 away b>none", "0 back b>device", "0 fill", "0 look"]


def test_what_it_may_free_comes_back_before_it_may_free_it_again() -> None:
    step = {"maybe": {"writes": ["x"], "moves": {"a": "none"}, **GO}, "back": {"moves": {"a": "device"}}}
    assert phases(step, steps=2, at={"a": "device"}) == ["0 maybe a>none", "0 back a>device", "1 maybe a>none"]
