"""The embedded trainer: it learns, it can be put away without a trace, and what it saves can be read by others."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stepgraph.components.torch import TorchTrainer
from stepgraph.components.torch.ask import answer
from stepgraph.errors import ConfigError, RunError

pytestmark = pytest.mark.torch


def refused(call, *arguments, **options):
    with pytest.raises(RunError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_parking_in_between_changes_no_loss_and_no_weight(loop, weights, same):
    moved, kept = loop(trainer={"kl": 0.1}, name="moved"), loop(trainer={"kl": 0.1}, name="kept")
    for made in (moved, kept):
        made.sync()
    for seed in range(4):
        for place in ("host", "device"):
            moved.trainer.offload(moved.ctx(), {"policy": place})
            moved.engine.offload(moved.ctx(), {"engine": place})
        one, other = moved.step(seed), kept.step(seed)
        assert {k: v for k, v in one.items() if "perf" not in k} == {k: v for k, v in other.items() if "perf" not in k}
    assert same(weights(moved.trainer), weights(kept.trainer))


def test_optimizer_state_is_parked_with_the_policy(loop):
    made = loop()
    made.sync()
    made.step(0)
    made.trainer.offload(made.ctx(), {"policy": "host"})
    tensors = [t for state in made.trainer._optimizer.state.values() for t in state.values()]
    assert tensors
    assert all(tensor.numel() == 0 for tensor in tensors)


def test_a_parked_policy_refuses_to_train_and_to_save(loop):
    made = loop()
    made.sync()
    rollouts = made.generate()
    made.trainer.offload(made.ctx(), {"policy": "host"})
    assert "trainer.train needs 'policy' on the device, but it is at 'host'" in refused(made.train, rollouts)
    assert "trainer.save needs 'policy' on the device" in refused(made.trainer.save, made.ctx())
    made.trainer.reload(made.ctx(), {"policy": "device"})
    made.train(rollouts)


def test_weights_can_be_taken_from_where_the_policy_is_parked(loop, weights, same):
    made = loop(places={"policy": "host"})
    made.sync()
    taken = weights(made.engine)
    assert made.trainer._model.lm_head.weight.numel() == 0
    made.trainer.reload(made.ctx(), {"policy": "device"})
    assert same(taken, weights(made.trainer))


def test_dropped_weights_are_given_to_nobody(loop):
    made = loop()
    made.trainer.offload(made.ctx(), {"policy": "none"})
    assert "its contents were dropped" in refused(made.trainer.weights, "policy")
    made.trainer.reload(made.ctx(), {"policy": "device"})
    assert "its contents were dropped" in refused(made.trainer.save, made.ctx())


def test_weights_that_were_asked_for_before_an_update_are_not_given_after_it(loop):
    made = loop()
    made.sync()
    asked = made.trainer.weights("policy")
    made.train(made.generate())
    assert "was at version 0 when it was asked for, and is at 1 now" in refused(lambda: list(asked.tensors()))


def test_the_version_counts_updates_and_staleness_is_the_distance(loop):
    made = loop()
    made.sync()
    rollouts = made.generate()
    assert made.train(rollouts)["staleness"] == 0
    assert made.train(rollouts)["staleness"] == 1
    assert made.trainer.version("policy") == 2


def test_no_optimizer_is_made_before_the_first_update(loop):
    made = loop()
    assert made.trainer._optimizer is None
    made.sync()
    made.train(made.generate())
    assert made.trainer._optimizer is not None


def test_micro_batches_change_the_memory_and_not_the_update(loop, weights):
    whole, parts = loop(name="whole"), loop(trainer={"micro_batch": 3}, name="parts")
    for made in (whole, parts):
        made.sync()
    rewards = [float(i % 3) for i in range(16)]
    one, other = (made.train(made.generate(), rewards) for made in (whole, parts))
    assert one["policy/grad_norm"] == pytest.approx(other["policy/grad_norm"], rel=1e-4)
    assert one["policy/loss"] == pytest.approx(other["policy/loss"], abs=1e-6)
    pairs = zip(weights(whole.trainer).values(), weights(parts.trainer).values(), strict=True)
    assert max((a - b).abs().max().item() for a, b in pairs) < 2e-3


def test_answers_that_are_all_equal_teach_nothing(loop, weights, same):
    made = loop()
    made.sync()
    before = weights(made.trainer)
    metrics = made.train(made.generate(), [0.5] * 16)
    assert metrics["policy/grad_norm"] == 0
    assert same(weights(made.trainer), before)


def test_the_reference_holds_the_policy_near_its_first_weights(loop):
    apart = {}
    for kl in (1e-9, 5.0):
        made = loop(trainer={"kl": kl, "lr": 3e-3}, name=f"kl{kl}")
        made.sync()
        apart[kl] = [made.step(seed)["policy/kl"] for seed in range(12)]
    assert apart[5.0][0] == 0
    assert sum(apart[5.0]) < 0.7 * sum(apart[1e-9])


def test_more_epochs_take_more_steps_and_may_clip(loop):
    made = loop(trainer={"epochs": 4, "lr": 1e-2})
    made.sync()
    assert made.train(made.generate(), [float(i % 4) for i in range(16)])["policy/clip_fraction"] > 0
    assert made.trainer.version("policy") == 1


def test_a_gradient_that_is_not_finite_leaves_the_policy_as_it_was(loop, weights, same):
    made = loop()
    made.sync()
    before = weights(made.trainer)
    broken = [replace(r, logprobs=(float("nan"),) * len(r.tokens)) for r in made.generate()]
    assert "gradient of norm nan" in refused(made.train, broken, [float(i % 4) for i in range(16)])
    assert same(weights(made.trainer), before)
    assert made.trainer.version("policy") == 0


def test_one_answer_a_prompt_is_nothing_to_compare(loop):
    made = loop(engine={"group": 1})
    made.sync()
    assert "set engine.group to 2 or more" in refused(made.train, made.generate())


def test_a_finite_reward_for_each_rollout_is_wanted(loop):
    made = loop()
    made.sync()
    assert "a reward that is not finite" in refused(made.train, made.generate(), [float("nan")] * 16)
    assert "got 16 rollouts and 2 rewards" in refused(made.train, made.generate(), [1.0, 0.0])


def test_a_checkpoint_is_loaded_and_asked_by_transformers_alone(loop, weights, same):
    made = loop()
    made.sync()
    made.step(0)
    folder = made.trainer.save(made.ctx())["ckpt"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert same(dict(model.state_dict()), weights(made.trainer))
    assert tokenizer("12=")["input_ids"] == [4, 5, 13]
    made.engine._max_new = 3
    prompt = made.data.eval_prompts()[0]
    expected = made.engine._answer([prompt], 1, 0.0, 0)[0].text
    assert answer(folder, prompt.text, 3) == expected


def test_a_resumed_trainer_goes_on_to_the_last_bit(loop, weights, same):
    whole = loop(name="whole")
    whole.sync()
    for seed in range(3):
        whole.step(seed)
    folder = whole.trainer.save(whole.ctx())["ckpt"]
    resumed = loop(name="resumed")
    resumed.trainer.load(folder)
    resumed.prompts.seek(3)
    resumed.sync()
    assert resumed.trainer.version("policy") == resumed.engine.version("engine") == 3
    for seed in range(3, 6):
        one, other = whole.step(seed), resumed.step(seed)
        assert (one["policy/loss"], one["reward/mean"]) == (other["policy/loss"], other["reward/mean"])
    assert same(weights(whole.trainer), weights(resumed.trainer))


def test_loading_leaves_the_policy_where_it_is(loop, weights, same):
    made, parked = loop(name="made"), loop(places={"policy": "host"}, name="parked")
    made.sync()
    made.step(0)
    parked.trainer.load(made.trainer.save(made.ctx())["ckpt"])
    assert parked.trainer._model.lm_head.weight.numel() == 0
    parked.trainer.reload(parked.ctx(), {"policy": "device"})
    assert same(weights(parked.trainer), weights(made.trainer))


def test_loading_replaces_contents_that_were_dropped(loop, weights, same):
    made, other = loop(name="made"), loop(name="other")
    other.trainer.offload(other.ctx(), {"policy": "none"})
    folder = made.trainer.save(made.ctx())["ckpt"]
    assert "it is at 'none'; reload it first" in refused(other.trainer.load, folder)
    other.trainer.reload(other.ctx(), {"policy": "device"})
    other.trainer.load(folder)
    other.sync()
    assert same(weights(other.engine), weights(made.trainer))


def test_a_checkpoint_that_is_not_there_or_cut_short_is_refused(loop, tmp_path):
    made = loop()
    assert "no checkpoint to load" in refused(made.trainer.load, tmp_path / "nowhere")
    folder = made.trainer.save(made.ctx())["ckpt"]
    file = made.shared.run_dir / "checkpoint-0" / "trainer.pt"
    file.write_bytes(file.read_bytes()[:100])
    assert "cannot be read" in refused(made.trainer.load, folder)


def test_a_checkpoint_of_another_model_is_refused(loop, section):
    small = section("model", "tiny").options
    small["config"]["intermediate_size"] = 96
    other = loop(model=small, name="small")
    folder = other.trainer.save(other.ctx())["ckpt"]
    assert "is of another model" in refused(loop().trainer.load, folder)


def test_asking_a_folder_without_a_model_is_refused(tmp_path):
    assert "has no config.json" in refused(answer, tmp_path, "12=", 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 0.0},
        {"micro_batch": 0},
        {"epochs": 0},
        {"clip": -1},
        {"kl": -0.1},
        {"lr": "fast"},
        {"betas": [0.9]},
        {"betas": [0.9, 1.5]},
    ],
)
def test_options_that_make_no_sense_are_refused(shared, wrong):
    with pytest.raises(ConfigError, match=rf"trainer\.{next(iter(wrong))}="):
        TorchTrainer(shared(), **wrong)


@pytest.mark.slow
def test_the_digits_task_is_learnt_from_nothing(loop):
    made = loop(engine={"group": 8}, data={"task": "digits", "batch": 32, "eval_size": 64})
    made.sync()
    rewards = [made.step(seed)["reward/mean"] for seed in range(150)]
    assert rewards[0] < 0.15
    assert sum(rewards[-10:]) / 10 > 0.8
    assert made.engine.evaluate(made.ctx())["scores"]["reward"] > 0.9
    assert torch.get_num_threads() == 1
