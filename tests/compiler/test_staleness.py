"""How many updates old the training data is, and who says so."""

from __future__ import annotations

import re
from typing import Any

import pytest

import stepgraph
from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.errors import GraphError

from .made import grpo, plan

WEIGHTS = {"policy": "weights", "engine": "weights", "prompts": "stream", "scores": "sink"}


def loop(steps: int = 8, ahead: int = 0, sync: Any = None, look: Any = None, **more: Any) -> Plan:
    """Generate, train, sync, look; ``sync`` and ``look`` are gates."""
    step = {
        "generate": {"reads": ["engine"], "updates": ["prompts"], "writes": ["rollouts"], "ahead": ahead},
        "train": {"reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"copies": {"engine": "policy"}, **({"when": sync} if sync else {})},
        "look": {"reads": ["engine"], "writes": ["scores"], "when": look or {"every": None}},
    }
    return plan(step, WEIGHTS, start={"sync": None}, steps=steps, **more)


def refusal(limit: int, **words: Any) -> str:
    step = {
        "generate": {"use": "g.run", "reads": ["engine"], "writes": ["rollouts"], "ahead": words.get("ahead", 0)},
        "train": {"use": "t.run", "reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"use": "s.run", "copies": {"engine": "policy"}, "when": words.get("sync", {})},
    }
    graph = spec.parse({"resources": WEIGHTS, "start": {"sync": None}, "step": step}, max_staleness=limit)
    with pytest.raises(GraphError) as refused:
        stepgraph.compile(graph, steps=10)
    return str(refused.value)


def test_a_loop_that_syncs_every_step_trains_on_its_own_data() -> None:
    assert loop().staleness == 0
    assert grpo().staleness == 0
    assert grpo().to_dict()["staleness"] == {"max": 0}


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_generating_ahead_makes_the_data_that_many_updates_old(ahead: int) -> None:
    assert loop(ahead=ahead).staleness == ahead


def test_a_run_too_short_for_the_data_to_get_old_is_not_called_stale() -> None:
    assert loop(ahead=1, steps=1).staleness == 0


@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_a_sync_every_few_steps_leaves_the_data_up_to_that_many_less_one_behind(every: int) -> None:
    assert loop(sync={"every": every}).staleness == every - 1


def test_interval_and_ahead_add_up() -> None:
    assert loop(ahead=1, sync={"every": 3}).staleness == 3


def test_an_engine_that_is_never_synced_again_falls_behind_by_the_whole_run() -> None:
    assert loop(steps=20, sync={"every": None}).staleness == 19


def test_more_than_max_staleness_is_refused_with_the_first_phase_and_step() -> None:
    assert refusal(2, sync={"every": 5}) == (
        "train in step 3 trains on rollouts that is 3 updates behind, over max_staleness=2: "
        "copy the weights more often, run less far ahead, or raise max_staleness"
    )
    assert re.match(r"train in step 1 trains on rollouts that is 1 updates? behind, over", refusal(0, ahead=1))


def test_a_limit_above_what_is_counted_by_default_is_counted_too() -> None:
    step = {
        "generate": {"use": "g.run", "reads": ["engine"], "writes": ["rollouts"]},
        "train": {"use": "t.run", "reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"use": "s.run", "copies": {"engine": "policy"}, "when": {"every": None}},
    }
    graph = spec.parse({"resources": WEIGHTS, "start": {"sync": None}, "step": step}, max_staleness=100)
    assert stepgraph.compile(graph, steps=101).staleness == 100
    with pytest.raises(GraphError, match="train in step 101 trains on rollouts that is 101 updates behind"):
        stepgraph.compile(graph, steps=102)


def test_as_stale_as_allowed_is_accepted() -> None:
    assert grpo("max_staleness=0").staleness == 0


def test_a_score_of_weights_that_are_behind_is_warned_of_once() -> None:
    made = loop(sync={"every": 4}, look={"every": 1})
    assert made.warnings == ("look in step 0 reads engine behind policy by 1 update: stale weights",)
    assert made.to_dict()["warnings"] == list(made.warnings)


def test_a_score_of_weights_that_were_just_synced_is_not_warned_of() -> None:
    assert loop(look={"every": 1}).warnings == ()


def test_a_resumed_run_counts_its_steps_from_where_it_goes_on() -> None:
    made = loop(first=3, steps=8, sync={"steps": [7]}, look={"steps": [5]})
    assert made.warnings == ("look in step 5 reads engine behind policy by 3 updates: stale weights",)


def test_a_reference_model_that_is_meant_to_stay_behind_is_no_training_data_of_itself() -> None:
    step = {"train": {"reads": ["policy"], "updates": ["policy"]}}
    assert plan(step, WEIGHTS, steps=5).staleness == 0
