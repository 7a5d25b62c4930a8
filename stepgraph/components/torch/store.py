"""Tensors in a file without a name: what stands for host memory on a machine where the device is the host's memory.

The file is gone with the process, so that a killed run leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from stepgraph.errors import RunError


@dataclass(frozen=True, slots=True)
class Slot:
    """A parked tensor: what it was, and where its bytes are in the file."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    offset: int


class HostFile:
    """Parked bytes in a file without a name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed with the object)

    def write(self, slot: Slot, tensor: Tensor) -> None:
        plain = tensor.detach().cpu().contiguous()  # named, because the view below does not keep it alive
        view, place = raw(plain), slot.offset
        while view:
            written = os.pwrite(self._file.fileno(), view, place)
            view, place = view[written:], place + written

    def read(self, slot: Slot) -> Tensor:
        tensor = torch.empty(slot.shape, dtype=slot.dtype)
        self.read_into(raw(tensor), slot.offset)
        return tensor

    def read_into(self, view: memoryview, place: int) -> None:
        while view:
            got = os.preadv(self._file.fileno(), [view], place)
            if not got:
                raise RunError("the file of a parked resource ends too early; was it cut short, or the disk full?")
            view, place = view[got:], place + got

    def extend(self, slots: Mapping[str, Slot]) -> None:
        self._file.truncate(size(slots.values()))


def lay_out(tensors: Mapping[str, Tensor]) -> dict[str, Slot]:
    """A place in a file for each tensor."""
    slots, offset = {}, 0
    for name, tensor in tensors.items():
        slots[name] = Slot(tensor.shape, tensor.dtype, tensor.device, offset)
        offset = following(offset, tensor)
    return slots


def following(offset: int, tensor: Tensor) -> int:
    """Where the slot after a tensor's may begin: aligned, and no two slots share an offset."""
    return offset + (-(-tensor.nbytes // 64) * 64 or 64)


def size(slots: Iterable[Slot]) -> int:
    """How long a file with these slots is."""
    return max((slot.offset + nbytes(slot) for slot in slots), default=0)


def nbytes(slot: Slot) -> int:
    """How many bytes a slot holds."""
    return slot.shape.numel() * slot.dtype.itemsize


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in main memory, not a copy. NumPy would do too, but it pins the storage for good."""
    count = max(tensor.nbytes, 1)
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")[: tensor.nbytes]
