"""Takes the tensors of a resource off the device so that the memory is really free, and brings them back unchanged.

What "host" is depends on the machine. With an accelerator it is pinned host memory. On a CPU the device *is* the
ordinary memory, so a tensor that stayed in memory would not have left it: host is a file, in the run directory or in
``/dev/shm``. The file has no name (it is gone with the process, so that a killed run leaves nothing behind).

Two traps decide how a tensor is emptied. One whose storage was shrunk to nothing crashes the process when it is read,
so a parked tensor gets new, empty storage instead and reads as empty. And what is freed the C library keeps for later:
asking for it back works, but takes the memory of everybody else's next allocation along, which made a small model's
training slower by a third. So tensors that come back lie in a mapping of their own, and that is given back whole; only
the first time, when they still lie where torch put them, is the C library asked. Either way, what the machine really
got back is measured, not assumed.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from stepgraph.components.torch.residency import Placed
from stepgraph.components.torch.store import HostFile, Slot, lay_out, nbytes, size
from stepgraph.errors import RunError

LARGE = 64 << 20  # bytes: work on a resource of this size leaves so much behind that giving it back pays
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


class Park(Placed):
    """The tensors of one resource, and where they are.

    ``tensors`` names them; it is asked anew before each move, as an optimizer makes its state late. A tensor keeps its
    identity through a move (only its data is exchanged), so whoever holds it need not be told.
    """

    stack = "torch"

    def __init__(self, resource: str, tensors: Callable[[], Mapping[str, Tensor]], device: torch.device, folder: Path):
        super().__init__(resource)
        self._tensors, self._device, self._folder = tensors, device, folder
        self._slots: dict[str, Slot] = {}
        self._host: HostFile | _Pinned | None = None
        self._mapping: _Mapping | None = None

    def move(self, place: str) -> int:
        before = self.place
        moved = super().move(place)
        if before == "device" != self.place and self.nbytes >= LARGE:
            give_back(self._device)
        return moved

    @property
    def nbytes(self) -> int:
        if self.place == "device":
            return sum(t.nbytes for t in self._tensors().values())
        return sum(nbytes(slot) for slot in self._slots.values())

    def parked(self, name: str) -> Tensor:
        """A copy of one tensor that is at ``host``, without bringing the rest back."""
        if self._host is None:
            raise RunError(f"'{self.resource}' is at '{self.place}' and has no contents there; reload it first")
        return self._host.read(self._slots[name])

    def _measured(self, act: Callable[[], None]) -> int:
        return measured(self._device, act)

    def _change(self, place: str) -> None:
        if place == "none":
            self._host = None
        else:  # from nothing to host: empty contents, so that the next move brings zeros back
            self._host = self._new_host()
            self._host.extend(self._slots)

    def _leave(self, place: str) -> None:
        tensors = self._tensors()
        self._slots = lay_out(tensors)
        self._host = self._written(tensors) if place == "host" else None
        strangers = not all(self._is_mapped(tensor) for tensor in tensors.values())
        for tensor in tensors.values():
            tensor.data = torch.empty(0, dtype=tensor.dtype)
        self._mapping = None
        if strangers:
            give_back(self._device)

    def _written(self, tensors: Mapping[str, Tensor]) -> HostFile | _Pinned:
        try:
            host = self._new_host()
            for name, tensor in tensors.items():
                host.write(self._slots[name], tensor)
        except OSError as error:
            cure = "make room there, or set park= to another folder"
            raise RunError(f"cannot park '{self.resource}' in '{self._folder}': {error.strerror}; {cure}") from error
        return host

    def _return(self) -> None:
        tensors = self._tensors()
        source = self._from_file() if self._device.type == "cpu" else self._from_pinned
        for name, tensor in tensors.items():
            tensor.data = source(self._slots[name])
        self._host = None

    def _from_file(self) -> Callable[[Slot], Tensor]:
        self._mapping = mapping = _Mapping(size(self._slots.values()))
        mapping.fill(self._host if isinstance(self._host, HostFile) else None)
        return mapping.window

    def _from_pinned(self, slot: Slot) -> Tensor:
        if self._host is None:
            return torch.zeros(slot.shape, dtype=slot.dtype, device=slot.device)
        return self._host.read(slot).to(slot.device, copy=True)

    def _is_mapped(self, tensor: Tensor) -> bool:
        return self._mapping is not None and self._mapping.holds(tensor)

    def _new_host(self) -> HostFile | _Pinned:
        return HostFile(self._folder) if self._device.type == "cpu" else _Pinned()


class _Mapping:
    """Memory of its own, taken from the system and given back whole when the last tensor in it is gone."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._whole = torch.frombuffer(self._memory, dtype=torch.uint8)

    def fill(self, host: HostFile | None) -> None:
        if host is None:
            self._whole.zero_()  # it is zero already, but only touching makes the system hand it out
        else:
            host.read_into(memoryview(self._memory), 0)

    def window(self, slot: Slot) -> Tensor:
        """A tensor with storage of its own, so that saving one does not save all."""
        count = slot.shape.numel()
        if count == 0:
            return torch.empty(slot.shape, dtype=slot.dtype)
        return torch.frombuffer(self._memory, dtype=slot.dtype, count=count, offset=slot.offset).view(slot.shape)

    def holds(self, tensor: Tensor) -> bool:
        first = self._whole.data_ptr()
        return first <= tensor.data_ptr() < first + len(self._whole)


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
    """Run ``act`` and return by how many bytes the device's memory changed.

    On a CPU that is this process's anonymous memory, so what other threads allocate meanwhile is counted too.
    """
    before = _used(device)
    act()
    return abs(before - _used(device))


def _used(device: torch.device) -> int:
    return anonymous_bytes() if device.type == "cpu" else torch.cuda.memory_reserved(device)


def give_back(device: torch.device) -> None:
    """Make the allocator return what it holds back. C libraries other than glibc have no such call, and need none."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif _TRIM is not None:
        _TRIM(0)


def anonymous_bytes() -> int:
    """This process's resident memory that no file backs; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = ANONYMOUS.search(status)
    return int(found.group(1)) * 1024 if found else 0
