"""Weights in memory that two processes share: one copy into it by the sender, none by the receiver.

The memory is a file without a name, which the receiver opens through the sender's ``/proc/PID/fd``: however the
processes end, nothing is left behind, and it does not matter that a container's ``/dev/shm`` is small.

A buffer is used again from sync to sync, unless somebody still reads it: a reader holds a shared lock on the file for
as long as any tensor lies in it, and the sender writes only under the exclusive one. Where it cannot have that, it
takes another buffer. Both sides keep their mappings, as making one costs half as much as copying all that is in it.
What a receiver is given is read-only, and the process ends where it writes there: it copies what it wants to change.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

from stepgraph.errors import RunError
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.ray_parcel import is_tensor

ALIGN = 64
HEADER = ALIGN
"""The first bytes hold the number of the sync whose weights follow; 0 while they are being written."""
MOST = 4
"""Buffers of one sender. A receiver that is late holds one; one that lets nothing go must not fill the memory."""
CURE = "transport=object_store needs no shared memory"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where in a buffer a tensor lies."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    def to_write(self, memory: mmap.mmap) -> Any:
        """The tensor, on the sender's memory."""
        import torch

        dtype, shape = getattr(torch, self.dtype), torch.Size(self.shape)
        return torch.frombuffer(memory, dtype=dtype, count=shape.numel(), offset=self.offset).view(shape)

    def to_read(self, whole: Any) -> Any:
        """The tensor, on a receiver's view of the memory."""
        import torch

        dtype, shape = getattr(torch, self.dtype), torch.Size(self.shape)
        if not shape.numel():
            return torch.empty(shape, dtype=dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(whole[self.offset : self.offset + shape.numel() * dtype.itemsize])
        return flat.view(dtype).view(shape)


class Buffer:
    """Memory to share. It grows to what the first sync needs, and stays that large."""

    def __init__(self) -> None:
        self._file = os.memfd_create("stepgraph-weights")
        os.ftruncate(self._file, HEADER)
        self._memory = mmap.mmap(self._file, HEADER)
        self.path, found = f"/proc/{os.getpid()}/fd/{self._file}", os.fstat(self._file)
        self.identity = (found.st_dev, found.st_ino)

    def taken(self) -> bool:
        """Take it for writing, unless somebody reads it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._stamp(0)
        return True

    def filled(self, weights: Weights, number: int) -> Sent:
        """Write the weights, and let readers in."""
        end, named = HEADER, list[tuple[str, Any]]()
        try:
            for name, contents in weights.tensors():
                one, end = self._written(contents, end) if is_tensor(contents) else (contents, end)
                named.append((name, one))
            self._stamp(number)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return Sent(weights.version, number, self.path, self.identity, end, tuple(named))

    def close(self) -> None:
        self._memory.close()
        os.close(self._file)

    def _written(self, tensor: Any, start: int) -> tuple[Slot, int]:
        slot = Slot(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), start)
        end = start + -(-tensor.nbytes // ALIGN) * ALIGN
        self._reserve(end)
        if tensor.nbytes:
            slot.to_write(self._memory).copy_(tensor.detach())
        return slot, end

    def _reserve(self, end: int) -> None:
        """Grow. The memory is claimed first: a page that is not there when it is written to ends the process."""
        size = len(self._memory)
        if end <= size:
            return
        try:
            os.posix_fallocate(self._file, size, end - size)
        except OSError as error:
            raise RunError(
                f"no shared memory for {end / 2**30:.3g} GiB of weights ({error.strerror}): make room, or {CURE}"
            ) from error
        self._memory.resize(end)

    def _stamp(self, number: int) -> None:
        self._memory[:8] = number.to_bytes(8, "little")


@dataclass(frozen=True, slots=True)
class Sent:
    """Weights in a buffer. Opened by another process of the same machine, which reads them where they are."""

    version: int
    number: int
    path: str
    identity: tuple[int, int]
    size: int
    named: tuple[tuple[str, Any], ...]

    def weights(self) -> Weights:
        whole = self._leased()
        if int.from_bytes(bytes(whole[:8]), "little") != self.number:
            raise RunError(f"the weights of version {self.version} were replaced before they were read; sync again")
        return Weights(self.version, lambda: self._in(whole))

    def _in(self, whole: Any) -> Iterator[tuple[str, Any]]:
        return ((name, one.to_read(whole) if isinstance(one, Slot) else one) for name, one in self.named)

    def _leased(self) -> Any:
        """The memory as one array of bytes. Whatever is made of it keeps the lock."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RunError(
                f"cannot open the sender's memory {self.path} ({error.strerror}); does it live, under the same user "
                f"and in the same container? {CURE}"
            ) from error
        lease = Lease(file)
        self._lock(file)
        return import_module("numpy").asarray(lease.on(_mapped(self.identity, file, self.size)))

    def _lock(self, file: int) -> None:
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != self.identity:
            raise RunError(f"{self.path} is not the sender's memory any more: it has ended")
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"the weights of version {self.version} are being replaced before they were read; sync again"
            ) from None


class Lease:
    """A lock on a buffer that ends with the last array or tensor that was made of it."""

    __array_interface__: Mapping[str, Any]

    def __init__(self, file: int) -> None:
        self._file, self._memory = file, None

    def on(self, memory: Any) -> Lease:
        """Stand for this memory, as NumPy asks it."""
        self._memory, readonly = memory, True
        self.__array_interface__ = {**memory.__array_interface__, "data": (memory.ctypes.data, readonly)}
        return self

    def __del__(self) -> None:
        os.close(self._file)


_READ: dict[tuple[int, int], Any] = {}
"""What this process reads, as arrays of bytes."""


def _mapped(identity: tuple[int, int], file: int, size: int) -> Any:
    known = _READ.get(identity)
    if known is not None and len(known) >= size:
        return known
    own = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)  # a mapping keeps the lock of what it maps
    try:
        memory = mmap.mmap(own, os.fstat(own).st_size, access=mmap.ACCESS_READ)
    finally:
        os.close(own)
    _READ[identity] = import_module("numpy").frombuffer(memory, dtype="uint8")
    for old in list(_READ)[:-MOST]:
        del _READ[old]
    return _READ[identity]


class Buffers:
    """Sends weights, each time through a buffer that nobody reads."""

    def __init__(self) -> None:
        self._all: list[Buffer] = []
        self._numbers = count(1)

    def send(self, weights: Weights) -> Sent:
        return self._free().filled(weights, next(self._numbers))

    def close(self) -> None:
        for buffer in self._all:
            buffer.close()
        self._all = []

    def _free(self) -> Buffer:
        for buffer in self._all:
            if buffer.taken():
                return buffer
        if len(self._all) == MOST:
            raise RunError(
                f"the weights of the last {MOST} syncs are all still being read: "
                f"a receiver must copy what it is given, and let go of it; or {CURE}"
            )
        made = Buffer()
        made.taken()
        self._all.append(made)
        return made
