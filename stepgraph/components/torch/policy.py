"""What every trainer does alike: GRPO on scored rollouts, what is logged, and what is refused before it goes wrong.

A trainer of a stack adds how a pass steps the optimizer, how weights are read, and how a checkpoint looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from stepgraph.algorithms import grpo
from stepgraph.components.torch import objective
from stepgraph.components.torch.batch import Batch, answer_logprobs, collate, right
from stepgraph.components.torch.model import build_model, build_tokenizer, pick_device
from stepgraph.components.torch.residency import Residency
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import ConfigError, RunError
from stepgraph.hooks import hooks_of, slots
from stepgraph.runtime.contract import Context, Rollout, Shared, Weights


@dataclass(frozen=True, slots=True)
class Settings:
    """The trainer's numbers. ``clip`` bounds the ratio, ``clip_grad`` the gradient, ``kl`` weighs the distance."""

    lr: float
    betas: tuple[float, ...]
    weight_decay: float
    clip_grad: float
    micro_batch: int
    epochs: int
    clip: float
    kl: float
    temperature: float


class PolicyTrainer:
    """Trains on rollouts. A subclass sets ``_places`` and gives ``_pass`` and ``_tensors_of``."""

    _places: Residency

    def __init__(self, shared: Shared, settings: Settings, policy: str) -> None:
        self._set = _checked(settings)
        self._spec, self._seed, self._device = ModelSpec.of(shared.model), shared.seed, pick_device(shared.devices)
        set_threads(self._spec.threads)
        self._model, self._tokenizer = self._first_model(), build_tokenizer(self._spec)
        self._reference: Any = None
        self._given: Sequence[Sequence[float]] | None = None
        self._version, self._policy = 0, policy
        self._hooks: Mapping[str, Any] = {}

    @slots("loss", "advantage", "correction")
    def train(
        self,
        ctx: Context,
        rollouts: Sequence[Rollout],
        rewards: Sequence[float],
        ref_logprobs: Sequence[Sequence[float]] | None = None,
    ) -> dict[str, Any]:
        """One update of the policy: ``epochs`` passes over the rollouts, one optimizer step a pass.

        ``ref_logprobs`` are a reference model's, of each token of each rollout; without them, a weight ``kl`` above 0
        is of the distance from the first weights, which are then kept as a frozen copy.
        """
        self._must_be_ready("train")
        self._hooks = hooks_of(ctx)
        _must_be_scored(rollouts, rewards)
        self._refer(rollouts, ref_logprobs)
        if "advantage" not in self._hooks:
            _must_be_groups(rollouts)
        start = perf_counter()
        advantage = objective.advantages(self._hooks, rewards, [r.group for r in rollouts])
        rows = self._telling(advantage)
        seen = [self._pass(rollouts, advantage, rows) for _ in range(self._set.epochs)]
        ctx.log(**self._told(rollouts, rewards, seen, perf_counter() - start))
        self._version += 1
        return {}

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Take the policy off the device. Returns the bytes that were really freed, by resource."""
        return self._places.move(moves)

    def reload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Bring the policy back. Returns the bytes that really came back, by resource."""
        return self._places.move(moves)

    def weights(self, resource: str) -> Weights:
        """The policy's weights, read where they are: they need not come back to the device for a copy."""
        self._places.must_have_contents(resource, "weights")
        version = self._version
        return Weights(version, lambda: self._weights_of(resource, version))

    def version(self, resource: str) -> int:
        """How many updates the policy has had."""
        self._places[resource]
        return self._version

    def _first_model(self) -> Any:
        return build_model(self._spec, self._seed, self._device)

    def _must_be_ready(self, call: str) -> None:
        self._places.must_be_on_device(self._policy, call)
        self._places.must_have_contents(self._policy, call)

    def _weights_of(self, resource: str, version: int) -> Iterator[tuple[str, Tensor]]:
        self._places.must_have_contents(resource, "weights")
        if version != self._version:
            raise RunError(
                f"'{resource}' was at version {version} when it was asked for, and is at {self._version} now"
            )
        yield from self._tensors_of()

    def _tensors_of(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's weights by name, wherever they are."""
        raise NotImplementedError

    def _pass(self, rollouts: Sequence[Rollout], advantage: Tensor, rows: Sequence[int]) -> dict[str, float]:
        """One optimizer step on these rows; what was seen of it, as means over all rollouts."""
        raise NotImplementedError

    def _telling(self, advantage: Tensor) -> list[int]:
        """The rollouts that have a gradient: without a reference, an answer as good as its siblings has none."""
        all_tell = self._refers or "loss" in self._hooks
        rows = range(len(advantage)) if all_tell else advantage.nonzero()[:, 0].tolist()
        return list(rows) or [0]  # one row, so that the optimizer steps (on zeros) all the same

    def _parts(self, rows: Sequence[int]) -> list[Sequence[int]]:
        return [rows[i : i + self._set.micro_batch] for i in range(0, len(rows), self._set.micro_batch)]

    def _objective(
        self, model: Any, part: Sequence[int], rollouts: Sequence[Rollout], advantage: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """One micro batch's share of the loss, and of the means over all rollouts."""
        batch = collate([rollouts[i] for i in part], self._tokenizer.pad_token_id, self._device)
        new = answer_logprobs(model, batch, self._set.temperature)
        terms: dict[str, Any] = {
            "clip": self._set.clip,
            "kl": self._set.kl,
            "reference": self._reference_logprobs(batch, part),
        }
        found = objective.loss(self._hooks, new, batch, advantage[list(part)].to(self._device), terms)
        share = len(batch.ids) / len(rollouts)
        gap = grpo.token_mean((new.detach() - batch.old).abs(), batch.mask).mean()
        values = {
            "policy/loss": found.loss.detach(),
            "policy/kl": found.kl,
            "policy/clip_fraction": found.clip_fraction,
            "policy/logprob_gap": gap,
        }
        return found.loss * share, {key: float(value) * share for key, value in values.items()}

    @property
    def _refers(self) -> bool:
        """Whether the distance from a reference is known."""
        return self._given is not None or self._set.kl > 0

    def _refer(self, rollouts: Sequence[Rollout], given: Sequence[Sequence[float]] | None) -> None:
        """Take a reference's log-probabilities, or make the frozen copy that is to give them."""
        if given is not None and [len(one) for one in given] != [len(one.tokens) for one in rollouts]:
            raise RunError(
                "trainer.train needs a number in ref_logprobs for each token of each rollout, in their order"
            )
        self._given = given
        if given is None and self._set.kl and self._reference is None:
            self._reference = self._first_model().requires_grad_(False)

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch, part: Sequence[int]) -> Tensor | None:
        if self._given is not None:
            return right([self._given[i] for i in part], 0.0).to(self._device)
        return answer_logprobs(self._reference, batch, self._set.temperature) if self._refers else None

    def _told(
        self, rollouts: Sequence[Rollout], rewards: Sequence[float], seen: Sequence[Mapping[str, float]], seconds: float
    ) -> dict[str, float]:
        tokens = sum(len(r.prompt_tokens) + len(r.tokens) for r in rollouts) * len(seen)
        return {
            "reward/mean": sum(rewards) / len(rewards),
            **{key: sum(one[key] for one in seen) / len(seen) for key in seen[0]},
            "staleness": float(self._version - min(r.version for r in rollouts)),
            "perf/tokens_per_s": tokens / seconds,
        }


def _must_be_scored(rollouts: Sequence[Rollout], rewards: Sequence[float]) -> None:
    if not rollouts or len(rollouts) != len(rewards):
        raise RunError(
            f"trainer.train got {len(rollouts)} rollouts and {len(rewards)} rewards; it needs as many of each"
        )
    if not all(map(isfinite, rewards)):
        raise RunError("trainer.train got a reward that is not finite; mend the scorer")


def _must_be_groups(rollouts: Sequence[Rollout]) -> None:
    if len({r.group for r in rollouts}) == len(rollouts):
        raise RunError(
            "trainer.train got one answer a prompt, and GRPO compares answers; set engine.group to 2 or more"
        )


def _checked(numbers: Settings) -> Settings:
    for name in ("lr", "clip_grad", "micro_batch", "epochs", "clip", "temperature"):
        if not (_is_number(getattr(numbers, name)) and getattr(numbers, name) > 0):
            raise ConfigError(f"trainer.{name}={getattr(numbers, name)} must be a number above 0")
    for name in ("kl", "weight_decay"):
        if not (_is_number(getattr(numbers, name)) and getattr(numbers, name) >= 0):
            raise ConfigError(f"trainer.{name}={getattr(numbers, name)} must be a number, and not negative")
    if len(numbers.betas) != 2 or not all(_is_number(beta) and 0 <= beta < 1 for beta in numbers.betas):
        raise ConfigError(f"trainer.betas={list(numbers.betas)} must be two numbers from 0 up to, not including, 1")
    return numbers


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
