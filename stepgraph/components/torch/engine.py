"""The embedded rollout engine: a copy of the policy that samples answers, in this process, on any machine.

It has weights of its own, so that a sync is a real copy and its absence shows, and a KV cache of its own, so that
freeing it frees something. It keeps nothing that is derived from the weights from one call to the next: the cache is
written anew by each call, so a sync has nothing else to reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from stepgraph.components.torch.kv import KvBuffer
from stepgraph.components.torch.match import refuse_other_model
from stepgraph.components.torch.model import build_model, named_weights, pick_device
from stepgraph.components.torch.park import Park
from stepgraph.components.torch.residency import Residency, park_folder
from stepgraph.components.torch.rollout import RolloutEngine
from stepgraph.components.torch.sampler import Answer, Sampling, sample
from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import ConfigError
from stepgraph.runtime.contract import Prompt, Shared, Weights


class TorchEngine(RolloutEngine):
    """Generates and evaluates with transformers' models. ``places`` says where its two resources start."""

    def __init__(
        self,
        shared: Shared,
        *,
        group: int = 8,
        temperature: float = 1.0,
        max_new_tokens: int | None = None,
        kv_tokens: int = 4096,
        park: str | None = None,
        weights: str = "engine",
        kv: str = "kv",
        places: Mapping[str, str] | None = None,
    ) -> None:
        if kv_tokens < 1:
            raise ConfigError("engine.kv_tokens must be 1 or more")
        super().__init__(
            shared, group=group, temperature=temperature, max_new_tokens=max_new_tokens, weights=weights, kv=kv
        )
        device = pick_device(shared.devices)
        set_threads(self._spec.threads)
        self._model = build_model(self._spec, shared.seed, device).requires_grad_(False)
        self._names = named_weights(self._model)
        self._kv = KvBuffer(self._model.config, kv_tokens, self._model.dtype, device)
        folder = park_folder(shared.run_dir, park)
        parks = {
            weights: Park(weights, lambda: self._names, device, folder),
            kv: Park(kv, lambda: {"kv": self._kv.storage}, device, folder),
        }
        self._places = Residency("engine", parks, places)

    def _sample(self, prompts: Sequence[Prompt], group: int, temperature: float, seed: int) -> list[Answer]:
        tokens = [self._read(prompt.text) for prompt in prompts]
        pad, eos = self._tokenizer.pad_token_id, self._tokenizer.eos_token_id
        how = Sampling(group, self._max_new, temperature, eos, pad, seed % (1 << 63))
        return sample(self._model, self._kv, tokens, how)

    def _complete(self, ids: Sequence[int], most: int, temperature: float, seed: int) -> Answer:
        pad, eos = self._tokenizer.pad_token_id, self._tokenizer.eos_token_id
        return sample(self._model, self._kv, [ids], Sampling(1, most, temperature, eos, pad, seed % (1 << 63)))[0]

    @torch.no_grad()
    def _copy(self, source: Weights) -> None:
        offered = {}
        for name, tensor in source.tensors():
            offered[name] = tensor.shape
            mine = self._names.get(name)
            if mine is not None and mine.shape == tensor.shape:
                mine.copy_(tensor)
        refuse_other_model(offered, {name: tensor.shape for name, tensor in self._names.items()})
