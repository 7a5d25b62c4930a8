"""Why a phase is there, why it is not, and what would keep it: the words are true, and the hints work."""

from __future__ import annotations

from typing import Any

import pytest

import stepgraph
from stepgraph.compiler import Plan
from stepgraph.ir.plan import Pruned

from .made import grpo, plan

TWO = {"a": "weights", "b": "weights"}


def why(made: Plan, k: int = 0) -> dict[str, str]:
    return {one.name: one.why for one in made.step(k).phases}


def gone(made: Plan, name: str, k: int = 0) -> Pruned:
    return next(one for one in made.step(k).pruned if one.name == name)


def told(made: Plan, name: str, k: int = 0) -> tuple[str, str, str]:
    one = gone(made, name, k)
    return one.code, one.reason, one.kept_if


# ---- kept ----------------------------------------------------------------------------------------------------------


def test_work_is_kept_because_it_is_due() -> None:
    assert why(plan({"log": {}})) == {"log": "work"}


def test_work_that_moves_is_work() -> None:
    assert why(plan({"log": {"updates": ["a"], "moves": {"a": "device"}}}, TWO)) == {"log": "work"}


def test_a_handoff_feeds_whoever_in_the_step_wants_what_it_gives_first() -> None:
    step = {
        "on": {"moves": {"a": "device"}},
        "sync": {"copies": {"b": "a"}, "needs": {"a": "device"}},
        "use": {"needs": {"a": "device"}, "reads": ["b"]},
    }
    assert why(plan(step, TWO)) == {"on": "feeds:sync", "sync": "feeds:use", "use": "work"}


def test_a_handoff_that_a_later_step_wants_says_so() -> None:
    step = {"use": {"reads": ["b"]}, "sync": {"copies": {"b": "a"}}, "learn": {"updates": ["a"]}}
    made = plan(step, TWO, start={"sync": None}, steps=3)
    assert [one.why for one in made.start.phases] == ["next_step:use"]
    assert why(made, 1)["sync"] == "next_step:use"
    assert "sync" not in why(made, 2)


def test_a_handoff_wanted_long_after_says_so_too() -> None:
    step = {
        "use": {"needs": {"a": "device"}, "when": {"steps": [50]}},
        "on": {"moves": {"a": "device"}, "when": {"first": True}},
    }
    assert why(plan(step, TWO, steps=51), 0) == {"on": "next_step:use"}


def test_a_handoff_that_only_keep_wants_says_so() -> None:
    assert why(plan({"on": {"moves": {"a": "device"}}}, TWO, keep={"a": "device"})) == {"on": "kept_at_end"}


def test_who_does_not_mind_where_a_thing_is_is_not_who_it_is_moved_for() -> None:
    step = {"on": {"moves": {"a": "device"}}, "read": {"reads": ["a"]}, "use": {"needs": {"a": "device"}}}
    assert why(plan(step, TWO))["on"] == "feeds:use"


# ---- pruned --------------------------------------------------------------------------------------------------------


def test_a_move_that_nobody_needs_has_no_consumer() -> None:
    made = plan({"on": {"moves": {"a": "device"}}}, TWO)
    assert told(made, "on") == ("no_consumer", "no later phase needs a at device", "graph.keep.a=device")


def test_a_copy_that_nobody_reads_has_no_consumer() -> None:
    made = plan({"sync": {"copies": {"b": "a"}}}, TWO, keep={"a": "any"})
    assert told(made, "sync") == (
        "no_consumer",
        "no later phase reads b, and the run keeps a only",
        "graph.keep.b=any",
    )


def test_pure_work_whose_value_nobody_reads_has_no_consumer() -> None:
    made = plan({"ref": {"writes": ["x"], "pure": True}})
    assert told(made, "ref")[:2] == ("no_consumer", "no later phase reads x, and the run keeps nothing")


def test_what_fed_only_a_pruned_phase_says_which() -> None:
    step = {"on": {"moves": {"a": "device"}}, "sync": {"copies": {"b": "a"}, "needs": {"a": "device"}}}
    assert told(plan(step, TWO), "on")[:2] == ("only_feeds_pruned", "only sync wanted it, and that is pruned")


def test_a_move_to_where_nobody_wanted_it_does_not_say_that_somebody_pruned_did() -> None:
    made = grpo(placement="split", steps=2)
    assert told(made, "offload_policy", 1)[:2] == ("no_consumer", "no later phase needs policy at host")


def test_what_is_there_already_says_where() -> None:
    step = {"on": {"moves": {"a": "device"}}, "use": {"needs": {"a": "device"}}}
    made = plan(step, {"a": {"kind": "weights", "at": "device"}})
    assert told(made, "on")[:2] == ("already_there", "a is at device")


