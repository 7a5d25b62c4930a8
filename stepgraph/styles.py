"""Functions written for other frameworks, called as they are: miles and slime, verl, TRL. The style shows in the names.

Each adapter turns rollouts into what a style is given, calls the function (and awaits it where it is a coroutine), and
reads what it gave back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from stepgraph.errors import RunError
from stepgraph.runtime.contract import Prompt, Rollout


class Args:
    """``args`` of miles and slime: the hook's own settings, and what the engine offers a rollout function."""

    def __init__(self, who: str, **settings: Any) -> None:
        self.__dict__.update({"reward_key": None, "partial_rollout": False, **settings}, _who=who)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"args has no '{name}': give it, graph.step.{self.__dict__.get('_who')}.{name}=VALUE")


@dataclass
class Sample:
    """The sample of miles and slime. A function changes it in place and returns it."""

    class Status(Enum):
        """How its generation ended."""

        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    group_index: int | None = None
    index: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: Any = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)

    def get_reward_value(self, args: Any) -> Any:
        """The reward, or the entry of it that ``args.reward_key`` names."""
        return self.reward[args.reward_key] if args.reward_key else self.reward


def sample_of(rollout: Rollout, index: int) -> Sample:
    """A finished rollout as a sample."""
    return replace(
        blank(rollout.prompt, rollout.group, index),
        tokens=[*rollout.prompt_tokens, *rollout.tokens],
        response=rollout.text,
        response_length=len(rollout.tokens),
        reward=rollout.reward,
        loss_mask=list(rollout.mask) or [1] * len(rollout.tokens),
        rollout_log_probs=list(rollout.logprobs),
        status=Sample.Status.COMPLETED,
    )


def blank(prompt: Prompt, group: int, index: int) -> Sample:
    """A sample that is still to be generated."""
    return Sample(group, index, prompt.text, label=prompt.answer, metadata=dict(prompt.meta))


def rollout_of(sample: Sample, prompt: Prompt, version: int, who: str) -> Rollout:
    """What a rollout function made of a sample."""
    count = sample.response_length
    logprobs, mask = sample.rollout_log_probs, sample.loss_mask
    if count < 1 or count > len(sample.tokens):
        raise RunError(f"{who}: a sample has response_length={count} and {len(sample.tokens)} tokens; set both")
    if logprobs is None or len(logprobs) != count:
        raise RunError(f"{who}: a sample of {count} tokens has no rollout_log_probs for each; training needs them")
    if mask is not None and len(mask) != count:
        raise RunError(f"{who}: a sample of {count} tokens has a loss_mask of {len(mask)}; give one entry a token")
    return Rollout(
        prompt,
        tuple(sample.tokens[:-count]),
        tuple(sample.tokens[-count:]),
        tuple(logprobs),
        sample.response,
        version,
        group=prompt.index,
        reward=None if sample.reward is None else float(sample.reward),
        mask=() if mask is None else tuple(mask),
    )


# ---- rewards -------------------------------------------------------------------------------------------------------

Rewards = Callable[[Sequence[Rollout]], list[float]]


