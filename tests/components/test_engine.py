"""The embedded engine: it samples with a copy of the policy, and refuses to when it has none or is put away."""

import pytest
import torch

from stepgraph.components.torch import TorchEngine
from stepgraph.components.torch.park import anonymous_bytes
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Weights

pytestmark = pytest.mark.torch
PARKED = {"engine": "host", "kv": "none", "policy": "host"}


def refused(call, *arguments, **options):
    with pytest.raises(RunError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_prompt_gets_a_group_of_answers_stamped_with_the_policys_version(loop):
    made = loop()
    made.sync()
    rollouts = made.generate()
    assert len(rollouts) == 16
    assert [r.group for r in rollouts] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert {r.version for r in rollouts} == {0}
    assert all(len(r.tokens) == len(r.logprobs) <= 3 for r in rollouts)
    assert made.prompts.cursor == 1


def test_a_rerun_gives_the_same_rollouts(loop):
    one, other = loop(name="one"), loop(name="other")
    one.sync()
    other.sync()
    assert one.generate(seed=9) == other.generate(seed=9)


def test_the_engine_has_a_copy_that_only_a_sync_changes(loop, weights, same):
    made = loop()
    made.sync()
    before = weights(made.engine)
    rollouts = made.generate()
    made.train(rollouts)
    assert same(weights(made.engine), before)
    assert not same(weights(made.trainer), before)
    assert made.engine.version("engine") == 0
    made.sync()
    assert same(weights(made.engine), weights(made.trainer))
    assert made.engine.version("engine") == 1


def test_before_any_sync_there_is_nothing_to_sample_with(loop):
    made = loop()
    assert made.engine.version("engine") == -1
    assert "engine.generate before any sync" in refused(made.generate)
    assert "engine.evaluate before any sync" in refused(made.engine.evaluate, made.ctx())
    assert made.prompts.cursor == 0


@pytest.mark.parametrize(("resource", "place"), [("engine", "host"), ("kv", "none")])
def test_what_is_put_away_must_come_back_first(loop, resource, place):
    made = loop()
    made.sync()
    made.engine.offload(made.ctx(), {resource: place})
    assert f"needs '{resource}' on the device, but it is at '{place}'" in refused(made.generate)
    made.engine.reload(made.ctx(), {resource: "device"})
    assert len(made.generate()) == 16


def test_everything_starts_where_the_graph_says(loop):
    made = loop(places=PARKED)
    assert "it is at 'host'" in refused(made.sync)
    made.engine.reload(made.ctx(), {"engine": "device"})
    made.sync()
    assert "needs 'kv' on the device" in refused(made.generate)
    made.engine.reload(made.ctx(), {"kv": "device"})
    assert len(made.generate()) == 16


def test_being_put_away_changes_no_token(loop):
    moved, kept = loop(name="moved"), loop(name="kept")
    moved.sync()
    kept.sync()
    moved.engine.offload(moved.ctx(), {"engine": "host", "kv": "none"})
    moved.engine.reload(moved.ctx(), {"engine": "device"})
    moved.engine.reload(moved.ctx(), {"kv": "device"})
    assert moved.generate(seed=4) == kept.generate(seed=4)


def test_freeing_the_cache_frees_memory(loop):
    made = loop(engine={"kv_tokens": 32768})
    before = anonymous_bytes()
    freed = made.engine.offload(made.ctx(), {"kv": "none"})
    assert freed["kv"] > 30 << 20
    assert before - anonymous_bytes() > 30 << 20
    assert made.engine.reload(made.ctx(), {"kv": "device"})["kv"] > 30 << 20


def test_dropped_weights_must_be_synced_again(loop):
    made = loop()
    made.sync()
    made.engine.offload(made.ctx(), {"engine": "none"})
    made.engine.reload(made.ctx(), {"engine": "device"})
    assert made.engine.version("engine") == -1
    assert "before any sync" in refused(made.generate)
    made.sync()
    assert len(made.generate()) == 16


def test_the_weights_of_another_model_are_refused_by_name_and_shape(loop):
    made = loop()
    made.sync()
    wide = torch.zeros(5, 5)
    wrong = [("lm_head.weight", wide), ("extra.weight", wide)]
    message = refused(made.engine.sync, made.ctx(), {"engine": Weights(3, lambda: iter(wrong))})
    assert "lm_head.weight is (5, 5), here (16, 64), extra.weight is unknown here" in message
    assert "is missing and 25 more" in message
    assert made.engine.version("engine") == -1


def test_an_evaluation_asks_the_held_out_prompts_greedily_and_logs_the_mean(loop):
    made = loop()
    made.sync()
    ctx = made.ctx()
    found = made.engine.evaluate(ctx)["scores"]
    assert found == made.engine.evaluate(made.ctx(seed=5))["scores"]
    assert (found["n"], found["version"]) == (5, 0)
    assert ctx.metrics["eval/reward"] == found["reward"]


def test_an_evaluation_without_prompts_is_refused(loop):
    made = loop(data={"task": "digits", "batch": 2, "eval_size": 0})
    made.sync()
    assert "set data.eval_size to 1 or more" in refused(made.engine.evaluate, made.ctx())


def test_a_resource_of_another_name_is_refused(loop):
    made = loop()
    assert "engine has no resource 'engin', did you mean 'engine'?" in refused(
        made.engine.offload, made.ctx(), {"engin": "host"}
    )
    assert "'kv' holds no weights" in refused(made.engine.version, "kv")


def test_the_graph_may_call_its_resources_otherwise(shared):
    engine = TorchEngine(shared(), weights="copy", kv="cache", places={"copy": "host", "cache": "none"})
    assert engine.reload(None, {"copy": "device"}).keys() == {"copy"}
    assert engine.version("copy") == -1


@pytest.mark.parametrize("wrong", [{"group": 0}, {"kv_tokens": 0}, {"max_new_tokens": 0}, {"temperature": 0.0}])
def test_options_that_make_no_sense_are_refused(shared, wrong):
    with pytest.raises(ConfigError, match=rf"engine\.{next(iter(wrong))}"):
        TorchEngine(shared(), **wrong)


def test_the_sampling_temperature_is_the_training_temperature(loop):
    made = loop(engine={"temperature": 0.6}, trainer={"temperature": 0.6})
    made.sync()
    assert made.train(made.generate())["policy/logprob_gap"] < 1e-5
    other = loop(engine={"temperature": 0.6}, name="other")
    other.sync()
    assert other.train(other.generate())["policy/logprob_gap"] > 1e-3
