"""The engine's KV cache: one real allocation of a fixed size, lent out to one batch after the other.

The static cache of transformers cannot be backed by memory that is ours: each of its layers allocates for itself at
the first use, and attends over its full length at every token. So a layer of our own keeps to the same interface and
hands out windows of this buffer, and freeing the buffer frees the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from stepgraph.errors import ConfigError

PLAIN = {"full_attention", "sliding_attention"}


class KvBuffer:
    """Room for the keys and values of ``tokens`` tokens in all, counted over the rows of a batch."""

    def __init__(self, config: Any, tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        text = config.get_text_config()
        _must_be_plain(text)
        self.tokens, self._layers = tokens, text.num_hidden_layers
        self._heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        self._width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        self.storage = torch.zeros(tokens * self._layers * 2 * self._heads * self._width, dtype=dtype, device=device)

    def lend(self, rows: int, length: int) -> Lent:
        """A cache for ``rows`` sequences of up to ``length`` tokens. It takes over from the one lent before."""
        shape = (self._layers, 2, rows, self._heads, length, self._width)
        window = self.storage[: torch.Size(shape).numel()].view(shape)
        return Lent([_Layer(keys, values) for keys, values in window])


class Lent(Cache):
    """A cache whose layers are windows of the buffer."""

    layers: list[Any]

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers=layers)

    def repeat(self, times: int) -> None:
        """Give each sequence so far ``times`` copies, side by side: one prompt read once for all of its answers."""
        for layer in self.layers:
            layer.repeat(times)


class _Layer(CacheLayerMixin):
    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True
        self._rows = self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the memory is there already."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start, self._rows = self._length, key_states.shape[0]
        self._length += key_states.shape[2]
        self.keys[: self._rows, :, start : self._length] = key_states
        self.values[: self._rows, :, start : self._length] = value_states
        return self.keys[: self._rows, :, : self._length], self.values[: self._rows, :, : self._length]

    def repeat(self, times: int) -> None:
        for tensor in (self.keys, self.values):
            known = tensor[: self._rows, :, : self._length]
            tensor[: self._rows * times, :, : self._length] = known.repeat_interleave(times, dim=0)
        self._rows *= times

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._length + query_length, 0

    def get_seq_length(self) -> int:
        return self._length

    def get_max_length(self) -> int:
        return self.keys.shape[2]


def _must_be_plain(config: Any) -> None:
    odd = set(getattr(config, "layer_types", None) or ()) - PLAIN
    if odd:
        raise ConfigError(
            f"engine torch has no KV cache for {', '.join(sorted(odd))} layers; use another engine for this model"
        )
