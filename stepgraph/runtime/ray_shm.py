"""Weights in memory that two processes share: one copy into it by the sender, none by the receiver.

The memory is a file without a name, which the receiver opens through the sender's ``/proc/PID/fd``: however the
processes end, nothing is left behind, and it does not matter that a container's ``/dev/shm`` is small.

A buffer is used again from sync to sync, unless somebody still reads it. A reader's mapping holds a shared lock on the
file for as long as any tensor lies in it, and the sender writes only under the exclusive one; where it cannot have
that, it takes another buffer. A mapping is private: a receiver that writes into what it was given changes its own copy.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
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

    def on(self, memory: mmap.mmap) -> Any:
        """The tensor, on that memory."""
        import torch

        dtype, shape = getattr(torch, self.dtype), torch.Size(self.shape)
        if not shape.numel():
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(memory, dtype=dtype, count=shape.numel(), offset=self.offset).view(shape)


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
            slot.on(self._memory).copy_(tensor.detach())
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
        memory = self._mapped()
        if int.from_bytes(memory[:8], "little") != self.number:
            raise RunError(f"the weights of version {self.version} were replaced before they were read; sync again")
        return Weights(self.version, lambda: self._on(memory))

    def _on(self, memory: mmap.mmap) -> Iterator[tuple[str, Any]]:
        return ((name, one.on(memory) if isinstance(one, Slot) else one) for name, one in self.named)

    def _mapped(self) -> mmap.mmap:
        """The memory, locked until nobody has it any more: a mapping keeps a descriptor of its own, and so the lock."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RunError(
                f"cannot open the sender's memory {self.path} ({error.strerror}); does it live, under the same user "
                f"and in the same container? {CURE}"
            ) from error
        try:
            self._lock(file)
            return mmap.mmap(file, self.size, access=mmap.ACCESS_COPY)
        finally:
            os.close(file)

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
