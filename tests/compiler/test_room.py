"""How much is on the device: peaks, refusals with both numbers, and that pruning never makes it more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepgraph
from stepgraph.compiler import Plan
from stepgraph.errors import GraphError

from .made import brief, grpo, plan

SIZES = "placement.sizes={policy: 40, engine: 16, kv: 24}"
PAIR = {"a": {"kind": "weights", "of": "left", "at": "device"}, "b": {"kind": "weights", "of": "right"}}
SWAP = {
    "use_a": {"needs": {"a": "device"}},
    "b_on": {"moves": {"b": "device"}},
    "a_off": {"moves": {"a": "host"}},
    "use_b": {"needs": {"b": "device", "a": "host"}},
}


def sized(**more: Any) -> dict[str, Any]:
    return {"name": "small", "sizes": {"a": 30, "b": 20}, **more}


def refusal(**capacity: float) -> str:
    with pytest.raises(GraphError) as refused:
        plan(SWAP, PAIR, placement=sized(capacity=capacity))
    return str(refused.value)


def test_the_peak_is_the_most_that_is_there_at_any_moment() -> None:
    made = plan(SWAP, PAIR, placement=sized())
    assert (made.peak("device"), made.peak("host")) == (50, 30)


def test_the_peak_counts_what_is_there_before_anything_runs() -> None:
    made = plan({"off": {"moves": {"a": "host"}}, "use": {"needs": {"a": "host"}}}, PAIR, placement=sized())
    assert made.peak("device") == 30


def test_a_placement_takes_turns_and_its_peak_is_the_larger_side() -> None:
    assert grpo(SIZES).peak("device") == 40
    assert grpo(SIZES, placement="split").peak("device") == 80


def test_the_peak_is_not_known_where_a_size_is_not() -> None:
    assert grpo().peak("device") is None
    assert grpo("placement.sizes={policy: 40}").peak("device") is None
    assert grpo().to_dict()["peak"] == {"device_gib": None, "host_gib": None}


def test_a_size_that_is_not_known_does_not_matter_where_the_thing_never_comes() -> None:
    made = plan({"use": {"needs": {"a": "device"}}}, PAIR, placement={"sizes": {"a": 30}})
    assert made.peak("device") == 30
    assert made.peak("host") is None


def test_a_size_of_nothing_is_known() -> None:
    assert plan(SWAP, PAIR, placement={"sizes": {"a": 0, "b": 0}}).peak("device") == 0


def test_a_run_over_its_capacity_is_refused_with_both_numbers_and_the_order_that_fits() -> None:
    assert refusal(device=40) == (
        "b_on in step 0 brings device to 50 GiB (a 30 + b 20), over its capacity of 40: this order fits: a_off, b_on"
    )


def test_no_order_is_named_where_none_fits() -> None:
    assert refusal(device=25) == (
        "what is there at first in start brings device to 30 GiB (a 30), over its capacity of 25: "
        "no order of these handoffs fits: offload something to none, or give more capacity"
    )
    assert refusal(device=60, host=25) == (
        "a_off in step 0 brings host to 30 GiB (a 30), over its capacity of 25: "
        "no order of these handoffs fits: offload something to none, or give more capacity"
    )


def test_a_run_that_fills_its_capacity_to_the_brim_is_accepted() -> None:
    assert plan(SWAP, PAIR, placement=sized(capacity={"device": 50, "host": 30})).peak("device") == 50


def test_the_order_that_fits_is_one_that_is_accepted() -> None:
    other = {name: SWAP[name] for name in ("use_a", "a_off", "b_on", "use_b")}
    assert plan(other, PAIR, placement=sized(capacity={"device": 40})).peak("device") == 30


def test_an_order_in_which_a_copy_finds_nothing_does_not_count_as_fitting() -> None:
    resources = {**PAIR, "c": {"kind": "weights", "at": "none"}}
    step = {
        "c_on": {"moves": {"c": "device"}},
        "fill": {"copies": {"c": "a"}, "needs": {"a": "device", "c": "device"}},
        "a_off": {"moves": {"a": "none"}},
        "use_c": {"reads": ["c"], "needs": {"c": "device"}},
    }
    with pytest.raises(GraphError, match="no order of these handoffs fits"):
        plan(step, resources, keep={}, placement={"sizes": {"a": 30, "b": 0, "c": 30}, "capacity": {"device": 40}})


def test_capacity_counts_after_pruning_not_as_declared() -> None:
    step = {"use_a": {"needs": {"a": "device"}}, "b_on": {"moves": {"b": "device"}}}
    made = plan(step, PAIR, placement=sized(capacity={"device": 30}))
    assert brief(made.calls()) == ["0 use_a"]


def test_a_refusal_late_in_a_long_run_names_its_first_step() -> None:
    step = {
        "a_on": {"moves": {"a": "device"}},
        "use_a": {"needs": {"a": "device"}},
        "b_on": {"moves": {"b": "device"}, "when": {"steps": [70, 900]}},
        "use_b": {"needs": {"b": "device"}, "when": {"with": "b_on"}},
        "b_off": {"moves": {"b": "host"}, "when": {"with": "b_on"}},
    }
    with pytest.raises(GraphError) as refused:
        plan(step, PAIR, placement=sized(capacity={"device": 40}), steps=1000)
    assert str(refused.value).startswith(
        "b_on in step 70 brings device to 50 GiB (a 30 + b 20), over its capacity of 40"
    )


# ---- the guard -----------------------------------------------------------------------------------------------------


def declared_peak(made: Plan) -> float | None:
    return stepgraph.compile(made.graph, passes=()).peak("device")


def test_an_engine_that_may_stay_beside_the_trainer_stays_where_no_size_is_known() -> None:
    assert "0 offload_engine kv>none" in brief(grpo(placement="kv_only").calls())


def test_an_engine_that_may_stay_beside_the_trainer_leaves_where_it_would_raise_the_peak() -> None:
    made = grpo(SIZES, placement="kv_only")
    assert "0 offload_engine engine>host kv>none" in brief(made.calls())
    assert made.peak("device") == declared_peak(made) == 40


def test_a_plan_that_holds_no_more_than_the_list_is_left_as_it_is() -> None:
    assert grpo(SIZES).calls() == grpo().calls()


def test_three_things_of_which_any_two_may_meet_are_not_brought_together() -> None:
    kinds = {name: {"kind": "weights"} for name in ("a", "b", "c")}
    step: dict[str, Any] = {}
    for pair in (("a", "b"), ("b", "c"), ("a", "c")):
        for name in pair:
            step[f"{name}_on_{''.join(pair)}"] = {"moves": {name: "device"}}
        step[f"use_{''.join(pair)}"] = {"needs": dict.fromkeys(pair, "device")}
        for name in pair:
            step[f"{name}_off_{''.join(pair)}"] = {"moves": {name: "host"}}
    made = plan(step, kinds, steps=2, placement={"sizes": dict.fromkeys(kinds, 10)})
    assert made.peak("device") == declared_peak(made) == 20


@st.composite
def turns(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]:
    """Things that come, are used and go, with and without somebody who minds."""
    names = ("a", "b", "c")[: draw(st.integers(2, 3))]
    step: dict[str, Any] = {}
    for i in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(names))
        step[f"on{i}"] = {"moves": {name: "device"}}
        step[f"use{i}"] = {"needs": {name: "device"}}
        if draw(st.integers(0, 3)):
            step[f"off{i}"] = {"moves": {name: draw(st.sampled_from(["host", "none"]))}}
    kinds = {name: {"kind": "scratch", "of": name, "at": draw(st.sampled_from(["host", "none"]))} for name in names}
    sizes = {name: draw(st.sampled_from([1, 10, 16])) for name in names}
    room = {name: [draw(st.sampled_from(names))] for name in draw(st.lists(st.sampled_from(names), unique=True))}
    return step, kinds, {"sizes": sizes, "makes_room": room}, draw(st.integers(1, 3))


@given(turns())
def test_a_pruned_plan_never_holds_more_on_the_device_than_the_declared_list(drawn: Any) -> None:
    step, kinds, placement, steps = drawn
    try:
        made = plan(step, kinds, placement=placement, steps=steps)
    except GraphError:
        return
    limit = declared_peak(made)
    assert made.peak("device") is None or (limit is not None and made.peak("device") <= limit)
