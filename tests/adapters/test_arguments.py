"""The frameworks' arguments: what is not understood is refused by its own name, and nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

import stepgraph
from stepgraph.adapters import miles, slime
from stepgraph.errors import ConfigError, GraphError

from .recordings import LOOPS, of, recordings

BASE: dict[str, Any] = {"num_rollout": 4, "num_rollout_per_epoch": 2}
EVERY: dict[str, Any] = {
    **BASE,
    "start_rollout_id": 0,
    "eval_interval": 2,
    "save_interval": 2,
    "use_critic": True,
    "num_critic_only_steps": 1,
    "offload_train": True,
}
OTHERWISE: dict[str, Any] = {
    "num_rollout": 5,
    "num_rollout_per_epoch": 3,
    "start_rollout_id": 1,
    "eval_interval": 3,
    "save_interval": 3,
    "skip_eval_before_train": True,
    "use_critic": False,
    "num_critic_only_steps": 2,
    "offload_train": False,
    "check_weight_update_equal": True,
}
"""Another value for each argument that every one of the loops reads."""


def refused(framework: Any, config: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        framework.overrides({**BASE, **config}, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("framework", [miles, slime])
def test_an_unknown_argument_is_refused_with_the_nearest_name(framework: Any) -> None:
    told = refused(framework, {"eval_intervall": 3})
    assert "'eval_intervall'" in told
    assert "did you mean 'eval_interval'?" in told


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"num_rollout": None}, "num_rollout"),
        ({"num_rollout": -1}, "num_rollout"),
        ({"num_rollout": True}, "num_rollout"),
        ({"save_interval": 0}, "save_interval"),
        ({"eval_interval": "often"}, "eval_interval"),
        ({"use_critic": 1}, "use_critic"),
        ({"update_weights_interval": None}, "update_weights_interval"),
        ({"offload_rollout_level": ["weights"]}, "'weights', did you mean 'weight'?"),
        ({"num_critic_only_steps": 3}, "use_critic"),
        ({"debug_exit_after_rollout": 0}, "debug_exit_after_rollout"),
        ({"num_rollout": None, "num_epoch": 2, "num_rollout_per_epoch": None}, "num_rollout_per_epoch"),
        ({"fully_async": True}, "fully_async"),
        ({"colocate_memory_peak_device": "gpu"}, "colocate_memory_peak_device"),
    ],
)
def test_what_makes_no_sense_or_another_loop_is_refused_by_its_own_name(config: dict[str, Any], named: str) -> None:
    told = refused(miles, config)
    assert told.startswith("miles: ")
    assert named in told


def test_slime_has_no_debug_exit() -> None:
    assert "debug_exit_after_rollout" in refused(slime, {"debug_exit_after_rollout": 2})


@pytest.mark.parametrize("name", ["colocate", "offload_rollout"])
@pytest.mark.parametrize("loop", ["miles_async", "slime_async"])
def test_an_async_loop_does_not_share_devices(loop: str, name: str) -> None:
    assert f"{name} with the async loop" in refused(of(loop), {name: True}, loop=loop)


def test_a_loop_of_another_name_is_refused() -> None:
    assert "did you mean 'miles_sync'?" in refused(miles, {}, loop="mile_sync")


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_ignored_changes_nothing_and_what_is_not_changes_the_graph(loop: str) -> None:
    adapter = of(loop)
    plain = adapter.overrides(EVERY, loop)
    harmless = {"lr": 1e-6, "update_weights_interval": 7, "offload_rollout_level": ["weight"], "offload_rollout": False}
    config = {**EVERY, "eval_interval": 2, **harmless}
    for name in adapter.ignored(config, loop):
        assert adapter.overrides({**EVERY, name: config[name]}, loop) == plain, name
    for name, value in OTHERWISE.items():
        changed = {**EVERY, name: value, **({"num_critic_only_steps": 0} if name == "use_critic" else {})}
        said = name in adapter.ignored({name: value, **BASE} if name != "num_critic_only_steps" else changed, loop)
        assert said == (adapter.overrides(changed, loop) == plain), name


def test_arguments_without_a_meaning_for_a_loop_are_listed() -> None:
    config = {**BASE, "lr": 1e-6, "update_weights_interval": 2, "offload_rollout_level": ["weight"]}
    assert miles.ignored(config, "miles_sync") == ["lr", "update_weights_interval"]
    assert miles.ignored(config, "miles_async") == ["lr", "offload_rollout_level"]
    assert slime.ignored(config, "slime_sync") == ["lr", "update_weights_interval", "offload_rollout_level"]
    assert slime.ignored(config, "slime_async") == ["lr", "offload_rollout_level"]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_long_run_has_no_more_overrides_than_a_short_one(loop: str) -> None:
    few = of(loop).overrides({**EVERY, "num_rollout": 3}, loop)
    many = of(loop).overrides({**EVERY, "num_rollout": 3_000_000}, loop)
    assert len(few) == len(many) <= 60
    assert sum(map(len, many)) <= sum(map(len, few)) + 20


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_of_a_million_steps_compiles_at_once(loop: str) -> None:
    plan = of(loop).plan(loop, {**EVERY, "num_rollout": 1_000_000})
    assert plan.steps == 1_000_000
    assert len(plan.variants) < 20


def test_colocate_implies_both_offloads() -> None:
    both = miles.overrides({**BASE, "offload_train": True, "offload_rollout": True})
    assert miles.overrides({**BASE, "colocate": True}) == both


def test_epochs_say_how_long_a_run_is() -> None:
    assert miles.overrides({"num_epoch": 3, "num_rollout_per_epoch": 2})[:2] == ["run.first=0", "run.steps=6"]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_file_as_it_stands_is_a_legal_graph(loop: str) -> None:
    placement = "split" if loop.endswith("async") else "colocated"
    plan = stepgraph.compile(stepgraph.load(loop, [f"placement={placement}", "run.steps=40"]))
    assert not [warning for warning in plan.warnings if "stale" in warning]


@pytest.mark.parametrize("loop", ["miles_async", "slime_async"])
def test_the_file_of_an_async_loop_refuses_to_be_colocated(loop: str) -> None:
    with pytest.raises(GraphError, match="colocated"):
        stepgraph.compile(stepgraph.load(loop, ["placement=colocated", "run.steps=3"]))


@pytest.mark.parametrize("loop", LOOPS)
def test_every_recorded_configuration_is_understood(loop: str) -> None:
    for row in recordings(loop):
        assert "eval_interval" not in of(loop).ignored(row["config"], loop)
