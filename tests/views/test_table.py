"""The plan as text, whole, as it is printed in a terminal of 80 columns: one file a plan in ``golden/``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.views.table import plan_text

GOLDEN = Path(__file__).parent / "golden"
SIZES = "placement.sizes={policy: 40, engine: 16, kv: 24}"


def shipped(*overrides: str) -> tuple[Plan, tuple[str, ...]]:
    """The shipped loop as ``stepgraph plan`` compiles it, with the user's own words for the last line."""
    words = (
        overrides if any(word.startswith("placement=") for word in overrides) else ("placement=colocated", *overrides)
    )
    return stepgraph.compile(stepgraph.load("grpo", words)), overrides


def made(step: dict[str, Any], resources: dict[str, Any], steps: int, **more: Any) -> tuple[Plan, tuple[str, ...]]:
    graph = spec.parse({"name": "made", "resources": resources, "step": step, **more}, None, {"steps": steps})
    return stepgraph.compile(graph), (f"run.steps={steps}",)


def stale() -> tuple[Plan, tuple[str, ...]]:
    """Two warnings: an eval and a judge that look at weights which are synced every fourth step only."""
    return shipped(
        "run.steps=12",
        "placement=split",
        "graph.step.sync_weights.when.every=4",
        "graph.step.eval.when.every=3",
        "graph.step.judge={use: judge.look, reads: [engine], writes: [scores], when: {every: 2}}",
    )


def long_names() -> tuple[Plan, tuple[str, ...]]:
    """Names of 30 characters, of phases and of resources."""
    policy, engine = "policy_weights_and_optimizer_x", "engine_weights_of_every_rank_x"
    step = {
        "generate_the_rollouts_of_step": {
            "use": "engine.generate",
            "reads": [engine],
            "needs": {engine: "device"},
            "writes": ["rollouts"],
        },
        "offload_the_inference_engine_x": {"use": "engine.offload", "moves": {engine: "host"}},
        "reload_the_policy_for_training": {"use": "trainer.reload", "moves": {policy: "device"}},
        "train_the_policy_on_rollouts_x": {
            "use": "trainer.train",
            "reads": ["rollouts"],
            "updates": [policy],
            "needs": {policy: "device", engine: "!device"},
        },
        "offload_the_policy_to_the_host": {"use": "trainer.offload", "moves": {policy: "host"}},
        "reload_the_inference_engine_xx": {"use": "engine.reload", "moves": {engine: "device"}},
        "copy_the_policy_to_the_engine_": {
            "use": "engine.sync",
            "copies": {engine: policy},
            "needs": {engine: "device"},
        },
    }
    start = {"reload_the_inference_engine_xx": None, "copy_the_policy_to_the_engine_": None}
    resources = {policy: {"kind": "weights", "of": "trainer"}, engine: {"kind": "weights", "of": "engine"}}
    return made(step, resources, 5, start=start, keep={policy: "any"})


def sixty() -> tuple[Plan, tuple[str, ...]]:
    """Sixty phases: a fan-out of twenty readers, gathered, and a chain."""
    step: dict[str, Any] = {"source": {"use": "s.run", "writes": ["x"]}}
    step |= {f"read{i}": {"use": f"r{i}.run", "reads": ["x"], "writes": [f"y{i}"]} for i in range(20)}
    step |= {"gather": {"use": "g.run", "reads": [f"y{i}" for i in range(20)], "writes": ["z0"]}}
    step |= {f"chain{i}": {"use": f"c{i}.run", "reads": [f"z{i}"], "writes": [f"z{i + 1}"]} for i in range(38)}
    return made(step, {}, 3)


def other_places() -> tuple[Plan, tuple[str, ...]]:
    """A phase with many parts, of which some remain."""
    names = [f"shard{i}" for i in range(6)]
    step = {
        "load": {"use": "t.load", "moves": dict.fromkeys(names, "device")},
        "train": {"use": "t.train", "needs": dict.fromkeys(names[:3], "device")},
        "park": {"use": "t.park", "moves": dict.fromkeys(names, "disk")},
        "rest": {"use": "t.rest", "needs": dict.fromkeys(names[:3], "!device")},
    }
    return made(step, dict.fromkeys(names, "weights"), 4, places=["disk"])


