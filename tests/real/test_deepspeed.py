"""The trainer on the real DeepSpeed: the same updates as plain torch, and nothing lost by going away or being saved."""

import gc
from dataclasses import replace

import pytest
from small import scored

pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install 'stepgraph[deepspeed]'")
torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402 (after the skip)

from stepgraph.components.deepspeed import DeepSpeedTrainer  # noqa: E402
from stepgraph.components.torch import TorchTrainer  # noqa: E402
from stepgraph.components.torch.park import anonymous_bytes  # noqa: E402
from stepgraph.errors import ConfigError, RunError  # noqa: E402

STAGES = [(0, "float32"), (1, "float32"), (1, "bfloat16"), (2, "float32"), (3, "float32"), (3, "bfloat16")]
WIDE = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8}


def update(trainer, ctx, seed):
    log = ctx()
    trainer.train(log, **scored(seed, 16, 4))
    return log.metrics["policy/loss"], log.metrics["policy/grad_norm"]


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.weights("policy").tensors()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def refused(call, *arguments):
    with pytest.raises(RunError) as error:
        call(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("micro_batch", [256, 3])
def test_its_updates_are_those_of_plain_torch(shared, ctx, stage, micro_batch):
    made, plain = DeepSpeedTrainer(shared(), stage=stage, micro_batch=micro_batch), TorchTrainer(shared())
    for step in range(3):
        assert update(made, ctx, step) == pytest.approx(update(plain, ctx, step), abs=1e-5)
    assert made.version("policy") == 3
    ours, theirs = weights(made), weights(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in ours)


@pytest.mark.parametrize(("stage", "dtype"), STAGES)
def test_going_away_and_coming_back_changes_no_bit(shared, ctx, stage, dtype):
    moved, kept = (DeepSpeedTrainer(shared(name), stage=stage, dtype=dtype) for name in ("moved", "kept"))
    for step in range(3):
        assert update(moved, ctx, step) == update(kept, ctx, step)
        there = weights(moved)
        moved.offload(ctx(), {"policy": "host"})
        assert same(weights(moved), there)
        moved.reload(ctx(), {"policy": "device"})
    assert same(weights(moved), weights(kept))


@pytest.mark.parametrize(("stage", "dtype"), STAGES)
def test_going_away_frees_memory(shared, ctx, stage, dtype):
    made = DeepSpeedTrainer(shared(num_key_value_heads=8, **WIDE), stage=stage, dtype=dtype)
    update(made, ctx, 0)
    gc.collect()
    parameters = sum(tensor.numel() for tensor in weights(made).values())
    declared = parameters * (12 if dtype == "float32" else 14)  # weights and two moments, and a copy where it is bf16
    before = anonymous_bytes()
    freed = made.offload(ctx(), {"policy": "host"})["policy"]
    assert min(freed, before - anonymous_bytes()) > 0.8 * declared
    assert made.reload(ctx(), {"policy": "device"})["policy"] > 0.8 * declared


def test_before_any_update_there_is_no_deepspeed_to_pay_for(shared, ctx):
    made = DeepSpeedTrainer(shared(), places={"policy": "host"})
    assert made._engine is None
    assert same(weights(made), weights(TorchTrainer(shared())))
    assert "it is at 'host'" in refused(update, made, ctx, 0)
    made.reload(ctx(), {"policy": "device"})
    update(made, ctx, 0)
    assert made._engine is not None


@pytest.mark.parametrize(("stage", "dtype"), STAGES)
def test_a_loaded_checkpoint_goes_on_to_the_last_bit(shared, ctx, stage, dtype):
    first, second = (DeepSpeedTrainer(shared(name), stage=stage, dtype=dtype) for name in ("first", "second"))
    for step in range(2):
        update(first, ctx, step)
    second.load(first.save(ctx())["ckpt"])
    assert second.version("policy") == 2
    assert [update(first, ctx, step) for step in (7, 8)] == [update(second, ctx, step) for step in (7, 8)]
    assert same(weights(first), weights(second))


@pytest.mark.parametrize(("stage", "tied"), [(1, False), (3, False), (3, True)])
def test_transformers_loads_what_was_saved(shared, ctx, stage, tied):
    made = DeepSpeedTrainer(shared(tie_word_embeddings=tied), stage=stage)
    update(made, ctx, 0)
    folder = made.save(ctx())["ckpt"]
    loaded = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights(made).items())
    assert AutoTokenizer.from_pretrained(folder)("305=")["input_ids"] == [6, 3, 8, 13]


def test_a_policy_that_is_parked_is_loaded_where_it_is(shared, ctx):
    first, second = DeepSpeedTrainer(shared("first")), DeepSpeedTrainer(shared("second"), places={"policy": "host"})
    update(first, ctx, 0)
    second.load(first.save(ctx())["ckpt"])
    assert "it is at 'host'" in refused(update, second, ctx, 1)
    assert same(weights(second), weights(first))


def test_what_is_no_checkpoint_is_refused(shared, ctx, tmp_path):
    made = DeepSpeedTrainer(shared())
    assert "no checkpoint to load" in refused(made.load, tmp_path)
    folder = tmp_path / "cut"
    update(made, ctx, 0)
    made.save(ctx(step=5))
    (tmp_path / "checkpoint-5").rename(folder)
    for file in (folder / "deepspeed" / "state").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    assert "cannot be loaded" in refused(made.load, folder)


def test_a_gradient_that_is_not_finite_spoils_the_policy_and_says_so(shared, ctx):
    made = DeepSpeedTrainer(shared())
    given = scored(0, 16, 4)
    odd = [replace(one, logprobs=(float("nan"),) * len(one.tokens)) for one in given["rollouts"]]
    assert "the policy is spoilt" in refused(made.train, ctx(), odd, given["rewards"])
    assert "contents were dropped" in refused(update, made, ctx, 1)


def test_a_distance_from_the_first_weights_is_part_of_the_loss(shared, ctx):
    made, plain = DeepSpeedTrainer(shared(), kl=0.1), TorchTrainer(shared(), kl=0.1)
    for step in range(3):
        assert update(made, ctx, step) == pytest.approx(update(plain, ctx, step), abs=1e-5)


@pytest.mark.parametrize(("option", "value"), [("stage", 4), ("dtype", "float16"), ("lr", 0)])
def test_an_option_that_cannot_be_is_refused(shared, option, value):
    with pytest.raises(ConfigError, match=option):
        DeepSpeedTrainer(shared(), **{option: value})
