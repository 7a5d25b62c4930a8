"""What ``compile`` is asked for: the run, the passes, where things start; and runs in which nothing is left to do."""

from __future__ import annotations

from typing import Any

import pytest

import stepgraph
from stepgraph.compiler import PASSES, Plan
from stepgraph.errors import ConfigError

from .made import brief, graph, grpo, plan

A = {"a": "weights", "b": "weights"}
STEP = {
    "again": {"moves": {"a": "device"}},
    "on": {"moves": {"a": "device"}},
    "use": {"needs": {"a": "device"}},
    "off": {"moves": {"a": "host"}},
}


def refused(**asked: Any) -> str:
    with pytest.raises(ConfigError) as wrong:
        stepgraph.compile(graph(STEP, A), **asked)
    return str(wrong.value)


def test_the_run_that_is_asked_for_wins_over_the_graphs_own() -> None:
    made = stepgraph.compile(stepgraph.load("grpo", ["run.steps=5", "run.first=2"]), steps=9)
    assert (made.first, made.steps) == (2, 9)
    made = stepgraph.compile(stepgraph.load("grpo", ["run.steps=5", "run.first=2"]), first=0)
    assert (made.first, made.steps) == (0, 5)


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        ({"epochs": 2, "steps_per_epoch": 4}, 8),
        ({"epochs": 2, "steps_per_epoch": 4, "steps": 5}, 5),
        ({"epochs": 2, "steps_per_epoch": 4, "steps": 50}, 8),
        ({"epochs": 0, "steps_per_epoch": 4}, 0),
        ({"steps": 0}, 0),
        ({"steps": 5, "extend": 3}, 8),
        ({"epochs": 2, "steps_per_epoch": 4, "steps": 5, "extend": 1}, 6),
    ],
)
def test_a_run_ends_with_its_steps_or_its_epochs_whichever_comes_first(run: dict[str, int], steps: int) -> None:
    assert stepgraph.compile(graph(STEP, A, run=run)).steps == steps


