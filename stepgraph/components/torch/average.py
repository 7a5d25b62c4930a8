"""A moving average of the policy: weights of its own, in host memory, that follow each update and are saved with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from stepgraph.components.torch.match import refuse_other_model
from stepgraph.components.torch.model import build_model, build_tokenizer, named_weights, weights_of
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Context, Shared, Weights

STATE = "average.pt"


class TorchAverage:
    """``decay`` is the part of the average that stays when it is updated. It starts as the first weights."""

    def __init__(
        self,
        shared: Shared,
        *,
        decay: float = 0.99,
        average: str = "ema",
        places: Mapping[str, str] | None = None,
    ) -> None:
        _check(decay, places or {})
        self._spec, self._decay, self._name, self._version = ModelSpec.of(shared.model), decay, average, 0
        self._model = build_model(self._spec, shared.seed, torch.device("cpu")).requires_grad_(False)

    @torch.no_grad()
    def update(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        """Go a little of the way to the weights that the phase reads."""
        (source,) = weights.values()
        mine, offered = named_weights(self._model), {name: tensor.cpu() for name, tensor in source.tensors()}
        refuse_other_model(_shapes(offered), _shapes(mine))
        for name, tensor in offered.items():
            mine[name].lerp_(tensor, 1 - self._decay)
        self._version += 1

    def save(self, ctx: Context) -> dict[str, str]:
        """Write it as a model that transformers loads, into the run's checkpoint."""
        with ctx.checkpoint() as folder:
            self._model.save_pretrained(folder)
            build_tokenizer(self._spec).save_pretrained(folder)
            torch.save({"version": self._version}, folder / STATE)
        return {"ckpt": str(folder)}

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint."""
        file = Path(folder) / STATE
        if not file.is_file():
            raise RunError(f"no average to load: '{file}' is missing; was the run saved with it?")
        spec = ModelSpec(source=str(folder), dtype=self._spec.dtype)
        self._model = build_model(spec, 0, torch.device("cpu")).requires_grad_(False)
        self._version = int(torch.load(file, weights_only=True)["version"])

    def weights(self, resource: str) -> Weights:
        """For whoever copies them."""
        self._must_be(resource)
        return Weights(self._version, lambda: weights_of(self._model))

    def version(self, resource: str) -> int:
        """How often it was updated."""
        self._must_be(resource)
        return self._version

    def _must_be(self, resource: str) -> None:
        if resource != self._name:
            raise RunError(f"the average is called '{self._name}', not '{resource}'")


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _check(decay: float, places: Mapping[str, str]) -> None:
    if not 0 <= decay < 1:
        raise ConfigError(f"the average's decay is {decay}; it must be from 0 up to, not including, 1")
    for name, place in places.items():
        if place != "host":
            raise ConfigError(f"{name} starts at {place}, but the average stays in host memory: say at: host")
