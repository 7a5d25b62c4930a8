"""Hooks in the styles of others: functions as miles, slime, verl and TRL have them, called as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stepgraph.errors import ConfigError, RunError
from stepgraph.hooks import adapted, gather, slots
from stepgraph.runtime.contract import Prompt, Rollout
from stepgraph.styles import Making, Sample
from stepgraph.testing import Asked, run_phase


def rollout(text: str, answer: str = "42", group: int = 0, **meta: Any) -> Rollout:
    return Rollout(Prompt("6 x 7 =", answer, group, meta), (1, 2), (3, 4, 5), (-0.1, -0.2, -0.3), text, 0, group)


RIGHT, WRONG = rollout("so it is 42", data_source="gsm8k", level=3), rollout("41", data_source="gsm8k", level=1)


def reward(function: Any, rollouts: Sequence[Rollout] = (RIGHT, WRONG), **settings: Any) -> list[float]:
    found: list[float] = adapted("reward", function, "generate.hooks.reward", settings)(rollouts)
    return found


# ---- rewards, as they are written elsewhere ------------------------------------------------------------------------


async def slime_rm(args: Any, sample: Any, **kwargs: Any) -> float:
    if sample.status == Sample.Status.TRUNCATED:
        return 0.0
    return 1.0 if sample.label in sample.response else -0.1


async def slime_group_rm(args: Any, samples: list[Any], **kwargs: Any) -> list[float]:
    best = max(len(sample.response) for sample in samples)
    return [args.bonus * (len(sample.response) == best) for sample in samples]


def miles_rm_with_a_key(args: Any, sample: Any) -> dict[str, float]:
    return {"score": 0.5, "acc": float(sample.label in sample.response)}


def verl_compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
    if data_source != "gsm8k":
        raise NotImplementedError(f"Reward function is not implemented for {data_source=}")
    return {"score": float(solution_str.endswith(ground_truth)), "level": extra_info["level"]}


def verl_plain(data_source: str, solution_str: str, ground_truth: str) -> float:
    return float(ground_truth in solution_str)


def trl_length(completions: list[str], **kwargs: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def trl_columns(prompts: list[str], completions: list[str], answer: list[str], level: list[int]) -> list[float]:
    assert prompts == ["6 x 7 ="] * 2
    return [n * float(a in c) for c, a, n in zip(completions, answer, level, strict=True)]


async def trl_async(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


class TrlCallable:
    """Some rewards are objects."""

    __name__ = "callable"

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        return [1.0 for _ in completions]


STYLES: dict[str, tuple[Any, dict[str, Any], list[float]]] = {
    "slime": (slime_rm, {}, [1.0, -0.1]),
    "slime, a group at once": (slime_group_rm, {"bonus": 2.0}, [2.0, 0.0]),
    "miles, with a reward key": (miles_rm_with_a_key, {"reward_key": "acc"}, [1.0, 0.0]),
    "miles, a mapping with a score": (miles_rm_with_a_key, {}, [0.5, 0.5]),
    "verl": (verl_compute_score, {}, [1.0, 0.0]),
    "verl, a number": (verl_plain, {}, [1.0, 0.0]),
    "trl": (trl_length, {}, [11.0, 2.0]),
    "trl, with columns": (trl_columns, {}, [3.0, 0.0]),
    "trl, async": (trl_async, {}, [3.0, 3.0]),
    "trl, an object": (TrlCallable(), {}, [1.0, 1.0]),
    "one rollout": (lambda rollout: len(rollout.tokens), {}, [3.0, 3.0]),
    "all rollouts": (lambda rollouts, scale: [scale] * len(rollouts), {"scale": 4}, [4.0, 4.0]),
}


@pytest.mark.parametrize(("function", "settings", "wanted"), STYLES.values(), ids=STYLES)
def test_a_reward_is_called_in_its_own_style(function: Any, settings: dict[str, Any], wanted: list[float]) -> None:
    assert reward(function, **settings) == wanted


MISTAKES: dict[str, tuple[Any, str]] = {
    "no number": (lambda rollout: None, "generate.hooks.reward: gave None for a rollout; a reward is a number"),
    "a mapping without a score": (
        lambda args, sample: {"acc": 1},
        "generate.hooks.reward: gave a mapping without 'score' for a rollout",
    ),
    "args that nobody set": (
        lambda args, sample: args.rm_url,
        "args has no 'rm_url': give it, graph.step.generate.hooks.reward.rm_url=VALUE",
    ),
}


@pytest.mark.parametrize(("function", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_reward_that_cannot_be_used_says_why(function: Any, message: str) -> None:
    with pytest.raises((RunError, AttributeError)) as caught:
        reward(function)
    assert message in str(caught.value)


def test_a_signature_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError) as caught:
        adapted("reward", lambda completion, label: 1.0, "generate.hooks.reward")
    assert str(caught.value) == (
        "generate.hooks.reward: called with (completion, label), did you mean 'completions'?; a reward is one of "
        "(rollout), (rollouts), (args, sample), (args, samples), "
        "(data_source, solution_str, ground_truth, extra_info), (completions, **columns)"
    )
    with pytest.raises(ConfigError, match="a int, not a function"):
        adapted("filter", 3, "generate.hooks.filter")


# ---- filters -------------------------------------------------------------------------------------------------------


def check_reward_nonzero_std(args: Any, samples: list[Any], **kwargs: Any) -> Any:
    rewards = [sample.get_reward_value(args) for sample in samples]
    return SimpleNamespace(keep=len(set(rewards)) > 1, reason=f"zero_std_{rewards[0]}")


@pytest.mark.parametrize("function", [check_reward_nonzero_std, lambda rollouts: len({r.reward for r in rollouts}) > 1])
def test_a_filter_is_called_in_its_own_style(function: Any) -> None:
    keeps = adapted("filter", function, "generate.hooks.filter")
    assert keeps([replace(RIGHT, reward=1.0), replace(WRONG, reward=0.0)])
    assert not keeps([replace(RIGHT, reward=1.0), replace(WRONG, reward=1.0)])


def answers(prompts: Sequence[Prompt], attempt: int) -> list[Rollout]:
    """Two answers to each prompt; the later batches are told apart by their texts."""
    return [replace(rollout(f"{attempt}{i}", group=prompt.index)) for prompt in prompts for i in range(2)]


def test_a_filter_drops_groups_and_further_batches_fill_the_gap() -> None:
    stream = Asked()
    hooks = {"filter": lambda group: group[0].text.startswith("2"), "reward": lambda made: [1.0] * len(made)}
    kept = gather(hooks, stream, answers, lambda made: [])
    assert ([one.text for one in kept], stream.cursor) == (["20", "21"], 3)
    assert all(one.reward == 1.0 for one in kept)


def test_a_filter_without_a_reward_hook_sees_what_the_rewards_component_says() -> None:
    seen: list[float | None] = []
    hooks = {"filter": lambda group: bool(seen.extend(one.reward for one in group)) or True}
    gather(hooks, Asked(), answers, lambda made: [0.25] * len(made))
    assert seen == [0.25, 0.25]


def test_a_filter_that_drops_everything_is_told_after_a_few_batches() -> None:
    stream = Asked()
    with pytest.raises(RunError, match="filter dropped every group of 8 batches: loosen it"):
        gather({"filter": lambda group: False}, stream, answers, lambda made: [0.0] * len(made))
    assert stream.cursor == 8


def test_too_few_rewards_are_an_error() -> None:
    with pytest.raises(RunError, match="reward gave 1 rewards for 2 rollouts; give one each"):
        gather({"reward": lambda made: [1.0]}, Asked(), answers, lambda made: [])


# ---- rollouts ------------------------------------------------------------------------------------------------------


def making(**words: Any) -> Making:
    def complete(asked: Any, params: Any) -> Rollout:
        ids = tuple(asked) if not isinstance(asked, str) else (7,) * len(asked.split())
        return Rollout(Prompt("", "", 0), ids, (8, 9), (-0.5, -0.25), " 42", 5, 0)

    return Making(
        prompts=[Prompt("6 x 7 =", "42", 3)],
        sample=lambda prompts: [rollout("42", group=prompt.index) for prompt in prompts],
        complete=complete,
        tokenizer=lambda text, **_: {"input_ids": [1] * len(text.split())},
        group=2,
        version=5,
        sampling_params={"temperature": 1.0, "max_new_tokens": 4, **words},
    )


async def slime_generate_with_a_tool(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    """Two turns: what the tool says is part of the answer, and is masked."""
    prompt_ids = args.tokenizer(sample.prompt, add_special_tokens=False)["input_ids"]
    response, ids, mask, logprobs = "", [], [], []
    for turn in range(2):
        output = args.engine({"text": sample.prompt + response, "sampling_params": sampling_params})
        said = output["meta_info"]["output_token_logprobs"]
        response += output["text"]
        ids += [item[1] for item in said]
        logprobs += [item[0] for item in said]
        mask += [1] * len(said)
        if turn == 0:
            tool = args.tokenizer("tool says hello")["input_ids"]
            response += "tool says hello"
            ids += tool
            logprobs += [0.0] * len(tool)
            mask += [0] * len(tool)
    sample.tokens, sample.response_length = prompt_ids + ids, len(ids)
    sample.response, sample.loss_mask, sample.rollout_log_probs = response, mask, logprobs
    sample.status = Sample.Status.COMPLETED
    return sample


def test_a_slime_rollout_of_two_turns_becomes_rollouts_with_a_mask() -> None:
    made = adapted("rollout", slime_generate_with_a_tool, "generate.hooks.rollout")(making())
    assert len(made) == 2
    one = made[0]
    assert (one.prompt_tokens, one.tokens, one.mask) == ((1, 1, 1, 1), (8, 9, 1, 1, 1, 8, 9), (1, 1, 0, 0, 0, 1, 1))
    assert (one.version, one.group, one.logprobs[:2], one.text) == (5, 3, (-0.5, -0.25), " 42tool says hello 42")


def test_an_aborted_sample_is_left_out_and_several_from_one_prompt_are_taken() -> None:
    def generate(args: Any, sample: Any, sampling_params: Any) -> Any:
        if sample.index == 0:
            sample.status = Sample.Status.ABORTED
            return sample
        sample.tokens, sample.response_length, sample.rollout_log_probs = [1, 2, 3], 1, [-0.5]
        sample.reward = 0.5
        return [sample, sample]

    made = adapted("rollout", generate, "generate.hooks.rollout")(making())
    assert [(one.tokens, one.reward) for one in made] == [((3,), 0.5), ((3,), 0.5)]


def test_a_plain_rollout_calls_the_engine_as_often_as_it_likes() -> None:
    def twice(prompts: Any, sample: Any) -> list[Rollout]:
        return [*sample(prompts), *sample(prompts)]

    assert len(adapted("rollout", twice, "generate.hooks.rollout")(making())) == 2


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({}, "generate.hooks.rollout: a sample has response_length=0 and 0 tokens; set both"),
    "no log-probabilities": (
        {"tokens": [1, 2], "response_length": 1},
        "generate.hooks.rollout: a sample of 1 tokens has no rollout_log_probs for each",
    ),
    "a short mask": (
        {"tokens": [1, 2, 3], "response_length": 2, "rollout_log_probs": [0.0, 0.0], "loss_mask": [1]},
        "generate.hooks.rollout: a sample of 2 tokens has a loss_mask of 1; give one entry a token",
    ),
}


@pytest.mark.parametrize(("fields", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_sample_that_cannot_be_trained_on_is_refused(fields: dict[str, Any], message: str) -> None:
    def generate(args: Any, sample: Any, sampling_params: Any) -> Any:
        return replace(sample, **fields)

    with pytest.raises(RunError) as caught:
        adapted("rollout", generate, "generate.hooks.rollout")(making())
    assert message in str(caught.value)


def test_a_rollout_that_returns_something_else_is_refused() -> None:
    with pytest.raises(RunError, match="returned a dict; a rollout function returns a list of Rollout"):
        adapted("rollout", lambda prompts, sample: {}, "generate.hooks.rollout")(making())


# ---- slots ---------------------------------------------------------------------------------------------------------


@slots("reward")
def hooked(ctx: Any) -> None:
    ctx.log(reward=ctx.hooks["reward"]([RIGHT])[0])


def test_a_body_of_one_s_own_has_slots_too_and_settings_reach_the_hook() -> None:
    hook = {"use": f"{__name__}:scaled", "scale": 3}
    assert run_phase(hooked, hooks={"reward": hook}).metrics == {"reward": 3.0}


def scaled(rollout: Rollout, scale: float) -> float:
    return scale


def test_a_slot_that_a_body_has_not_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as caught:
        run_phase(hooked, hooks={"rewards": scaled})
    assert "hooked.hooks.rewards: " in str(caught.value)
    assert str(caught.value).endswith("does not call it, did you mean 'reward'? (slots: reward)")
