"""Every recorded configuration of every loop: as declared the calls are those recorded; pruned, none is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from meaning import against
from meaning.declared import declared, world
from meaning.least import least, weight
from meaning.least import same as same_seen
from meaning.machine import run

import stepgraph
from stepgraph.adapters import miles, slime
from stepgraph.errors import GraphError

from .recordings import (
    LOOPS,
    dropped,
    handoff,
    of,
    plan,
    recordings,
    same,
    setup,
    stale_evals,
    translated,
    work,
)

GRAPHS = Path(__file__).parents[2] / "graphs"
loops = pytest.mark.parametrize("loop", LOOPS)


@loops
def test_there_are_three_hundred_recorded_configurations(loop: str) -> None:
    assert len({str(row["config"]) for row in recordings(loop)}) == 300


@loops
def test_as_declared_the_calls_are_exactly_those_recorded(loop: str) -> None:
    wrong = [
        number
        for number, row in enumerate(recordings(loop))
        if translated(plan(loop, number, ()), loop) != row["calls"]
    ]
    assert wrong == []


@loops
def test_calls_is_the_translation_of_the_compiled_graph(loop: str) -> None:
    for number in range(0, 300, 25):
        config = recordings(loop)[number]["config"]
        assert of(loop).calls(loop, config) == translated(plan(loop, number), loop)
        assert of(loop).calls(loop, config, passes=[]) == recordings(loop)[number]["calls"]


@loops
def test_pruned_calls_are_a_subsequence_and_no_work_is_missing(loop: str) -> None:
    for number, row in enumerate(recordings(loop)):
        calls = translated(plan(loop, number), loop)
        gone = dropped(calls, row["calls"])
        assert gone is not None, number
        assert all(handoff(row["calls"][place]) for place in gone), number
        assert work(calls) == work(row["calls"]), number


def test_what_the_pull_request_dropped_is_dropped() -> None:
    fewer = 0
    for number, row in enumerate(recordings("miles_sync")):
        calls = translated(plan("miles_sync", number), "miles_sync")
        assert dropped(calls, row["calls_after_pr3182"]) is not None, number
        fewer += len(row["calls"]) > len(row["calls_after_pr3182"])
    assert fewer == 81


@loops
def test_the_handoff_parts_left_are_the_exact_optimum(loop: str) -> None:
    for number, row in enumerate(recordings(loop)):
        given = setup(loop, of(loop).overrides(row["config"], loop))
        listed, here = declared(given), world(given)
        seen = run(here, listed)
        fits = against.fits(given, seen)
        mine = against.known(plan(loop, number).calls(), listed)
        assert same_seen(here, mine, seen, fits), number
        assert weight(mine) == least(here, listed, fits), number


@loops
def test_a_plan_warns_of_the_first_eval_on_stale_weights_and_of_nothing_else(loop: str) -> None:
    for number, row in enumerate(recordings(loop)):
        stale = next(stale_evals(row["calls"]), None)
        expected = []
        if stale is not None:
            step, age = stale
            expected = [
                f"eval in step {step} reads weights behind actor by {age} update{'s' * (age > 1)}: stale weights"
            ]
        assert list(plan(loop, number).warnings) == expected, number


def test_only_the_async_loops_eval_stale_weights() -> None:
    counts = {loop: sum(any(True for _ in stale_evals(row["calls"])) for row in recordings(loop)) for loop in LOOPS}
    assert counts == {"miles_sync": 0, "miles_async": 71, "slime_sync": 0, "slime_async": 52}


@loops
def test_whatever_is_dropped_has_a_reason(loop: str) -> None:
    for number in range(0, 300, 10):
        for variant in plan(loop, number).variants:
            assert all(gone.reason for gone in variant.pruned), number


# ---- the graph is the loop -----------------------------------------------------------------------------------------


def read(loop: str) -> dict[str, Any]:
    graph: dict[str, Any] = yaml.safe_load((GRAPHS / f"{loop}.yaml").read_text())
    return graph


def phases(loop: str) -> list[tuple[str, str]]:
    graph = read(loop)
    return [(part, name) for part in ("start", "step", "end") for name in graph[part]]


@pytest.mark.parametrize(("loop", "part", "name"), [(loop, *phase) for loop in LOOPS for phase in phases(loop)])
def test_a_phase_that_is_taken_out_of_the_file_is_not_called(loop: str, part: str, name: str) -> None:
    number = first_with(loop, part, name)
    fewer = without(loop, part, name, recordings(loop)[number]["config"])
    if isinstance(fewer, GraphError):  # something else cannot be without it: a gate, a reader, or who needs its place
        assert any(word in str(fewer) for word in (name, *given_by(loop, part, name))), fewer
        return
    assert dropped(fewer, recordings(loop)[number]["calls"])


def without(loop: str, part: str, name: str, config: dict[str, Any]) -> list[dict[str, Any]] | GraphError:
    """The calls as declared by the file without a phase, or how it is refused."""
    whole = read(loop)
    del whole[part][name]
    if part == "step":
        whole["start"].pop(name, None)
    overrides = [word for word in of(loop).overrides(config, loop) if f".{name}." not in word]
    try:
        return translated(stepgraph.compile(stepgraph.load(whole, overrides), passes=[]), loop)
    except GraphError as refused:
        return refused


def given_by(loop: str, part: str, name: str) -> set[str]:
    phase = read(loop)["step"].get(name) or read(loop)[part][name]
    return {*phase.get("writes", ()), *phase.get("moves", ()), *phase.get("copies", ())}


def first_with(loop: str, part: str, name: str) -> int:
    """A recorded configuration in which the loop calls a phase."""
    for number in range(300):
        compiled = plan(loop, number, ())
        steps = [getattr(compiled, part)] if part != "step" else (compiled.step(k) for k in steps_of(compiled))
        if any(name in [phase.name for phase in step.phases] for step in steps):
            return number
    raise AssertionError(f"no recorded configuration has {part}.{name}")


def steps_of(compiled: stepgraph.Plan) -> range:
    return range(compiled.first, compiled.steps) if compiled.seq else range(0)


def test_the_order_of_the_calls_is_the_order_of_the_file() -> None:
    whole = read("slime_async")
    step = whole["step"]
    whole["step"] = {name: step[name] for name in sorted(step, key=lambda name: name == "sync_weights")}
    config = {"num_rollout": 2, "eval_interval": 1}
    turned = stepgraph.compile(stepgraph.load(whole, slime.overrides(config, "slime_async")), passes=[])
    names = [call["phase"] for call in translated(turned, "slime_async")]
    assert names[3:6] == ["train_actor", "eval", "sync_weights"]


# ---- the classes of waste ------------------------------------------------------------------------------------------


def gone(loop: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls that are dropped."""
    listed = of(loop).calls(loop, config, passes=[])
    found = dropped(of(loop).calls(loop, config), listed)
    assert found is not None
    return [listed[place] for place in found]


