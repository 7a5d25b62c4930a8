"""Weights as Ray's object store carries them: bytes beside the pickle, so that reading them copies nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepgraph.runtime.contract import Weights
from stepgraph.runtime.ray_wire import Failed


@dataclass(frozen=True, slots=True)
class Lost:
    """What comes in place of weights that could not be sent: whoever opens it gets the sender's error."""

    error: Failed
    sender: str

    def weights(self) -> Weights:
        raise self.error.error(self.sender)


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor as bytes that the object store keeps outside of the pickle, so that reading it copies nothing."""

    bytes: Any
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Any) -> Packed:
        import torch

        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return cls(flat.numpy(), str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

    def tensor(self) -> Any:
        """A tensor on the store's own memory. It is read-only: whoever wants to change it copies it first."""
        import torch

        if not len(self.bytes):
            return torch.empty(self.shape, dtype=getattr(torch, self.dtype))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(self.bytes)
        return flat.view(getattr(torch, self.dtype)).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights in the object store."""

    version: int
    named: tuple[tuple[str, Any], ...]

    def weights(self) -> Weights:
        return Weights(self.version, self._tensors)

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        return ((name, one.tensor() if isinstance(one, Packed) else one) for name, one in self.named)


class Packer:
    """Packs weights for the object store, anew each time: what is in it cannot be changed."""

    def send(self, weights: Weights) -> Stored:
        named = ((name, Packed.of(one) if is_tensor(one) else one) for name, one in weights.tensors())
        return Stored(weights.version, tuple(named))

    def close(self) -> None:
        """Ray counts who still reads."""


def is_tensor(contents: Any) -> bool:
    """Whether it is one of torch's. Where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_tensor(contents))
