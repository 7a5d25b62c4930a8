"""A reference model: the first weights, frozen, with a place of their own, so that the graph says when they are there.

The trainer can keep such a copy itself, but then it goes wherever the policy goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from stepgraph.components.torch.batch import answer_logprobs, collate
from stepgraph.components.torch.model import build_model, build_tokenizer, named_weights, pick_device
from stepgraph.components.torch.park import Park
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.threads import set_threads
from stepgraph.runtime.contract import Context, Rollout, Shared


class TorchReference:
    """Says how likely answers are under the first weights. ``places`` says where these start."""

    def __init__(
        self,
        shared: Shared,
        *,
        micro_batch: int = 256,
        temperature: float = 1.0,
        park: str | None = None,
        reference: str = "reference",
        places: Mapping[str, str] | None = None,
    ) -> None:
        spec, self._device = ModelSpec.of(shared.model), pick_device(shared.devices)
        set_threads(spec.threads)
        self._model = build_model(spec, shared.seed, self._device).requires_grad_(False)
        self._pad = build_tokenizer(spec).pad_token_id
        self._micro_batch, self._temperature, self._name = micro_batch, temperature, reference
        weights = named_weights(self._model)
        kept = Park(reference, lambda: weights, self._device, park_folder(shared.run_dir, park))
        self._places = Residency("reference", {reference: kept}, places)

    def logprobs(self, ctx: Context, rollouts: Sequence[Rollout]) -> dict[str, list[tuple[float, ...]]]:
        """The natural-log probability of each token of each rollout."""
        self._places.must_be_on_device(self._name, "logprobs")
        self._places.must_have_contents(self._name, "logprobs")
        parts = [rollouts[i : i + self._micro_batch] for i in range(0, len(rollouts), self._micro_batch)]
        return {"ref_logprobs": [row for part in parts for row in self._rows(part)]}

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Take the weights off the device. Returns the bytes that were really freed."""
        return self._places.move(moves)

    def reload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        """Bring them back. Returns the bytes that really came back."""
        return self._places.move(moves)

    def version(self, resource: str) -> int:
        """Always the first one."""
        self._places[resource]
        return 0

    @torch.no_grad()
    def _rows(self, rollouts: Sequence[Rollout]) -> list[tuple[float, ...]]:
        found = answer_logprobs(self._model, collate(rollouts, self._pad, self._device), self._temperature).tolist()
        return [tuple(row[: len(rollout.tokens)]) for row, rollout in zip(found, rollouts, strict=True)]