@pytest.mark.parametrize("run", [{}, {"steps_per_epoch": 3}])
def test_a_run_without_an_end_is_refused(run: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as wrong:
        stepgraph.compile(graph(STEP, A, run=run))
    assert str(wrong.value) == (
        "run.steps is not given and nothing else ends the run: "
        "give run.steps=N, or run.epochs=E with run.steps_per_epoch=N"
    )


@pytest.mark.parametrize("value", [-1, 2.5, True, "3"])
@pytest.mark.parametrize("name", ["steps", "first"])
def test_a_number_of_steps_is_a_whole_number(name: str, value: Any) -> None:
    asked = {"steps": 3, name: value}
    assert refused(**asked) == f"run.{name}={value!r}: give a whole number of at least 0"


def test_passes_are_named_or_refused() -> None:
    message = "passes names 'ded', did you mean 'dead'? (known: dead, settled)"
    assert refused(steps=1, passes=["ded"]) == message
    assert refused(steps=1, passes=["dead", "zzz"]) == "passes names 'zzz' (known: dead, settled)"


def test_without_passes_the_list_is_as_declared() -> None:
    assert brief(plan(STEP, A, passes=()).calls()) == ["0 again a>device", "0 on a>device", "0 use", "0 off a>host"]


def test_each_pass_alone_does_its_own_half() -> None:
    assert brief(plan(STEP, A, passes=["dead"]).calls()) == ["0 on a>device", "0 use"]
    found = brief(plan(STEP, A, passes=["settled"], at={"a": "device"}).calls())
    assert found == ["0 use"]
    assert brief(plan(STEP, A, passes=["dead"], at={"a": "device"}).calls()) == ["0 on a>device", "0 use"]


def test_the_order_in_which_passes_are_named_does_not_matter() -> None:
    assert plan(STEP, A, passes=PASSES[::-1]).calls() == plan(STEP, A).calls()


def test_at_says_where_things_start_and_leaves_the_graph_alone() -> None:
    made = graph(STEP, A)
    assert brief(stepgraph.compile(made, steps=1, at={"a": "device"}).calls()) == ["0 use"]
    assert made.resources["a"].at == "host"
    assert brief(stepgraph.compile(made, steps=1).calls()) == ["0 on a>device", "0 use"]


def test_at_names_things_and_places_that_there_are() -> None:
    wrong = "there is no place 'devcie' for a, did you mean 'device'? (known: device, host, none)"
    assert refused(steps=1, at={"a": "devcie"}) == wrong
    assert refused(steps=1, at={"zz": "host"}) == "'zz' is nothing that has a place (known: a, b)"


# ---- nothing left --------------------------------------------------------------------------------------------------


def empty(made: Plan) -> bool:
    return not made.calls() and not made.variants and not made.start.phases and not made.end.phases


@pytest.mark.parametrize("first", [3, 4, 100])
def test_a_run_that_begins_at_its_end_or_after_is_complete_and_starts_nothing(first: int) -> None:
    made = grpo(steps=3, first=first)
    assert made.already_complete
    assert made.nothing
    assert empty(made)
    assert made.totals == {"phase_runs": 0, "pruned_runs": 0}
    assert made.to_dict()["variants"] == []
    assert (made.staleness, made.warnings, made.peak("device")) == (0, (), None)


def test_a_run_of_no_steps_starts_nothing_where_nobody_wants_it() -> None:
    made = grpo(steps=0)
    assert not made.already_complete
    assert made.nothing
    assert empty(made)
    assert [one.name for one in made.start.pruned] == ["reload_engine", "sync_weights", "reload_kv", "eval"]


def test_a_run_of_no_steps_with_an_eval_is_that_eval_and_what_it_needs() -> None:
    made = grpo("graph.start.eval.enabled=true", steps=0)
    assert not made.nothing
    assert [one["phase"] for one in made.calls()] == ["reload_engine", "sync_weights", "reload_kv", "eval"]
    assert made.variants == ()


def test_a_run_of_no_steps_still_runs_its_end() -> None:
    made = plan({}, end={"bye": {"use": "x.bye"}}, steps=0)
    assert brief(made.calls()) == ["- bye"]
    assert not made.nothing


def test_an_empty_graph_compiles_to_steps_of_nothing() -> None:
    made = plan({}, steps=3)
    assert made.nothing
    assert [(variant.count, variant.phases, variant.pruned) for variant in made.variants] == [(3, (), ())]


@pytest.mark.parametrize("k", [-1, 3, 10])
def test_a_step_outside_the_run_is_refused(k: int) -> None:
    with pytest.raises(ConfigError) as wrong:
        grpo(steps=3).step(k)
    assert str(wrong.value) == f"step={k} is not in this run: its steps are 0 to 2"


@pytest.mark.parametrize(("steps", "first"), [(0, 0), (3, 3), (3, 7)])
def test_a_run_with_no_steps_left_says_so_when_asked_for_one(steps: int, first: int) -> None:
    with pytest.raises(ConfigError) as wrong:
        grpo(steps=steps, first=first).step(0)
    told = f"step=0 is not in this run: it has no steps left (run.first={first}, run.steps={steps})"
    assert str(wrong.value) == told


def test_a_step_before_the_first_is_refused() -> None:
    with pytest.raises(ConfigError) as wrong:
        grpo(steps=5, first=3).step(2)
    assert str(wrong.value) == "step=2 is not in this run: its steps are 3 to 4"


# ---- look-ups ------------------------------------------------------------------------------------------------------


def test_steps_and_calls_tell_the_same_run() -> None:
    made = grpo("graph.step.eval.when.every=3", steps=8, first=1)
    stages = [made.start, *(made.step(k) for k in range(1, 8)), made.end]
    found = [(one.for_step, one.name, dict(one.moves), dict(one.copies)) for stage in stages for one in stage.phases]
    told = [(one["step"], one["phase"], one.get("moves", {}), one.get("copies", {})) for one in made.calls()]
    assert found == told


def test_variants_share_out_the_steps() -> None:
    made = grpo("graph.step.eval.when.every=3", "graph.step.save.when.every=4", steps=40)
    steps = [k for v in made.variants for first, last, stride in v.spans for k in range(first, last + 1, stride)]
    assert sorted(steps) == list(range(40))
    assert [variant.count for variant in made.variants] == [
        len([k for k in range(40) if made.step(k).variant == variant.id]) for variant in made.variants
    ]
    assert [variant.id for variant in made.variants] == list(range(1, len(made.variants) + 1))


def test_a_step_of_a_long_run_is_a_look_up() -> None:
    made = grpo(steps=1_000_000)
    assert [one.name for one in made.step(999_999).phases][-1] == "eval"
    assert made.step(999_999).phases[0].for_step == 999_999
    assert made.totals["phase_runs"] == 9 * 1_000_000 + 50_000 + 100_000


def test_compiling_twice_gives_the_same_document() -> None:
    assert grpo(steps=36).to_dict() == grpo(steps=36).to_dict()
