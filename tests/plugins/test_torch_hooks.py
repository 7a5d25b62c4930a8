"""Hooks in the embedded engine and trainer: what they change, and that nothing changes where they say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small import DIGITS, tiny

torch = pytest.importorskip("torch")

from stepgraph.algorithms import grpo  # noqa: E402
from stepgraph.errors import RunError  # noqa: E402
from stepgraph.hooks import adapted  # noqa: E402
from stepgraph.runtime.contract import Shared  # noqa: E402
from stepgraph.styles import Sample  # noqa: E402

pytestmark = pytest.mark.torch


class Context:
    """What the runtime gives, with hooks as the binding adapts them."""

    def __init__(self, components: Any = None, **hooks: Any) -> None:
        self.hooks = {slot: adapted(slot, hook, f"phase.hooks.{slot}") for slot, hook in hooks.items()}
        self.components, self.seed, self.step, self.phase = components or {}, 1, 0, "phase"
        self.metrics: dict[str, float] = {}

    def log(self, **metrics: float) -> None:
        self.metrics |= metrics


class Loop:
    """An engine and a trainer that share their first weights, and the data between them."""

    def __init__(self, folder: Path) -> None:
        from stepgraph.components.torch import TorchEngine, TorchTrainer
        from stepgraph.data import Data, Rewards

        shared = Shared(tiny(), DIGITS, 0, folder, "cpu")
        self.engine = TorchEngine(shared, group=4, places={"engine": "device", "kv": "device"})
        self.trainer = TorchTrainer(shared, places={"policy": "device"})
        self.prompts, self.rewards = Data(shared, **DIGITS).stream("prompts"), Rewards(shared)
        self.engine.sync(Context(), {"engine": self.trainer.weights("policy")})

    def generate(self, **hooks: Any) -> list[Any]:
        context = Context({"rewards": self.rewards}, **hooks)
        return list(self.engine.generate(context, self.prompts)["rollouts"])

    def train(self, rollouts: list[Any], **hooks: Any) -> dict[str, float]:
        rewards, context = [float(i % 2) for i in range(len(rollouts))], Context(**hooks)
        self.trainer.train(context, rollouts, rewards)
        return context.metrics

    def weights(self) -> Any:
        return torch.cat([tensor.flatten() for _, tensor in self.trainer.weights("policy").tensors()])


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def test_a_reward_hook_scores_as_it_is_generated_and_the_rewards_component_keeps_that(loop: Loop) -> None:
    made = loop.generate(reward=lambda rollout: 7.0)
    assert {one.reward for one in made} == {7.0}
    assert set(loop.rewards.score(Context(), made)["rewards"]) == {7.0}


def test_a_filter_takes_batches_until_one_is_full(loop: Loop) -> None:
    made = loop.generate(filter=lambda rollouts: rollouts[0].group % 4 == 0)
    assert sorted({one.group for one in made}) == [0, 4, 8, 12]
    assert loop.prompts.cursor == 4


def test_further_batches_draw_numbers_of_their_own(loop: Loop) -> None:
    made = loop.generate(filter=lambda rollouts: rollouts[0].group % 4 == 0)
    assert len({tuple(one.logprobs) for one in made}) > 4


async def generate(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    output = args.engine({"text": sample.prompt, "sampling_params": {**sampling_params, "max_new_tokens": 2}})
    ids = args.tokenizer(sample.prompt)["input_ids"]
    sample.tokens, sample.response_length = [*ids, *output["output_ids"], 5], len(output["output_ids"]) + 1
    sample.rollout_log_probs = [logprob for logprob, _, _ in output["meta_info"]["output_token_logprobs"]] + [0.0]
    sample.loss_mask, sample.status = [1] * len(output["output_ids"]) + [0], Sample.Status.COMPLETED
    sample.response = output["text"]
    return sample


def test_a_slime_rollout_function_drives_the_engine_and_its_mask_reaches_the_loss(loop: Loop) -> None:
    made = loop.generate(rollout=generate)
    assert (len(made), {one.version for one in made}) == (16, {0})
    assert all(one.mask[-1] == 0 and one.tokens[-1] == 5 for one in made)
    seen: list[Any] = []

    def loss(new: Any, old: Any, advantage: Any, mask: Any, **terms: Any) -> Any:
        seen.append(mask)
        return grpo.loss(new, old, advantage, mask, **terms)

    assert loop.train(made, loss=loss)["policy/logprob_gap"] < 1e-4
    assert [int(row.sum()) for row in seen[0]] == [len(one.tokens) - 1 for one in made]


def test_hooks_that_say_the_same_train_the_same(tmp_path: Path) -> None:
    plain, hooked = Loop(tmp_path / "a"), Loop(tmp_path / "b")
    plain.train(plain.generate())

    def loss(new: Any, old: Any, advantage: Any, mask: Any, **terms: Any) -> Any:
        return grpo.loss(new, old, advantage, mask, **terms)

    def correction(new: Any, old: Any, mask: Any) -> Any:
        return torch.ones_like(new)

    def advantage(rewards: Any, groups: Any) -> Any:
        return grpo.advantages(rewards, groups).tolist()

    hooked.train(hooked.generate(), loss=loss, correction=correction, advantage=advantage)
    assert torch.allclose(plain.weights(), hooked.weights(), atol=1e-6)


def test_a_correction_of_nothing_trains_nothing(loop: Loop) -> None:
    before = loop.weights()
    loop.train(loop.generate(), correction=lambda new, old, mask: torch.zeros_like(new))
    assert torch.equal(before, loop.weights())


def test_an_advantage_hook_needs_no_groups(loop: Loop) -> None:
    one_each = loop.generate()[::4]
    before = loop.weights()
    loop.train(one_each, advantage=lambda rewards, groups: [reward - 0.5 for reward in rewards])
    assert not torch.equal(before, loop.weights())


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "too few advantages": (
        {"advantage": lambda rewards, groups: [1.0]},
        "train.hooks.advantage gave a tensor of [1] for 16 rewards; give one finite number each",
    ),
    "a loss that is none": (
        {"loss": lambda new, old, advantage, mask: 3.0},
        "train.hooks.loss gave a float; give one number that depends on `new`",
    ),
    "a correction of another shape": (
        {"correction": lambda new, old, mask: torch.ones(3)},
        "train.hooks.correction gave a tensor of [3]; give a weight a token",
    ),
    "a correction that the loss does not take": (
        {"loss": lambda new, old, advantage, mask: new.mean(), "correction": lambda new, old, mask: mask},
        "train.hooks.loss takes no 'weights', so train.hooks.correction would be lost",
    ),
}


@pytest.mark.parametrize(("hooks", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_train_hook_that_cannot_be_used_says_why(loop: Loop, hooks: dict[str, Any], message: str) -> None:
    made = loop.generate()
    with pytest.raises(RunError) as caught:
        loop.train(made, **hooks)
    assert message in str(caught.value)