def as_declared() -> tuple[Plan, tuple[str, ...]]:
    graph = stepgraph.load("grpo", ["placement=split", "run.steps=4"])
    return stepgraph.compile(graph, passes=()), ("run.steps=4", "placement=split", "passes=[]")


PLANS: dict[str, Callable[[], tuple[Plan, tuple[str, ...]]]] = {
    "colocated_36": lambda: shipped("run.steps=36"),
    "split_36": lambda: shipped("run.steps=36", "placement=split"),
    "kv_only_36": lambda: shipped("run.steps=36", "placement=kv_only"),
    "one_step": lambda: shipped("run.steps=1"),
    "no_steps": lambda: shipped("run.steps=0"),
    "no_steps_with_eval": lambda: shipped("run.steps=0", "graph.start.eval.enabled=true"),
    "resumed": lambda: shipped("run.steps=36", "run.first=10"),
    "already_complete": lambda: shipped("run.steps=36", "run.first=36"),
    "ahead": lambda: shipped("run.steps=6", "placement=split", "graph.step.generate.ahead=1"),
    "sizes_and_capacity": lambda: shipped("run.steps=20", SIZES, "placement.capacity={device: 80}"),
    "sizes_kv_only": lambda: shipped("run.steps=20", "placement=kv_only", SIZES),
    "warnings": stale,
    "many_variants": lambda: shipped(
        "run.steps=200",
        "graph.step.eval.when.every=7",
        "graph.step.save.when.every=5",
        "graph.step.log={use: tracker.log, reads: [rewards], when: {steps: [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]}}",
        "graph.step.audit={use: audit.look, reads: [rollouts], when: {every: 3}}",
    ),
    "a_million": lambda: shipped("run.steps=1000000"),
    "keep_engine": lambda: shipped("run.steps=4", "graph.keep.engine=device"),
    "disabled": lambda: shipped("run.steps=4", "graph.step.save.enabled=false", "graph.step.eval.enabled=false"),
    "only_the_run_knows": lambda: shipped("run.steps=4", "graph.step.save.when={file: save_now}"),
    "as_declared": as_declared,
    "long_names": long_names,
    "sixty_phases": sixty,
    "many_parts": other_places,
    "empty": lambda: made({}, {}, 3),
}


def golden(name: str, text: str) -> str:
    """What is written down. A file that is missing is written, and the test fails so that somebody reads it."""
    path = GOLDEN / f"{name}.txt"
    if not path.is_file():
        path.write_text(text + "\n", encoding="utf-8")
        pytest.fail(f"{path.name} was missing and is written now: read it")
    return path.read_text(encoding="utf-8").removesuffix("\n")


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_told_as_it_is_written_down(name: str) -> None:
    plan, words = PLANS[name]()
    text = plan_text(plan, words)
    assert text == golden(name, text)


TO_PASTE = re.compile(r"[A-Z][a-z?]+:? +stepgraph ")


@pytest.mark.parametrize("name", PLANS)
def test_no_line_is_wider_than_a_terminal_but_those_that_are_to_be_pasted(name: str) -> None:
    plan, words = PLANS[name]()
    wide = [line for line in plan_text(plan, words).splitlines() if len(line) > 80]
    assert [line for line in wide if not TO_PASTE.match(line)] == []


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_no_spaces_at_the_end_of_a_line_and_no_two_empty_lines(name: str) -> None:
    plan, words = PLANS[name]()
    text = plan_text(plan, words)
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert "\n\n\n" not in text


def test_the_users_own_words_can_be_pasted_into_a_shell() -> None:
    plan, _ = PLANS["one_step"]()
    last = plan_text(plan, ("run.steps=1", "graph.step.x={use: a.b, when: {every: 2}}")).splitlines()[-1]
    assert last == "Declared: stepgraph plan passes=[] run.steps=1 'graph.step.x={use: a.b, when: {every: 2}}'"
