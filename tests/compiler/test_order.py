"""What waits for what: each kind of edge once, and what holds of all edges together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.compiler import Plan
from stepgraph.compiler.order import layers

from .made import COLOCATED, grpo, plan

BOTH = {"a": {"kind": "weights", "at": "device"}, "b": {"kind": "weights", "at": "device"}}


def after(made: Plan, k: int = 0) -> dict[str, list[str]]:
    return {one.name: list(one.after) for one in made.step(k).phases}


def test_a_reader_waits_for_the_writer() -> None:
    assert after(plan({"w": {"writes": ["x"]}, "r": {"reads": ["x"]}})) == {"w": [], "r": ["w"]}


def test_who_changes_contents_waits_for_those_who_read_them_before() -> None:
    made = plan({"r": {"reads": ["a"]}, "s": {"reads": ["a"]}, "u": {"updates": ["a"]}}, BOTH, steps=2)
    assert after(made) == {"r": ["u@previous"], "s": ["u@previous"], "u": ["r", "s"]}


def test_the_second_writer_waits_for_the_first() -> None:
    made = plan({"u": {"writes": ["a"]}, "v": {"writes": ["a"]}}, BOTH)
    assert after(made) == {"u": [], "v": ["u"]}


def test_readers_do_not_wait_for_each_other() -> None:
    assert after(plan({"r": {"reads": ["a"]}, "s": {"reads": ["a"]}}, BOTH)) == {"r": [], "s": []}


def test_values_of_different_steps_have_nothing_to_do_with_each_other() -> None:
    made = plan({"w": {"writes": ["x"]}, "r": {"reads": ["x"]}}, steps=3)
    assert after(made, 2) == {"w": ["w@previous"], "r": ["w", "r@previous"]}, "only each component with itself"


def test_a_need_waits_for_the_move_and_the_next_move_for_the_need() -> None:
    step = {
        "put": {"moves": {"a": "device"}},
        "work": {"needs": {"a": "device"}},
        "take": {"moves": {"a": "host"}},
        "see": {"needs": {"a": "host"}},
    }
    made = plan(step, {"a": {"kind": "weights", "at": "host"}}, steps=2)
    assert after(made) == {"put": ["see@previous"], "work": ["put"], "take": ["work"], "see": ["take"]}


def test_who_reads_contents_waits_for_the_move_that_keeps_them_from_being_freed() -> None:
    made = plan(
        {"put": {"moves": {"a": "host"}}, "fill": {"copies": {"a": "b"}}, "r": {"reads": ["a"]}},
        {"a": {"kind": "weights", "at": "none"}, "b": {"kind": "weights"}},
    )
    assert after(made) == {"put": [], "fill": ["put"], "r": ["fill"]}


def test_a_component_does_one_thing_at_a_time() -> None:
    made = plan({"a": {"use": "one.a"}, "b": {"use": "two.b"}, "c": {"use": "one.c"}}, steps=2)
    assert after(made) == {"a": ["c@previous"], "b": ["b@previous"], "c": ["a"]}


@pytest.mark.parametrize("use", ["json.decoder.scanstring", "json.decoder:scanstring", "./audit.py:look"])
def test_what_is_no_component_waits_for_nobody(use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.py").write_text("def look(ctx): ...\n")
    assert after(plan({"a": {"use": use}, "b": {"use": use}})) == {"a": [], "b": []}


def test_a_sink_is_written_in_declared_order() -> None:
    made = plan({"a": {"writes": ["log"]}, "b": {"writes": ["log"]}}, {"log": "sink"}, steps=2)
    assert after(made, 1) == {"a": ["b@previous"], "b": ["a"]}


def test_a_copy_waits_for_its_source_and_the_source_waits_for_the_copy() -> None:
    made = plan(
        {"u": {"updates": ["a"]}, "sync": {"copies": {"b": "a"}}, "v": {"updates": ["a"]}, "r": {"reads": ["b"]}}, BOTH
    )
    assert after(made) == {"u": [], "sync": ["u"], "v": ["sync"], "r": ["sync"]}


def test_what_is_put_on_the_device_waits_for_what_was_taken_off_before() -> None:
    step = {
        "off": {"moves": {"a": "host"}},
        "on": {"moves": {"b": "device"}},
        "work": {"needs": {"a": "host", "b": "device"}},
    }
    made = plan(step, {"a": {"kind": "weights", "at": "device"}, "b": {"kind": "weights"}})
    assert after(made) == {"off": [], "on": ["off"], "work": ["on"]}


def test_what_is_taken_off_does_not_wait_for_what_was_put_there() -> None:
    step = {
        "on": {"moves": {"b": "device"}},
        "off": {"moves": {"a": "host"}},
        "work": {"needs": {"a": "host", "b": "device"}},
    }
    made = plan(step, {"a": {"kind": "weights", "at": "device"}, "b": {"kind": "weights"}})
    assert after(made) == {"on": [], "off": [], "work": ["on", "off"]}


def test_what_is_put_on_the_device_waits_for_what_the_step_before_took_off() -> None:
    step: dict[str, Any] = {}
    for name in ("a", "b"):
        step[f"{name}_on"] = {"moves": {name: "device"}}
        step[f"{name}_use"] = {"needs": {name: "device"}}
        step[f"{name}_off"] = {"moves": {name: "host"}}
    made = plan(step, {"a": "weights", "b": "weights"}, steps=2, passes=())
    assert after(made, 1)["a_on"] == ["b_off@previous"]
    assert after(made, 1)["b_on"] == ["a_off"]


def test_a_stream_is_read_in_order() -> None:
    made = plan({"a": {"updates": ["s"]}, "b": {"updates": ["s"]}}, {"s": "stream"}, steps=2)
    assert after(made, 1) == {"a": ["b@previous"], "b": ["a"]}


def test_an_earlier_run_is_named_as_the_previous_one_however_long_ago() -> None:
    step = {"u": {"updates": ["a"], "when": {"steps": [0]}}, "r": {"reads": ["a"], "when": {"steps": [3]}}}
    assert after(plan(step, BOTH, steps=5), 3) == {"r": ["u@previous"]}


def test_what_another_wait_implies_is_left_out() -> None:
    made = plan({"a": {"writes": ["x"]}, "b": {"reads": ["x"], "writes": ["y"]}, "c": {"reads": ["x", "y"]}})
    assert after(made) == {"a": [], "b": ["a"], "c": ["b"]}


def test_a_value_made_ahead_is_waited_for_in_the_step_it_is_made_for() -> None:
    made = plan({"w": {"writes": ["x"], "ahead": 1}, "r": {"reads": ["x"]}}, steps=3)
    assert [one.name for one in made.start.phases] == ["w"]
    assert after(made, 1) == {"w": ["w@previous"], "r": ["w@previous", "r@previous"]}
    assert after(made, 2) == {"r": ["w@previous", "r@previous"]}


def test_the_end_waits_for_the_last_step() -> None:
    made = plan({"u": {"updates": ["a"]}}, BOTH, end={"r": {"use": "r.run", "reads": ["a"]}}, steps=2)
    assert [one.after for one in made.end.phases] == [("u@previous",)]


def test_a_layer_is_one_more_than_the_deepest_wait_in_the_step() -> None:
    assert layers(["a", "b", "c", "d"], [("z@previous",), ("a",), (), ("b", "c")]) == [1, 2, 1, 3]


def test_who_changes_contents_waits_for_every_earlier_run_that_reads_them() -> None:
    """Directly, or through the next run of the same phase."""
    step = {"r": {"use": "json.decoder.scanstring", "reads": ["a"]}, "u": {"updates": ["a"], "when": {"steps": [2]}}}
    assert "r@previous" in after(plan(step, BOTH, steps=3), 1)["r"]


NAMES = ("a", "b", "c")


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """Phases that touch few things in many ways, and are legal wherever they stand."""
    out: dict[str, Any] = {}
    for i in range(draw(st.integers(2, 6))):
        some = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
        words: dict[str, Any] = {"use": f"{draw(st.sampled_from(['one', 'two', 'three']))}.run"}
        kind = draw(st.sampled_from(["read", "update", "move", "log"]))
        words |= {"reads": draw(some)} if kind == "read" else {}
        words |= {"updates": draw(some)} if kind == "update" else {}
        words |= (
            {"moves": {name: draw(st.sampled_from(["device", "host"])) for name in draw(some)}}
            if kind == "move"
            else {}
        )
        words |= {"writes": ["log"]} if kind == "log" else {}
        words |= {"when": {"every": draw(st.integers(1, 3))}} if draw(st.booleans()) else {}
        out[f"p{i}"] = words
    return out


@given(steps(), st.integers(1, 5))
def test_waits_point_backwards_and_none_is_implied_by_another(step: dict[str, Any], length: int) -> None:
    made = plan(step, {**dict.fromkeys(NAMES, "weights"), "log": "sink"}, steps=length, passes=())
    for k in range(length):
        reach: dict[str, set[str]] = {}
        for one in made.step(k).phases:
            here = {name for name in one.after if not name.endswith("@previous")}
            assert here <= reach.keys(), "in declared order, so without a circle"
            assert not any(other in reach[name] for name in here for other in here)
            reach[one.name] = here.union(*(reach[name] for name in here))


@given(steps(), st.integers(1, 5))
def test_two_phases_that_touch_the_same_thing_wait_one_for_the_other(step: dict[str, Any], length: int) -> None:
    """Over the whole run, ``@previous`` followed to the run it means."""
    made = plan(step, {**dict.fromkeys(NAMES, "weights"), "log": "sink"}, steps=length, passes=())
    latest: dict[str, int] = {}
    nodes: list[tuple[Any, set[int]]] = []
    for k in range(length):
        before = dict(latest)
        for one in made.step(k).phases:
            found = [before.get(name.removesuffix("@previous")) if "@" in name else latest[name] for name in one.after]
            waits = {i for i in found if i is not None}
            waits = waits.union(*(nodes[i][1] for i in waits))
            for i, (other, _) in enumerate(nodes):
                assert i in waits or not clash(other, one), (other.name, one.name, k)
            latest[one.name] = len(nodes)
            nodes.append((one, waits))


def clash(left: Any, right: Any) -> bool:
    """Whether the order of two phases can be told by anybody."""
    changed = [{*one.updates, *one.moves, *one.writes} for one in (left, right)]
    touched = [{*both, *one.reads} for both, one in zip(changed, (left, right), strict=True)]
    puts = [any(place == "device" for place in one.moves.values()) for one in (left, right)]
    takes = [any(place != "device" for place in one.moves.values()) for one in (left, right)]
    same = left.phase.component == right.phase.component
    return bool(changed[0] & touched[1] or changed[1] & touched[0] or same or (takes[0] and puts[1]))


def test_colocated_phases_overlap_only_where_nothing_is_shared() -> None:
    made = grpo(steps=2)
    assert {one.name: one.layer for one in made.step(0).phases} == {
        "generate": 1,
        "offload_engine": 2,
        "score": 2,
        "reload_policy": 3,
        "train": 4,
        "offload_policy": 5,
        "reload_engine": 6,
        "sync_weights": 7,
        "reload_kv": 8,
    }


def test_work_that_needs_room_waits_for_the_other_to_leave() -> None:
    resources = {"x": {"kind": "weights", "of": "trainer"}, "y": {"kind": "weights", "of": "engine", "at": "device"}}
    made = plan(
        {
            "off": {"moves": {"y": "host"}},
            "work": {"needs": {"y": "host"}},
            "on": {"moves": {"x": "device"}},
            "use": {"needs": {"x": "device"}},
        },
        resources,
        placement=COLOCATED,
    )
    assert after(made)["use"] == ["on"]
