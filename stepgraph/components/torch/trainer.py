"""The embedded trainer: one policy, AdamW, and GRPO, in this process, on any machine.

The policy's place covers all that belongs to it: parameters, optimizer state and the frozen reference. Gradients live
only inside `train`. Every call checks that the policy is where it needs it, because work on a parked policy would
otherwise fail somewhere deep inside, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepgraph.components.torch.model import build_model, named_weights
from stepgraph.components.torch.park import Park
from stepgraph.components.torch.policy import PolicyTrainer, Settings
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.errors import RunError
from stepgraph.runtime.contract import Context, Rollout, Shared

STATE = "trainer.pt"  # what transformers has no file for: optimizer, random state, version


class TorchTrainer(PolicyTrainer):
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
        super().__init__(shared, Settings(*numbers), policy)
        self._optimizer: torch.optim.Optimizer | None = None
        self._park = Park(policy, self._tensors, self._device, park_folder(shared.run_dir, park))
        self._places = Residency("trainer", {policy: self._park}, places)

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

    def export(self, ctx: Context) -> dict[str, Any]:
        """Write the model alone, as transformers loads it, for whoever reads it: no checkpoint to go on from."""
        self._places.must_have_contents(self._policy, "export")
        folder = ctx.run_dir / "exports" / f"version_{self._version:06d}"
        self._model.save_pretrained(folder, state_dict={name: tensor.cpu() for name, tensor in self._tensors_of()})
        self._tokenizer.save_pretrained(folder)
        return {"export": {"folder": str(folder), "version": self._version}}

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

    def _tensors_of(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in named_weights(self._model).items():
            yield name, tensor.detach() if self._park.place == "device" else self._park.parked(f"model/{name}")

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

    def _pass(self, rollouts: Sequence[Rollout], advantage: Tensor, rows: Sequence[int]) -> dict[str, float]:
        optimizer = self._built_optimizer()
        seen = [self._backward(part, rollouts, advantage) for part in self._parts(rows)]
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
        loss, values = self._objective(self._model, part, rollouts, advantage)
        loss.backward()
        return values

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
