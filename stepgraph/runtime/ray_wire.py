"""What travels between the driver and the actors: calls, answers, weights and errors, all without the run's state.

Contents do not travel here: they are object references beside the call, so that only who reads them fetches them.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Signature
from pathlib import Path
from typing import Any

from stepgraph.errors import RunError
from stepgraph.ir.plan import Planned
from stepgraph.runtime.contract import Shared, Weights


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an actor builds its component. ``target`` is empty for the actor that runs plain functions."""

    name: str
    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """What can be asked of a component, and where it is: enough to check a plan against it from afar."""

    kind: str
    methods: Mapping[str, Signature | None] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """What is left of a context on its way to another actor."""

    step: int | None
    phase: str
    run_dir: Path
    seed: int


@dataclass(frozen=True, slots=True)
class Order:
    """A call as an actor gets it. Beside it come ``waits`` answers, one reference for each of ``contents``, and one
    parcel for each of ``sources``; ``part`` is where a checkpoint goes.
    """

    phases: tuple[Planned, ...]
    label: str
    about: About
    part: Path
    waits: int
    contents: tuple[str, ...]
    streams: Mapping[str, Any]
    sources: tuple[str, ...]
    values: tuple[str, ...]
    versions: Mapping[str, int]
    after: Mapping[str, int]
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failed:
    """An error that can travel, whatever it holds."""

    kind: str
    text: str
    told: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        text = " ".join(str(error).split())
        return cls(type(error).__name__, text, "".join(traceback.format_exception(error)))

    def error(self, where: str) -> RunError:
        """The error for people: what it was, and where to look."""
        said = self.text if self.kind == "RunError" else f"{self.kind}: {self.text}" if self.text else self.kind
        found = RunError(f"{said} [{where}]")
        found.__cause__ = _Told(f"\n{self.told}")
        return found


class _Told(Exception):
    """The traceback of an error in an actor, as text, in the place where Python prints a cause."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call went, without the contents that it made. ``skipped``: it was not begun, as one before it failed."""

    began: float = 0.0
    ended: float = 0.0
    skipped: bool = False
    error: Failed | None = None
    sinks: Mapping[str, Any] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    metrics: tuple[Mapping[str, float], ...] = ()
    retries: tuple[tuple[int, Failed], ...] = ()
    attempts: int = 1
    saved: bool = False

    @property
    def stops(self) -> bool:
        """Whether those that wait for it must not begin."""
        return self.skipped or self.error is not None


SKIPPED = Answer(skipped=True)


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
class Parcel:
    """Weights on their way from one actor to another."""

    version: int = 0
    named: tuple[tuple[str, Any], ...] = ()
    error: Failed | None = None
    sender: str = ""

    @classmethod
    def of(cls, weights: Weights, sender: str) -> Parcel:
        return cls(weights.version, tuple((name, _packed(one)) for name, one in weights.tensors()), sender=sender)

    def weights(self) -> Weights:
        """As the receiver's body gets them."""
        if self.error is not None:
            raise self.error.error(self.sender)
        return Weights(self.version, self._tensors)

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        return ((name, one.tensor() if isinstance(one, Packed) else one) for name, one in self.named)


def _packed(contents: Any) -> Any:
    return Packed.of(contents) if type(contents).__module__.partition(".")[0] == "torch" else contents
