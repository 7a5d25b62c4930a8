"""What a component gets and gives: the only things that the runtime and the components share.

The types carry no tensor library, so that a component on any stack, or none, can be plugged in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. ``index`` is its position in the data stream, counted from 0 and never used twice."""

    text: str
    answer: str
    index: int
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled answer: token ids, and the natural-log probability of each under the policy that sampled it.

    ``version`` is the policy version that made it; rollouts with one ``group`` answer the same prompt. ``reward`` is
    there where it was scored as it was made; ``mask``, one entry a token, is 0 where the policy did not say it.
    """

    prompt: Prompt
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    version: int
    group: int
    reward: float | None = None
    mask: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """Named parameters of one version. ``tensors`` gives a fresh iterator, so that a receiver may take them twice."""

    version: int
    tensors: Callable[[], Iterator[tuple[str, Any]]]


@dataclass(frozen=True, slots=True)
class Shared:
    """What every component is built with: the model and data sections of the configuration, the seed, the folder.

    A component may be several processes that are called alike, ``ranks`` of them, and this is number ``rank``. They
    find each other at ``meeting``, a HOST:PORT that is kept free for rank 0.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    seed: int
    run_dir: Path
    devices: str = "auto"
    rank: int = 0
    ranks: int = 1
    meeting: str = ""


class Stream(Protocol):
    """A cursor over prompts. ``cursor`` counts the batches taken."""

    @property
    def cursor(self) -> int: ...

    def take(self) -> list[Prompt]: ...

    def seek(self, cursor: int) -> None: ...


class Context(Protocol):
    """What a body may know of the run it is in."""

    @property
    def step(self) -> int | None: ...

    @property
    def phase(self) -> str: ...

    @property
    def run_dir(self) -> Path: ...

    @property
    def seed(self) -> int: ...

    @property
    def components(self) -> Mapping[str, Any]: ...

    def log(self, **metrics: float) -> None: ...

    def checkpoint(self) -> AbstractContextManager[Path]: ...