def miles_reward(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rewards:
    """``custom_rm(args, sample)``; with ``samples`` for its second name, it gets all of a group at once."""
    args, many = Args(who, **settings), names_of(function)[1] != "sample"

    def rewards(rollouts: Sequence[Rollout]) -> list[float]:
        samples = [sample_of(rollout, index) for index, rollout in enumerate(rollouts)]
        if many:
            return [number(one, who, args.reward_key) for one in called(function, args, samples)]
        return [number(one, who, args.reward_key) for one in each(function, [(args, sample) for sample in samples])]

    return rewards


def verl_reward(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rewards:
    """``compute_score(data_source, solution_str, ground_truth, extra_info)``: a number, or a mapping with ``score``."""

    def score(rollout: Rollout) -> float:
        meta = dict(rollout.prompt.meta)
        given = {
            "data_source": meta.get("data_source", ""),
            "solution_str": rollout.text,
            "ground_truth": rollout.prompt.answer,
            "extra_info": meta,
        }
        return number(called(function, **accepted(function, given), **settings), who, "score")

    return lambda rollouts: [score(rollout) for rollout in rollouts]


def trl_reward(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rewards:
    """``reward(completions, **columns)``: everything as lists, one entry a rollout; columns are those of the data."""

    def rewards(rollouts: Sequence[Rollout]) -> list[float]:
        shared = set.intersection(*(set(rollout.prompt.meta) for rollout in rollouts)) if rollouts else set()
        given = {name: [rollout.prompt.meta[name] for rollout in rollouts] for name in sorted(shared)}
        given |= {
            "answer": [rollout.prompt.answer for rollout in rollouts],
            "prompts": [rollout.prompt.text for rollout in rollouts],
            "completions": [rollout.text for rollout in rollouts],
            "completion_ids": [list(rollout.tokens) for rollout in rollouts],
        }
        return [number(one, who) for one in called(function, **accepted(function, given), **settings)]

    return rewards


def plain_reward(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rewards:
    """``reward(rollout)``, or ``reward(rollouts)`` for all at once."""
    if names_of(function)[0] == "rollouts":
        return lambda rollouts: [number(one, who) for one in called(function, rollouts, **settings)]
    return lambda rollouts: [number(called(function, rollout, **settings), who) for rollout in rollouts]


def number(value: Any, who: str, key: str | None = None) -> float:
    """A reward as a number."""
    found = value.get(key or "score") if isinstance(value, Mapping) else value
    try:
        return float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        what = f"a mapping without '{key or 'score'}'" if isinstance(value, Mapping) else repr(value)
        raise RunError(f"{who}: gave {what} for a rollout; a reward is a number") from None


# ---- filters and rollouts ------------------------------------------------------------------------------------------

Filter = Callable[[Sequence[Rollout]], bool]


def miles_filter(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Filter:
    """``filter(args, samples)``: whether to keep a group, as it is or in ``keep`` of what it returns."""
    args = Args(who, **settings)

    def keeps(group: Sequence[Rollout]) -> bool:
        given = called(function, args, [sample_of(rollout, index) for index, rollout in enumerate(group)])
        return bool(getattr(given, "keep", given))

    return keeps


def plain_filter(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Filter:
    """``filter(rollouts)``: whether to keep a group."""
    return lambda group: bool(called(function, group, **settings))


@dataclass(frozen=True, slots=True)
class Making:
    """What an engine offers a rollout hook: ``sample`` answers prompts as it would itself, ``complete`` continues text
    or token ids once, with sampling parameters in SGLang's words.
    """

    prompts: Sequence[Prompt]
    sample: Callable[[Sequence[Prompt]], list[Rollout]]
    complete: Callable[[str | Sequence[int], Mapping[str, Any]], Rollout]
    tokenizer: Any
    group: int
    version: int
    sampling_params: Mapping[str, Any]


Rolls = Callable[[Making], list[Rollout]]


def miles_rollout(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rolls:
    """``generate(args, sample, sampling_params)``. Where such a function posts to a server, it calls
    ``args.engine(payload)`` here, with the same payload and the same answer; ``args.tokenizer`` is the model's.
    """

    def roll(making: Making) -> list[Rollout]:
        args = Args(who, engine=lambda payload: answered(making, payload), tokenizer=making.tokenizer, **settings)
        asked = [prompt for prompt in making.prompts for _ in range(making.group)]
        calls = [
            (args, blank(prompt, prompt.index, index), dict(making.sampling_params))
            for index, prompt in enumerate(asked)
        ]
        made = zip(asked, each(function, calls), strict=True)
        samples = [(prompt, one) for prompt, some in made for one in (some if isinstance(some, list) else [some])]
        lost = (Sample.Status.ABORTED, Sample.Status.FAILED)
        return [rollout_of(one, prompt, making.version, who) for prompt, one in samples if one.status not in lost]

    return roll


def answered(making: Making, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What SGLang's ``/generate`` would answer."""
    asked = payload["text"] if "text" in payload else payload["input_ids"]
    params = {**making.sampling_params, **payload.get("sampling_params", {})}
    made = making.complete(asked, params)
    reason = "length" if len(made.tokens) >= params["max_new_tokens"] else "stop"
    logprobs = [[logprob, token, None] for logprob, token in zip(made.logprobs, made.tokens, strict=True)]
    meta = {"finish_reason": {"type": reason}, "output_token_logprobs": logprobs, "id": str(made.group)}
    return {"text": made.text, "output_ids": list(made.tokens), "meta_info": meta}


def plain_rollout(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Rolls:
    """``rollout(prompts, sample)``: the rollouts, made with as many calls of ``sample(prompts)`` as it likes."""

    def roll(making: Making) -> list[Rollout]:
        made = called(function, making.prompts, making.sample, **settings)
        if not isinstance(made, list) or not all(isinstance(one, Rollout) for one in made):
            raise RunError(f"{who}: returned a {type(made).__name__}; a rollout function returns a list of Rollout")
        return made

    return roll


# ---- calling -------------------------------------------------------------------------------------------------------


def names_of(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function takes by name."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def called(function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Call, and await where it is a coroutine."""
    return each(function, [positional], named)[0]


def each(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], named: Mapping[str, Any] = {}) -> list[Any]:
    """Call once for each; coroutines run side by side."""
    given = [function(*positional, **named) for positional in calls]
    if not any(inspect.isawaitable(one) for one in given):
        return given

    async def together() -> list[Any]:
        return list(await asyncio.gather(*given))

    return asyncio.run(together())
