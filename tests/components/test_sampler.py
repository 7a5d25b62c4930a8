"""Sampling: the right distribution, the right probabilities, and the same tokens for the same seed."""

import pytest
import torch

from stepgraph.components.torch.batch import answer_logprobs, collate
from stepgraph.components.torch.kv import KvBuffer
from stepgraph.components.torch.model import build_model
from stepgraph.components.torch.sampler import Sampling, draw, sample
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Prompt, Rollout

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
PROMPTS = [[3, 4, 5, 13], [6, 13], [7, 8, 9, 10, 11, 13]]  # of different lengths, so that some are padded


@pytest.fixture
def model(section):
    spec = ModelSpec.of(section("model", "tiny").options)
    built = build_model(spec, 0, CPU)
    with torch.no_grad():
        for weight in built.parameters():
            weight.mul_(3)  # far from uniform, so that a wrong mask or position shows
    return built


def buffer(model, tokens=512):
    return KvBuffer(model.config, tokens, torch.float32, CPU)


def how(**change):
    return Sampling(**{"group": 3, "max_new": 5, "temperature": 1.0, "eos": None, "pad": 0, "seed": 1, **change})


def rollouts(prompts, answers, group):
    asked = [prompt for prompt in prompts for _ in range(group)]
    pairs = zip(asked, answers, strict=True)
    return [Rollout(Prompt("", "", 0), tuple(p), a.tokens, a.logprobs, "", 0, 0) for p, a in pairs]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("eos", [None, 1])
def test_the_sampled_probabilities_are_those_that_training_computes(model, temperature, eos):
    answers = sample(model, buffer(model), PROMPTS, how(temperature=temperature, eos=eos, max_new=6))
    batch = collate(rollouts(PROMPTS, answers, 3), 0, CPU)
    with torch.no_grad():
        again = answer_logprobs(model, batch, temperature)
    assert ((again - batch.old) * batch.mask).abs().max() < 1e-4


def test_the_likeliest_tokens_are_those_of_transformers(model):
    answers = sample(model, buffer(model), PROMPTS, how(group=1, temperature=0.0, max_new=6))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert tuple(made[0, len(prompt) :].tolist()) == answer.tokens


def test_a_seed_gives_the_same_tokens_and_another_seed_others(model):
    one, again, other = (sample(model, buffer(model), PROMPTS, how(seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert [a.tokens for a in one] != [a.tokens for a in other]


def test_a_group_is_not_the_same_answer_again_and_again(model):
    answers = sample(model, buffer(model), PROMPTS[:1], how(group=16))
    assert len({a.tokens for a in answers}) > 8


def test_a_cache_for_one_prompt_at_a_time_gives_the_same_tokens(model):
    roomy, tight = (sample(model, buffer(model, tokens), PROMPTS, how()) for tokens in (512, 33))
    assert [a.tokens for a in roomy] == [a.tokens for a in tight]


def test_a_cache_too_small_for_one_prompt_is_refused_with_its_cure(model):
    with pytest.raises(RunError, match=r"take 33 tokens, but the KV cache holds 32; set engine\.kv_tokens=33 or more"):
        sample(model, buffer(model, 32), PROMPTS, how())


def test_a_prompt_longer_than_the_model_reads_is_refused(model):
    with pytest.raises(RunError, match="take 70 tokens, but the model reads 64"):
        sample(model, buffer(model), [[3] * 65], how())


def test_an_answer_ends_with_its_end_token(model):
    answers = sample(model, buffer(model, 4096), PROMPTS, how(eos=1, max_new=20, group=8))
    ended = [a for a in answers if 1 in a.tokens]
    assert ended
    assert all(a.tokens.index(1) == len(a.tokens) - 1 for a in ended)
    assert all(len(a.tokens) == len(a.logprobs) for a in answers)
    assert all(len(a.tokens) == 20 for a in answers if 1 not in a.tokens)


def test_tokens_are_drawn_as_often_as_they_are_likely():
    likely = torch.tensor([0.5, 0.0, 0.3, 0.2])
    noise = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    token, logprob = draw(likely.log().expand(20_000, 4), noise, 1.0)
    share = torch.bincount(token, minlength=4) / 20_000
    assert (share - likely).abs().max() < 0.02
    assert share[1] == 0
    assert torch.allclose(logprob.exp(), likely[token])


def test_temperature_sharpens_and_the_probability_is_the_sharpened_one():
    logits = torch.tensor([[1.0, 0.0]])
    _, logprob = draw(logits, torch.zeros(1, dtype=torch.float64), 0.5)
    assert logprob.item() == pytest.approx((logits / 0.5).log_softmax(-1)[0, 0].item())


def test_the_ends_of_the_noise_give_tokens_too():
    for number, token in ((0.0, 0), (1.0 - 2**-53, 1)):
        assert draw(torch.zeros(1, 2), torch.tensor([number], dtype=torch.float64), 1.0)[0].item() == token


def test_layers_without_keys_and_values_are_refused(model):
    model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ConfigError, match="no KV cache for linear_attention layers"):
        buffer(model)
