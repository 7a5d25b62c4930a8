"""A trainer whose weights are all its version, and an engine that reads them slowly and says what it saw."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Stream, Weights

SIZE = 1 << 20


class Data:
    def __init__(self, shared: Shared) -> None:
        self.cursor = 0

    def stream(self, name: str) -> Data:
        return self

    def take(self) -> list[Prompt]:
        self.cursor += 1
        return [Prompt("q", "a", self.cursor)]

    def seek(self, cursor: int) -> None:
        self.cursor = cursor


class Trainer:
    """``fail``: at which version sending fails, after the first tensor."""

    def __init__(self, shared: Shared, *, fail: int | None = None) -> None:
        self._version, self._fail = 0, fail

    def version(self, resource: str) -> int:
        return self._version

    def weights(self, resource: str) -> Weights:
        return Weights(self._version, self._tensors)

    def train(self, ctx: Context, rollouts: list[Rollout]) -> None:
        self._version += 1

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        yield "0", torch.full((SIZE,), float(self._version))
        if self._version == self._fail:
            raise ValueError("the link is down")
        yield "1", torch.full((SIZE,), float(self._version))


class Engine:
    """``slow``: seconds to read weights; ``keep``: it lets nothing go; ``fail``: the version that it fails at."""

    def __init__(self, shared: Shared, *, slow: float = 0.0, keep: bool = False, fail: int | None = None) -> None:
        self._slow, self._keep, self._fail = slow, keep, fail
        self._version, self._kept, self._file = -1, list[Any](), shared.run_dir.parent / "seen.txt"

    def version(self, resource: str) -> int:
        return self._version

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        if self._version < 0:
            raise RuntimeError("before any sync")
        return {"rollouts": [Rollout(one, (1,), (2,), (-0.1,), "x", self._version, 0) for one in prompts.take()]}

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        (source,) = weights.values()
        self._version = -1
        tensors = dict(source.tensors())
        before = [tensors["0"][0].item()]
        if source.version == self._fail:
            raise ValueError("the disk is full")
        time.sleep(self._slow)
        seen = {float(value) for one in tensors.values() for value in (one.min(), one.max())}
        self._note(source.version, {*before, *seen})
        self._kept += [tensors] if self._keep else []
        self._version = source.version

    def _note(self, version: int, seen: set[float]) -> None:
        with Path(self._file).open("a") as file:
            file.write(f"{version} {sorted(seen)}\n")
