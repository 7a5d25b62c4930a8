"""The embedded trainer: one policy, AdamW, and GRPO, in this process, on any machine.

The policy's place covers all that belongs to it: parameters, optimizer state and the frozen reference. Gradients live
only inside `train`. Every call checks that the policy is where it needs it, because work on a parked policy would
otherwise fail somewhere deep inside, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from stepgraph.algorithms import grpo
from stepgraph.components.torch.batch import Batch, answer_logprobs, collate
from stepgraph.components.torch.model import build_model, build_tokenizer, named_weights, pick_device
from stepgraph.components.torch.park import Park
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Context, Rollout, Shared, Weights

STATE = "trainer.pt"  # what transformers has no file for: optimizer, random state, version


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


class TorchTrainer:
    """Trains a transformers model on scored rollouts. ``places`` says where the policy starts."""

    def __init__(
        self,
        shared: Shared,
        *,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        clip_grad: float = 1.0,
        micro_batch: int = 256,
        epochs: int = 1,
        clip: float = 0.2,
        kl: float = 0.0,
        temperature: float = 1.0,
        park: str | None = None,
        policy: str = "policy",
        places: Mapping[str, str] | None = None,
    ) -> None:
        numbers = (lr, tuple(betas), weight_decay, clip_grad, micro_batch, epochs, clip, kl, temperature)
        self._set = _checked(Settings(*numbers))
        self._spec, self._seed, self._device = ModelSpec.of(shared.model), shared.seed, pick_device(shared.devices)
        set_threads(self._spec.threads)
        self._model, self._tokenizer = self._first_model(), build_tokenizer(self._spec)
        self._reference = self._first_model().requires_grad_(False) if kl else None
        self._optimizer: torch.optim.Optimizer | None = None
        self._version, self._policy = 0, policy
        park_of_policy = Park(policy, self._tensors, self._device, park_folder(shared.run_dir, park))
        self._places = Residency("trainer", {policy: park_of_policy}, places)

    def train(self, ctx: Context, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> dict[str, Any]:
        """One update of the policy: ``epochs`` passes over the rollouts, one optimizer step a pass."""
        self._must_be_ready("train")
        _must_be_groups(rollouts, rewards)
        start = perf_counter()
        advantage = grpo.advantages(rewards, [r.group for r in rollouts])
        rows = self._telling(advantage)
        seen = [self._pass(rollouts, advantage, rows) for _ in range(self._set.epochs)]
        ctx.log(**self._told(rollouts, rewards, seen, perf_counter() - start))
        self._version += 1
        return {}

    def save(self, ctx: Context) -> dict[str, str]:
        """Write a checkpoint: a folder that transformers loads as it is, with the trainer's own state beside."""
        self._must_be_ready("save")
        with ctx.checkpoint() as folder:
            self._model.save_pretrained(folder)
            self._tokenizer.save_pretrained(folder)
            optimizer = None if self._optimizer is None else self._optimizer.state_dict()
            state = {"version": self._version, "optimizer": optimizer, "rng": torch.get_rng_state()}
            torch.save(state, folder / STATE)
        return {"ckpt": str(folder)}

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint, wherever the policy is; it stays there."""
        state, place = _state_of(Path(folder)), self._places[self._policy].place
        if place == "none":
            raise RunError(f"trainer.load has nowhere to put '{self._policy}': it is at 'none'; reload it first")
        self._places.move({self._policy: "device"})
        self._take_weights(Path(folder))
        self._take_state(state)
        self._places[self._policy].filled()
        self._places.move({self._policy: place})

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
        park = self._places[resource]
        self._places.must_have_contents(resource, "weights")
        if version != self._version:
            raise RunError(
                f"'{resource}' was at version {version} when it was asked for, and is at {self._version} now"
            )
        for name, tensor in named_weights(self._model).items():
            yield name, tensor.detach() if park.place == "device" else park.parked(f"model/{name}")

    def _tensors(self) -> dict[str, Tensor]:
        """All that the policy's place covers, by name."""
        found = {f"model/{name}": tensor for name, tensor in named_weights(self._model).items()}
        if self._reference is not None:
            found |= {f"reference/{name}": tensor for name, tensor in named_weights(self._reference).items()}
        states = {} if self._optimizer is None else self._optimizer.state
        for number, state in enumerate(states.values()):
            found |= {f"optimizer/{number}/{key}": value for key, value in state.items() if torch.is_tensor(value)}
        return found

    def _built_optimizer(self) -> torch.optim.Optimizer:
        """Made at its first use: an evaluation, or a run of no steps, never pays for it."""
        if self._optimizer is None:
            options: dict[str, Any] = {
                "lr": self._set.lr,
                "betas": self._set.betas,
                "weight_decay": self._set.weight_decay,
            }
            self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=True, **options)
        return self._optimizer

    def _telling(self, advantage: Tensor) -> list[int]:
        """The rollouts that have a gradient: without a reference, an answer as good as its siblings has none."""
        rows = range(len(advantage)) if self._reference is not None else advantage.nonzero()[:, 0].tolist()
        return list(rows) or [0]  # one row, so that the optimizer steps (on zeros) all the same

    def _pass(self, rollouts: Sequence[Rollout], advantage: Tensor, rows: Sequence[int]) -> dict[str, float]:
        optimizer = self._built_optimizer()
        parts = [rows[i : i + self._set.micro_batch] for i in range(0, len(rows), self._set.micro_batch)]
        seen = [self._backward(part, rollouts, advantage) for part in parts]
        norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._set.clip_grad))
        if not isfinite(norm):
            optimizer.zero_grad()
            raise RunError(
                f"trainer.train met a gradient of norm {norm}; the policy is unchanged, try a lower trainer.lr"
            )
        optimizer.step()
        optimizer.zero_grad()
        return {key: sum(one[key] for one in seen) for key in seen[0]} | {"policy/grad_norm": norm}

    def _backward(self, part: Sequence[int], rollouts: Sequence[Rollout], advantage: Tensor) -> dict[str, float]:
        """Add one micro batch's share of the gradient; its share of the means over all rollouts."""
        batch = collate([rollouts[i] for i in part], self._tokenizer.pad_token_id, self._device)
        new = answer_logprobs(self._model, batch, self._set.temperature)
        terms: dict[str, Any] = {
            "clip": self._set.clip,
            "kl": self._set.kl,
            "reference": self._reference_logprobs(batch),
        }
        found = grpo.loss(new, batch.old, advantage[list(part)].to(self._device), batch.mask, **terms)
        share = len(batch.ids) / len(rollouts)
        (found.loss * share).backward()
        gap = grpo.token_mean((new.detach() - batch.old).abs(), batch.mask).mean()
        values = {
            "policy/loss": found.loss.detach(),
            "policy/kl": found.kl,
            "policy/clip_fraction": found.clip_fraction,
            "policy/logprob_gap": gap,
        }
        return {key: float(value) * share for key, value in values.items()}

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch) -> Tensor | None:
        return None if self._reference is None else answer_logprobs(self._reference, batch, self._set.temperature)

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

    @torch.no_grad()
    def _take_weights(self, folder: Path) -> None:
        loaded = named_weights(build_model(ModelSpec(source=str(folder), dtype=self._spec.dtype), 0, self._device))
        mine = named_weights(self._model)
        if {k: v.shape for k, v in loaded.items()} != {k: v.shape for k, v in mine.items()}:
            raise RunError(f"the checkpoint '{folder}' is of another model; use the model it was made with")
        for name, tensor in mine.items():
            tensor.copy_(loaded[name])

    def _take_state(self, state: Mapping[str, Any]) -> None:
        self._version = int(state["version"])
        torch.set_rng_state(state["rng"])
        self._optimizer = None
        if state["optimizer"] is not None:
            self._built_optimizer().load_state_dict(state["optimizer"])


def _state_of(folder: Path) -> Any:
    file = folder / STATE
    if not file.is_file():
        raise RunError(f"no checkpoint to load: '{file}' is missing; name a folder that trainer.save wrote")
    try:
        return torch.load(file, weights_only=True)
    except Exception as error:  # a file cut short fails in many ways
        raise RunError(
            f"the checkpoint's '{file}' cannot be read ({type(error).__name__}); use an earlier one"
        ) from error


def _must_be_groups(rollouts: Sequence[Rollout], rewards: Sequence[float]) -> None:
    if not rollouts or len(rollouts) != len(rewards):
        raise RunError(
            f"trainer.train got {len(rollouts)} rollouts and {len(rewards)} rewards; it needs as many of each"
        )
    if not all(map(isfinite, rewards)):
        raise RunError("trainer.train got a reward that is not finite; mend the scorer")
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