COLOCATED = {"num_rollout": 3, "offload_train": True, "offload_rollout": True}
PPO = {**COLOCATED, "use_critic": True}


def test_the_last_step_hands_nothing_over() -> None:
    assert [call["phase"] for call in gone("miles_sync", COLOCATED)] == [
        "offload_actor",
        "reload_engine_weights",
        "sync_weights",
        "reload_engine_kv",
    ]


def test_an_eval_after_the_last_step_keeps_the_whole_handoff() -> None:
    assert gone("miles_sync", {**COLOCATED, "eval_interval": 3}) == []


def test_while_only_the_critic_trains_an_engine_that_kept_its_weights_is_not_synced() -> None:
    config = {**PPO, "num_critic_only_steps": 2, "offload_rollout_level": ["kv_cache"], "eval_interval": 1}
    syncs = [call["step"] for call in gone("miles_sync", config) if call["phase"] == "sync_weights"]
    assert syncs == [0, 1]


def test_an_engine_that_lost_its_weights_is_synced_in_the_warm_up_too() -> None:
    config = {**PPO, "num_critic_only_steps": 2, "offload_rollout_level": ["weight"], "eval_interval": 1}
    assert not [call for call in gone("miles_sync", config) if call["phase"] == "sync_weights"]


def test_a_critic_that_is_saved_is_not_sent_away_and_back_first() -> None:
    config = {**PPO, "num_critic_only_steps": 3, "save_interval": 1, "eval_interval": 1}
    names = [call["phase"] for call in gone("miles_sync", config)]
    assert names == ["offload_critic", "reload_critic"] * 3


def test_the_async_loops_last_syncs_serve_nobody_without_an_eval() -> None:
    assert [call["step"] for call in gone("miles_async", {"num_rollout": 4})] == [2, 3]


def test_a_debug_exit_ends_without_a_handoff() -> None:
    names = [call["phase"] for call in gone("miles_sync", {**COLOCATED, "debug_exit_after_rollout": 1})]
    assert names == ["offload_actor", "reload_engine_weights", "sync_weights", "reload_engine_kv"]


def test_a_run_with_nothing_to_generate_does_not_start_the_engine() -> None:
    config = {**COLOCATED, "start_rollout_id": 3}
    assert miles.calls("miles_sync", config) == [{"phase": "dispose"}]
    assert [call["phase"] for call in gone("slime_sync", config)] == [
        "reload_engine_weights",
        "sync_weights",
        "reload_engine_kv",
    ]


def test_an_async_loop_launches_a_rollout_that_it_will_not_train_on() -> None:
    calls = miles.calls("miles_async", {"num_rollout": 9, "debug_exit_after_rollout": 1}, passes=[])
    assert [(call["phase"], call.get("step")) for call in calls] == [
        ("sync_weights", None),
        ("generate", 0),
        ("generate", 1),
        ("train_actor", 0),
        ("sync_weights", 0),
        ("dispose", None),
    ]
    nothing = slime.calls("slime_async", {"num_rollout": 5, "start_rollout_id": 5}, passes=[])
    assert nothing == [{"phase": "sync_weights"}, {"phase": "generate", "step": 5}, {"phase": "dispose"}]


def test_a_call_with_fewer_tags_is_the_same_call() -> None:
    assert same(
        {"phase": "offload_engine", "tags": ["kv_cache"]}, {"phase": "offload_engine", "tags": ["kv_cache", "x"]}
    )
    assert not same({"phase": "offload_engine", "tags": ["y"]}, {"phase": "offload_engine", "tags": ["kv_cache"]})
