"""Hook slots: the few places in a built-in phase where a function of your own takes over.

A body names its slots with ``@slots``; a graph fills them, ``graph.step.generate.hooks.reward=./mine.py:reward``, or
with settings, ``{use: ./mine.py:reward, scale: 2}``. How a function wants to be called shows in its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from stepgraph.errors import ConfigError, RunError, did_you_mean
from stepgraph.runtime.contract import Prompt, Rollout, Stream
from stepgraph.styles import (
    miles_filter,
    miles_reward,
    miles_rollout,
    names_of,
    plain_filter,
    plain_reward,
    plain_rollout,
    trl_reward,
    verl_reward,
)

SLOTS = "__stepgraph_slots__"
TRIES = 8
"""How many batches may be taken to fill one whose groups a filter drops."""

Body = TypeVar("Body", bound=Callable[..., Any])


def slots(*names: str) -> Callable[[Body], Body]:
    """Say which hooks a body calls."""

    def mark(body: Body) -> Body:
        setattr(body, SLOTS, names)
        return body

    return mark


def slots_of(body: Any) -> tuple[str, ...]:
    """The slots of a body; none where it does not say."""
    found: tuple[str, ...] = getattr(body, SLOTS, ())
    return found


def hooks_of(ctx: Any) -> Mapping[str, Any]:
    """The hooks that a context carries."""
    found: Mapping[str, Any] = getattr(ctx, "hooks", None) or {}
    return found


# ---- how a hook is called ------------------------------------------------------------------------------------------


class Style(NamedTuple):
    """One way to write a hook: how its parameters begin, or which it has, and what makes it ours."""

    shown: str
    fits: Callable[[list[str]], bool]
    adapt: Callable[[Callable[..., Any], str, Mapping[str, Any]], Any]


def _begins(*words: str) -> Callable[[list[str]], bool]:
    return lambda names: tuple(names[: len(words)]) == words


def _has(*words: str) -> Callable[[list[str]], bool]:
    return lambda names: set(words) <= set(names)


def _as_it_is(function: Callable[..., Any], who: str, settings: Mapping[str, Any]) -> Callable[..., Any]:
    return partial(function, **settings) if settings else function


STYLES: Mapping[str, tuple[Style, ...]] = {
    "reward": (
        Style("(rollout)", _begins("rollout"), plain_reward),
        Style("(rollouts)", _begins("rollouts"), plain_reward),
        Style("(args, sample)", _begins("args", "sample"), miles_reward),
        Style("(args, samples)", _begins("args", "samples"), miles_reward),
        Style(
            "(data_source, solution_str, ground_truth, extra_info)", _has("solution_str", "ground_truth"), verl_reward
        ),
        Style("(completions, **columns)", _has("completions"), trl_reward),
    ),
    "filter": (
        Style("(rollouts)", _begins("rollouts"), plain_filter),
        Style("(args, samples)", _begins("args", "samples"), miles_filter),
    ),
    "rollout": (
        Style("(prompts, sample)", _begins("prompts", "sample"), plain_rollout),
        Style("(args, sample, sampling_params)", _begins("args", "sample", "sampling_params"), miles_rollout),
    ),
    "advantage": (Style("(rewards, groups)", _begins("rewards", "groups"), _as_it_is),),
    "loss": (Style("(new, old, advantage, mask)", _begins("new", "old", "advantage", "mask"), _as_it_is),),
    "correction": (Style("(new, old, mask)", _begins("new", "old", "mask"), _as_it_is),),
}


def adapted(slot: str, hook: Any, who: str, settings: Mapping[str, Any] | None = None) -> Any:
    """A hook as its slot is called, whatever style it is written in."""
    if not callable(hook):
        raise ConfigError(f"{who}: a {type(hook).__name__}, not a function")
    names, styles = names_of(hook), STYLES.get(slot, ())
    for style in styles:
        if style.fits(names):
            return style.adapt(hook, who, settings or {})
    if not styles:
        return hook
    known = ", ".join(style.shown for style in styles)
    raise ConfigError(f"{who}: called with ({', '.join(names)}){_near(names, styles)}; a {slot} is one of {known}")


def _near(names: Sequence[str], styles: Sequence[Style]) -> str:
    known = [word.strip("*() ") for style in styles for word in style.shown.split(",")]
    return next((hint for name in names if name not in known and (hint := did_you_mean(name, known))), "")


# ---- what the hooks of generate do ---------------------------------------------------------------------------------


def gather(
    hooks: Mapping[str, Any],
    prompts: Stream,
    answer: Callable[[Sequence[Prompt], int], list[Rollout]],
    score: Callable[[list[Rollout]], list[float]],
) -> list[Rollout]:
    """A batch of rollouts. A filter drops whole groups, and further batches are taken until as many are left.

    ``answer(prompts, attempt)`` makes rollouts; ``score`` rewards them where no hook does and a filter needs it.
    """
    batch = prompts.take()
    if not {"reward", "filter"} & set(hooks):
        return answer(batch, 0)
    rate = hooks.get("reward", score)
    kept = _kept(hooks, rated(answer(batch, 0), rate))
    for attempt in range(1, TRIES if "filter" in hooks else 1):
        if len(kept) >= len(batch) or getattr(prompts, "batches", None) == prompts.cursor:
            break
        kept += _kept(hooks, rated(answer(prompts.take(), attempt), rate))
    if not kept:
        raise RunError(f"generate.hooks.filter dropped every group of {TRIES} batches: loosen it, or change the data")
    return [rollout for group in kept[: len(batch)] for rollout in group]


def rated(rollouts: list[Rollout], rate: Callable[[list[Rollout]], Sequence[float]]) -> list[Rollout]:
    """The rollouts with their rewards; a rollout that brought one along keeps it."""
    if all(rollout.reward is not None for rollout in rollouts):
        return rollouts
    rewards = rate(rollouts)
    if len(rewards) != len(rollouts):
        raise RunError(f"generate.hooks.reward gave {len(rewards)} rewards for {len(rollouts)} rollouts; give one each")
    pairs = zip(rollouts, rewards, strict=True)
    return [one if one.reward is not None else replace(one, reward=reward) for one, reward in pairs]


def _kept(hooks: Mapping[str, Any], rollouts: list[Rollout]) -> list[list[Rollout]]:
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    keep: Callable[[list[Rollout]], bool] = hooks.get("filter", lambda group: True)
    return [group for group in groups.values() if keep(group)]
