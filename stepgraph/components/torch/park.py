"""Takes the tensors of a resource off the device so that the memory is really free, and brings them back bit by bit the same.

What "host" is depends on the machine. With an accelerator it is pinned host memory. On a CPU the device *is* the
ordinary memory, so a tensor that stayed in memory would not have left it: host is a file, in the run directory or in
``/dev/shm``. The file has no name (it is gone with the process, so that a killed run leaves nothing behind).

Two traps decide how a tensor is emptied. One whose storage was shrunk to nothing crashes the process when it is read,
so a parked tensor gets new, empty storage instead and reads as empty. And freeing alone gives little back: the C
library keeps it for later, so it is asked to return it, and what the machine really got back is measured, not assumed.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from stepgraph.errors import RunError, did_you_mean

PLACES = ("device", "host", "none")
ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Slot:
    """A parked tensor: what it was, and where its bytes are in the file."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    offset: int


class Park:
    """The tensors of one resource, and where they are.

    ``tensors`` names them; it is asked anew before each move, as an optimizer makes its state late. A tensor keeps its
    identity through a move (only its data is exchanged), so whoever holds it need not be told. ``lost`` says that the
    contents were dropped; who writes new ones calls ``filled``.
    """

    def __init__(self, resource: str, tensors: Callable[[], Mapping[str, Tensor]], device: torch.device, folder: Path):
        self.resource, self.place, self.lost = resource, "device", False
        self._tensors, self._device, self._folder = tensors, device, folder
        self._slots: dict[str, Slot] = {}
        self._host: _File | _Pinned | None = None

    def move(self, place: str) -> int:
        """Go to a place. Returns the bytes that the device really lost, or got back; 0 when already there."""
        if place not in PLACES:
            known = ", ".join(PLACES)
            hint = did_you_mean(place, PLACES)
            raise RunError(f"torch cannot move '{self.resource}' to '{place}'{hint}; the places it has are {known}")
        if place == self.place:
            return 0
        moved = measured(self._device, lambda: self._go(place))
        self.place, self.lost = place, self.lost or place == "none"
        return min(abs(moved), self.nbytes)

    def filled(self) -> None:
        self.lost = False

    @property
    def nbytes(self) -> int:
        """The size of the contents, wherever they are."""
        if self.place == "device":
            return sum(t.nbytes for t in self._tensors().values())
        return sum(_nbytes(slot) for slot in self._slots.values())

    def parked(self, name: str) -> Tensor:
        """A copy of one tensor that is at ``host``, without bringing the rest back."""
        if self._host is None:
            raise RunError(f"'{self.resource}' is at '{self.place}' and has no contents there; reload it first")
        return self._host.read(self._slots[name])

    def _go(self, place: str) -> None:
        if self.place == "device":
            self._leave(place)
        elif place == "device":
            self._return()
        elif place == "none":
            self._host = None
        else:  # from nothing to host: empty contents, so that the next move brings zeros back
            self._host = self._new_host()
            self._host.extend(self._slots)

    def _leave(self, place: str) -> None:
        tensors = self._tensors()
        self._slots = _lay_out(tensors)
        if place == "host":
            self._host = self._new_host()
            for name, tensor in tensors.items():
                self._host.write(self._slots[name], tensor)
        for tensor in tensors.values():
            tensor.data = torch.empty(0, dtype=tensor.dtype)

    def _return(self) -> None:
        for name, tensor in self._tensors().items():
            slot = self._slots[name]
            found = self._host.read(slot) if self._host else torch.zeros(slot.shape, dtype=slot.dtype)
            tensor.data = found.to(slot.device)
        self._host = None

    def _new_host(self) -> _File | _Pinned:
        return _File(self._folder) if self._device.type == "cpu" else _Pinned()


class _File:
    """Parked bytes in a file without a name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed with the object)

    def write(self, slot: Slot, tensor: Tensor) -> None:
        self._file.seek(slot.offset)
        view = memoryview(_raw(tensor.detach().contiguous()))
        while view:
            view = view[self._file.write(view) :]

    def read(self, slot: Slot) -> Tensor:
        tensor = torch.empty(slot.shape, dtype=slot.dtype)
        self._file.seek(slot.offset)
        view = memoryview(_raw(tensor))
        while view:
            got = self._file.readinto(view)
            if not got:
                raise RunError("a parked tensor's file is too short; was the disk full?")
            view = view[got:]
        return tensor

    def extend(self, slots: Mapping[str, Slot]) -> None:
        self._file.truncate(max((slot.offset + _nbytes(slot) for slot in slots.values()), default=0))


class _Pinned:
    """Parked bytes in pinned host memory, from where a copy to the device is fastest."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def write(self, slot: Slot, tensor: Tensor) -> None:
        self._kept[slot.offset] = torch.empty(slot.shape, dtype=slot.dtype, pin_memory=True).copy_(tensor.detach())

    def read(self, slot: Slot) -> Tensor:
        return self._kept[slot.offset]

    def extend(self, slots: Mapping[str, Slot]) -> None:
        self._kept = {slot.offset: torch.zeros(slot.shape, dtype=slot.dtype) for slot in slots.values()}


def measured(device: torch.device, act: Callable[[], None]) -> int:
    """Run ``act`` and return by how many bytes the device's memory fell (negative: grew).

    On a CPU that is this process's anonymous memory, so what other threads allocate meanwhile is counted too.
    """
    before = _used(device)
    act()
    return before - _used(device)


def _used(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(device)
    _trim()
    return anonymous_bytes()


def anonymous_bytes() -> int:
    """This process's resident memory that no file backs; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = ANONYMOUS.search(status)
    return int(found.group(1)) * 1024 if found else 0


def _trim() -> None:
    """Ask glibc for what it holds back. Other C libraries have no such call, and nothing is lost without it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _lay_out(tensors: Mapping[str, Tensor]) -> dict[str, Slot]:
    slots, offset = {}, 0
    for name, tensor in tensors.items():
        slots[name] = Slot(tensor.shape, tensor.dtype, tensor.device, offset)
        offset += -(-tensor.nbytes // 64) * 64 or 64  # aligned, and no two slots share an offset
    return slots


def _nbytes(slot: Slot) -> int:
    return slot.shape.numel() * slot.dtype.itemsize


def _raw(tensor: Tensor) -> Any:
    """The tensor's bytes, not a copy of them."""
    return tensor.reshape(-1).view(torch.uint8).numpy()
