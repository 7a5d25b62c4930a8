"""How weights get from the component that holds them to the one that takes them, chosen by where the two are.

A transport is made by whoever starts the run, and refuses there, before anything is loaded, what cannot work. What it
picks for two components, a channel, travels to the sender, which makes of it what packs the weights.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.registry import resolve
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.plans import RunnablePlan, kept, owner

SECTION, TARGET = "transport", "_target_"
CURE = "transport=auto picks what fits"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a component, or one of its actors, is. ``name`` is the machine's, for people.

    ``gpus`` are those that it was given; ``None``: that is not known yet.
    """

    machine: str
    process: int
    name: str = ""
    gpus: tuple[str, ...] | None = None


HERE = (Spot("", 0),)
"""Where everything is that runs in one process."""


@dataclass(frozen=True, slots=True)
class Link:
    """Who gives weights to whom, and where both are: each is one process or more."""

    sender: str
    receiver: str
    at: tuple[Spot, ...]
    to: tuple[Spot, ...]

    @property
    def one_process(self) -> bool:
        return len({(spot.machine, spot.process) for spot in (*self.at, *self.to)}) == 1

    @property
    def one_machine(self) -> bool:
        return len({spot.machine for spot in (*self.at, *self.to)}) == 1

    @property
    def shared_gpu(self) -> bool | None:
        """Whether sender and receiver compute on the same GPU; ``None`` where that is not known yet."""
        if any(spot.gpus is None for spot in (*self.at, *self.to)):
            return None
        mine, theirs = _gpus(self.at), _gpus(self.to)
        return bool(mine & theirs)

    def __str__(self) -> str:
        return f"{_placed(self.sender, self.at)} and {_placed(self.receiver, self.to)}"


class Parcel(Protocol):
    """Weights on their way. Whoever opens it gets what the sender had, or its error."""

    def weights(self) -> Weights: ...


class Sender(Protocol):
    """Packs weights where they are. It lasts as long as the run, so what it packs into can be used again."""

    def send(self, weights: Weights) -> Parcel: ...

    def close(self) -> None: ...


class Channel(Protocol):
    """One way to carry weights. It can travel itself."""

    @property
    def name(self) -> str: ...

    def sender(self, others: Mapping[str, Any]) -> Sender:
        """What packs; ``others`` are the components as the sender sees them, should it want to ask one."""
        ...


class Transport(Protocol):
    """Picks a channel."""

    def between(self, link: Link) -> Channel | None:
        """The channel for two components; ``None``: the receiver can take the sender's own tensors."""
        ...


@dataclass(frozen=True, slots=True)
class Auto:
    """The cheapest that works: nothing in one process, shared memory on one machine, else Ray's object store."""

    def between(self, link: Link) -> Channel | None:
        if link.one_process:
            return None
        return Shm() if link.one_machine and shares_memory() else ObjectStore()


@dataclass(frozen=True, slots=True)
class Copy:
    """The receiver copies from the sender's own tensors."""

    def between(self, link: Link) -> Channel | None:
        if not link.one_process:
            raise ConfigError(f"transport=copy is within one process, but {link} have each their own: {CURE}")
        return None


@dataclass(frozen=True, slots=True)
class Shm:
    """Memory that the processes of one machine share."""

    name: ClassVar[str] = "shm"

    def between(self, link: Link) -> Channel | None:
        _refuse_one_process(self.name, link)
        if not link.one_machine:
            raise ConfigError(f"transport=shm is within one machine, but {link} are on several: {CURE}")
        if not shares_memory():
            raise ConfigError(f"transport=shm needs Linux, with /proc in sight: {CURE}")
        return self

    def sender(self, others: Mapping[str, Any]) -> Sender:
        from stepgraph.runtime.ray_shm import Buffers

        return Buffers()


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Ray's object store, which reaches other machines too."""

    name: ClassVar[str] = "object_store"

    def between(self, link: Link) -> Channel | None:
        _refuse_one_process(self.name, link)
        return self

    def sender(self, others: Mapping[str, Any]) -> Sender:
        from stepgraph.runtime.ray_parcel import Packer

        return Packer()


def transport_of(config: Mapping[str, Any]) -> Transport:
    """The transport that a configuration names; ``auto`` where it names none."""
    options = dict(config.get(SECTION) or {})
    target = options.pop(TARGET, None)
    if not target:
        return Auto()
    make = resolve(str(target), SECTION)
    known = list(inspect.signature(make).parameters)
    for option in options:
        if option not in known:
            offered = f"there are {', '.join(known)}" if known else "there are none"
            raise ConfigError(f"transport: {target} has no option {option!r}{did_you_mean(option, known)}; {offered}")
    made: Transport = make(**options)
    return made


class Channels:
    """The channel from each sender to each receiver, picked once. ``spots`` says where components are.

    A receiver that is not among them is a function, which runs in ``others``.
    """

    def __init__(
        self, transport: Transport, spots: Mapping[str, tuple[Spot, ...]] | None = None, others: str = ""
    ) -> None:
        self._transport, self._spots, self._others = transport, spots or {}, others
        self._found: dict[tuple[str, str], Channel | None] = {}

    @classmethod
    def apart(cls, transport: Transport, names: Iterable[str], others: str = "") -> Channels:
        """As if each of these had a process of its own on one machine: what is refused there is refused anywhere."""
        return cls(transport, {name: (Spot("", number),) for number, name in enumerate(names)}, others)

    def check(self, plan: RunnablePlan) -> Channels:
        """Refuse a plan with copies for which there is no way."""
        for planned in kept(plan):
            for source in planned.copies.values():
                self.of(owner(plan.graph, source), planned.phase.component)
        return self

    def of(self, sender: str, receiver: str) -> Channel | None:
        """``None``: the receiver can take the sender's own tensors."""
        known = not self._others or receiver in self._spots
        key = (sender, receiver if known else self._others)
        if key not in self._found:
            at, to = (self._spots.get(name, HERE) for name in key)
            self._found[key] = self._transport.between(Link(*key, at, to))
        return self._found[key]

    @property
    def names(self) -> list[str]:
        """The channels picked so far."""
        return list(dict.fromkeys(channel.name for channel in self._found.values() if channel))


def shares_memory() -> bool:
    """Whether processes here can open each other's memory."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def _refuse_one_process(name: str, link: Link) -> None:
    if link.one_process:
        raise ConfigError(
            f"transport={name} is between processes, but {link.sender} and {link.receiver} share one: {CURE}"
        )


def _gpus(spots: tuple[Spot, ...]) -> set[tuple[str, str]]:
    return {(spot.machine, gpu) for spot in spots for gpu in spot.gpus or ()}


def _placed(name: str, spots: tuple[Spot, ...]) -> str:
    where = ", ".join(dict.fromkeys(spot.name for spot in spots if spot.name))
    return f"{name} ({where})" if where else name