def test_what_may_stay_where_it_is_says_so() -> None:
    step = {"off": {"moves": {"a": "none"}}, "use": {"needs": {"a": "!device"}}}
    made = plan(step, {"a": {"kind": "scratch", "at": "host"}})
    assert told(made, "off")[:2] == ("already_there", "a may stay where it is")


def test_a_copy_of_what_is_there_says_so() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}}
    made = plan(step, TWO, steps=2)
    assert told(made, "sync", 1)[:2] == ("same_contents", "b holds the contents of a already")


def test_a_phase_that_is_not_due_tells_its_gate_and_the_next_step() -> None:
    made = plan({"save": {"when": {"every": 4, "last": True}}}, steps=6)
    assert told(made, "save", 0)[:2] == ("not_due", "not due: every=4, last; next in step 3")
    assert told(made, "save", 0)[2] == "graph.step.save.when.steps=[0]"


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"steps": [3, 7]}, "steps=[3,7]"),
        ({"first": True, "from": 1}, "first, from=1"),
        ({"epoch_end": True}, "epoch_end"),
        ({"with": "other"}, "with=other"),
        ({"file": "go", "until": 0}, "file=go, until=0"),
        ({"every": None}, "no trigger"),
    ],
)
def test_a_gate_is_told_as_it_would_be_typed(when: dict[str, Any], words: str) -> None:
    step = {"look": {"when": when}, "other": {"when": {"steps": [5]}}}
    made = plan(step, run={"steps_per_epoch": 9}, steps=2)
    assert told(made, "look")[1] == f"not due: {words}; not again in this run"


def test_a_disabled_phase_says_so_wherever_it_stands() -> None:
    off = {"use": "x.y", "enabled": False}
    made = plan({"a": {"enabled": False}}, start={"b": off}, end={"c": off})
    assert told(made, "a") == ("disabled", "disabled: enabled is false", "graph.step.a.enabled=true")
    assert [one.kept_if for one in made.start.pruned] == ["graph.start.b.enabled=true"]
    assert [one.kept_if for one in made.end.pruned] == ["graph.end.c.enabled=true"]


def test_a_phase_that_lost_a_part_is_kept_and_told_as_what_is_left() -> None:
    made = grpo(placement="kv_only")
    offload = next(one for one in made.step(0).phases if one.name == "offload_engine")
    assert (dict(offload.moves), offload.why) == ({"kv": "none"}, "feeds:reload_policy")


# ---- hints ---------------------------------------------------------------------------------------------------------

RUNS = [(), ("graph.step.save.when.every=2",), ("graph.step.eval.when.last=true",), ("graph.start.eval.enabled=true",)]


@pytest.mark.parametrize("more", RUNS, ids=lambda words: " ".join(words) or "as shipped")
@pytest.mark.parametrize("placement", ["colocated", "split", "kv_only"])
def test_what_is_said_to_keep_a_phase_brings_it_back(placement: str, more: tuple[str, ...]) -> None:
    """As an override, the way the command line would read it."""
    words = [f"placement={placement}", *more]
    made = stepgraph.compile(stepgraph.load("grpo", words), steps=5)
    hints = {(v.first, one.name, one.kept_if) for v in made.variants for one in v.pruned if one.kept_if}
    assert hints
    for k, name, hint in hints:
        other = stepgraph.compile(stepgraph.load("grpo", [*words, hint]), steps=5)
        assert name in [one.name for one in other.step(k).phases], (k, name, hint)


def test_what_is_said_to_keep_a_phase_of_start_brings_it_back() -> None:
    made = grpo(steps=0)
    for one in made.start.pruned:
        if one.kept_if:
            other = grpo(one.kept_if, steps=0)
            assert one.name in [phase.name for phase in other.start.phases], one


def test_the_handover_after_the_last_step_is_kept_by_an_eval_there() -> None:
    made = grpo(steps=3)
    assert {one.kept_if for one in made.step(2).pruned} == {"graph.step.eval.when.last=true"}


def test_what_no_reader_can_keep_is_kept_by_the_end_of_the_run() -> None:
    made = grpo("~graph.step.eval", "~graph.start.eval", steps=3)
    assert gone(made, "sync_weights", 2).kept_if == "graph.keep.engine=any"
    assert gone(made, "reload_kv", 2).kept_if == "graph.keep.kv=device"


def test_what_nothing_would_keep_says_nothing() -> None:
    assert gone(grpo(placement="split"), "reload_policy").kept_if == ""


def test_every_code_is_met_on_the_shipped_loop() -> None:
    found = set()
    for placement in ("colocated", "split", "kv_only"):
        made = grpo("graph.keep.engine=device", placement=placement, steps=3)
        for variant in made.variants:
            found |= {one.why.partition(":")[0] for one in variant.phases}
            found |= {one.code for one in variant.pruned}
    assert found >= {"work", "feeds", "next_step", "kept_at_end", "not_due", "no_consumer", "already_there"}
