"""Takes all that DeepSpeed holds off the device and brings it back unchanged, on any stage of ZeRO.

DeepSpeed's own offload says it is done on a CPU and frees nothing, and knows neither stage 0 nor an optimizer that is
not its own. Its parameters are windows on flat buffers, so a tensor cannot be given new memory when it returns: it
would no longer be a window. Here the storages themselves are emptied and filled again, and every window stays one.
Reading one meanwhile ends the process; so whoever owns them asks first where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepgraph.components.torch.park import give_back, measured
from stepgraph.components.torch.residency import Placed
from stepgraph.components.torch.store import HostFile, Slot
from stepgraph.errors import RunError

CPU = torch.device("cpu")
LINE = 64  # bytes: where a storage may begin in the file


@dataclass(frozen=True, slots=True)
class Away:
    """A storage that is not there: its size, where its bytes are in the file, or the tensor that keeps them."""

    storage: Any
    size: int
    offset: int
    pinned: Tensor | None = None


class StoragePark(Placed):
    """The storages of one resource, and where they are. ``tensors`` is asked anew before each move."""

    stack = "deepspeed"

    def __init__(self, resource: str, tensors: Callable[[], Iterable[Tensor]], device: torch.device, folder: Path):
        super().__init__(resource)
        self._tensors, self._device, self._folder = tensors, device, folder
        self._away: dict[int, Away] = {}
        self._file: HostFile | None = None

    @property
    def nbytes(self) -> int:
        if self.place == "device":
            return sum(storage.nbytes() for storage in self._storages())
        return sum(one.size for one in self._away.values())

    def parked(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor that is at ``host``, without bringing the rest back."""
        if self.place != "host":
            raise RunError(f"'{self.resource}' is at '{self.place}' and has no contents there; reload it first")
        away = self._away[tensor.untyped_storage()._cdata]
        first, count = int(tensor.storage_offset()) * tensor.itemsize, tensor.nbytes
        if self._file is None or not tensor.is_contiguous():
            whole = self._bytes(away).view(tensor.dtype)
            return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        part = Slot(tensor.shape, tensor.dtype, CPU, away.offset + first)
        return self._file.read(part) if count else torch.empty(tensor.shape, dtype=tensor.dtype)

    def _measured(self, act: Callable[[], None]) -> int:
        return measured(self._device, act)

    def _go(self, place: str) -> None:
        super()._go(place)
        give_back(self._device)

    def _change(self, place: str) -> None:
        self._file = None
        self._away = {key: Away(one.storage, one.size, one.offset) for key, one in self._away.items()}

    def _leave(self, place: str) -> None:
        offset = 0
        make_resizable(self._tensors())
        for storage in self._storages():
            self._away[storage._cdata] = Away(storage, storage.nbytes(), offset)
            offset += -(-storage.nbytes() // LINE) * LINE
        if place == "host":
            self._write()
        for one in self._away.values():
            one.storage.resize_(0)

    def _write(self) -> None:
        try:
            self._file = HostFile(self._folder) if self._device.type == "cpu" else None
            self._away = {key: self._written(one) for key, one in self._away.items()}
        except OSError as error:
            self._away, self._file = {}, None
            cure = "make room there, or set park= to another folder"
            raise RunError(f"cannot park '{self.resource}' in '{self._folder}': {error.strerror}; {cure}") from error

    def _written(self, one: Away) -> Away:
        contents = window(one.storage, self._device)
        if self._file is not None:
            self._file.write(_slot(one), contents)
            return one
        pinned = torch.empty(one.size, dtype=torch.uint8, pin_memory=True).copy_(contents)
        return Away(one.storage, one.size, one.offset, pinned)

    def _return(self) -> None:
        for one in self._away.values():
            one.storage.resize_(one.size)
            window(one.storage, self._device).copy_(self._bytes(one))
        self._away, self._file = {}, None

    def _bytes(self, one: Away) -> Tensor:
        if one.pinned is not None:
            return one.pinned
        return torch.zeros(one.size, dtype=torch.uint8) if self._file is None else self._file.read(_slot(one))

    def _storages(self) -> list[Any]:
        found = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in self._tensors()}
        return [storage for storage in found.values() if storage.nbytes() and storage.device.type == self._device.type]


def window(storage: Any, device: torch.device) -> Tensor:
    """All the bytes of a storage, as a tensor on it."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def make_resizable(tensors: Iterable[Tensor]) -> None:
    """Give tensors on memory that is not theirs to shrink, such as a file's, memory that is; who shared goes on to."""
    moved: dict[int, Tensor] = {}
    for tensor in tensors:
        old = tensor.untyped_storage()
        if not old.nbytes() or old.resizable():
            continue
        new = moved.setdefault(old._cdata, window(old, tensor.device).clone()).untyped_storage()
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(new, *place)


def tensors_in(roots: Iterable[Any], prefix: str) -> Iterator[Tensor]:
    """Every tensor that is reachable from ``roots`` through containers and objects of the package ``prefix``.

    Where a framework keeps its tensors changes from release to release; that it keeps them in its objects does not.
    """
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield one
        waiting += _parts(one, prefix)


def _parts(one: Any, prefix: str) -> list[Any]:
    if isinstance(one, Tensor):
        return [one.grad, *vars(one).values()] if one.is_leaf else []
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    ours = type(one).__module__.startswith((prefix, "torch.optim"))
    return list(vars(one).values()) if ours and hasattr(one, "__dict__") else []


def _slot(one: Away) -> Slot:
    return Slot(torch.Size([one.size]), torch.uint8, CPU, one.offset)
