"""Where vLLM's weights and KV cache are. Both are put away and brought back by vLLM's own levels and tags.

On a GPU, vLLM keeps the weights that it puts away in pinned memory, and lets them go only along with the KV cache. On a
CPU, where host memory is the device, they are in a file: the last sync has put a copy there. Whatever vLLM says of
it, the bytes are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepgraph.components.torch.park import give_back, measured
from stepgraph.components.torch.residency import Placed
from stepgraph.components.torch.store import HostFile, Slot, following
from stepgraph.components.vllm.worker import KV, WEIGHTS
from stepgraph.errors import RunError

CPU = torch.device("cpu")
Tensors = Callable[[], Iterator[tuple[str, Tensor]]]


class Sleeper(Placed):
    """One resource of a vLLM, with a place. A subclass says how it leaves and returns."""

    stack = "vllm"
    tag: str

    def __init__(self, llm: Any, resource: str, size: int, on_cpu: bool) -> None:
        super().__init__(resource)
        self._llm, self._size, self._on_cpu = llm, size, on_cpu

    @property
    def nbytes(self) -> int:
        return self._size

    def _leave(self, place: str) -> None:
        self._ask("discard", (self.tag,))

    def _return(self) -> None:
        self._ask("wake_up", [self.tag])

    def _change(self, place: str) -> None:
        self._forget()

    def _forget(self) -> None:
        """What was put away is not wanted any more."""

    def _ask(self, method: str, *arguments: Any) -> None:
        self._llm.collective_rpc(method, args=arguments)

    def _measured(self, act: Callable[[], None]) -> int:
        if not self._on_cpu:
            before = torch.cuda.mem_get_info()[0]
            act()
            return abs(before - torch.cuda.mem_get_info()[0])
        give_back(CPU)  # what others have left must not count for this move
        return measured(CPU, lambda: self._all_of(act))

    def _all_of(self, act: Callable[[], None]) -> None:
        act()
        give_back(CPU)


class Cache(Sleeper):
    """The KV cache. Its contents never matter, so there is nowhere to keep them."""

    places = ("device", "none")
    tag = KV


class Copy(Sleeper):
    """The engine's weights."""

    tag = WEIGHTS

    def __init__(self, llm: Any, resource: str, size: int, on_cpu: bool, *, cache: Cache, folder: Path) -> None:
        super().__init__(llm, resource, size, on_cpu)
        self._cache, self._folder, self._kept, self._known = cache, folder, _Kept.nothing(), False

    def take(self, tensors: Tensors, accept: Callable[[Mapping[str, Any]], None]) -> None:
        """Load all the weights, once ``accept`` has seen their names and shapes and does not object."""
        self._kept = _Kept.nothing()
        if self._on_cpu:
            kept = _Kept.of(tensors(), self._folder)
            accept({name: slot.shape for name, slot in kept.slots.items()})
            self._ask("take_weights", kept.tensors())
            self._kept = kept
        else:
            self._take_straight(tensors, accept)

    def _take_straight(self, tensors: Tensors, accept: Callable[[Mapping[str, Any]], None]) -> None:
        """Load tensors as they come. What is offered the first time is looked at before any of it is loaded."""
        if not self._known:
            accept({name: tensor.shape for name, tensor in tensors()})
        seen: dict[str, Any] = {}
        self._ask("take_weights", _watched(tensors(), seen))
        accept(seen)
        self._known = True

    def _leave(self, place: str) -> None:
        if self._on_cpu:
            super()._leave(place)
        elif self._cache.place == "device":
            cure = f"move '{self._cache.resource}' in the same handoff or before"
            raise RunError(f"vllm lets '{self.resource}' go only along with its KV cache; {cure}")
        else:
            self._ask("sleep", 1 if place == "host" else 2)
        if place == "none":
            self._forget()

    def _return(self) -> None:
        super()._return()
        if self._on_cpu and self._kept.slots:
            self._ask("take_weights", self._kept.tensors())

    def _forget(self) -> None:
        self._kept = _Kept.nothing()


class _Kept:
    """A copy of weights in a file: what they are brought back from."""

    def __init__(self, slots: Mapping[str, Slot], file: HostFile | None) -> None:
        self.slots, self._file = slots, file

    @classmethod
    def nothing(cls) -> _Kept:
        return cls({}, None)

    @classmethod
    def of(cls, tensors: Iterator[tuple[str, Tensor]], folder: Path) -> _Kept:
        slots: dict[str, Slot] = {}
        end = 0
        try:
            file = HostFile(folder)
            for name, tensor in tensors:
                slots[name] = Slot(tensor.shape, tensor.dtype, tensor.device, end)
                file.write(slots[name], tensor)
                end = following(end, tensor)
        except OSError as error:
            cure = "make room there, or set engine.park to another folder"
            raise RunError(f"cannot keep a copy of the weights in '{folder}': {error.strerror}; {cure}") from error
        return cls(slots, file)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name, slot in self.slots.items():
            if self._file is not None:
                yield name, self._file.read(slot)


def _watched(tensors: Iterator[tuple[str, Tensor]], seen: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        seen[name] = tensor.shape
        yield name, tensor
