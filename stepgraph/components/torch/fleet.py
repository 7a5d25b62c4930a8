"""Evaluates exported models: its weights come from files, so that no evaluation keeps a sync of the run's engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from stepgraph.components.torch.engine import TorchEngine
from stepgraph.components.torch.model import build_model, weights_of
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.runtime.contract import Context, Shared, Weights


class TorchFleet:
    """An engine of its own that answers the held-out prompts with the model in a folder."""

    asks = ("data", "rewards")

    def __init__(self, shared: Shared, *, max_new_tokens: int | None = None, kv_tokens: int = 4096) -> None:
        self._spec = ModelSpec.of(shared.model)
        self._engine = TorchEngine(shared, group=1, max_new_tokens=max_new_tokens, kv_tokens=kv_tokens)

    def evaluate(self, ctx: Context, export: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Load what was exported, answer the held-out prompts greedily, and let the rewards component score them."""
        spec = replace(self._spec, source=export["folder"], config={}, package=None, revision=None)
        weights = Weights(export["version"], lambda: weights_of(build_model(spec, 0, torch.device("cpu"))))
        self._engine.sync(ctx, {"engine": weights})
        return self._engine.evaluate(ctx)
