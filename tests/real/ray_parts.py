"""Components that note, in a file, which process called them: for runs whose components live in actors."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Stream, Weights


class Noted:
    """Writes a line for each call: component, method, step, process."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._file, self._name = shared.run_dir.parent / "noted.txt", name

    def note(self, word: str, ctx: Context) -> None:
        with self._file.open("a") as file:
            file.write(f"{self._name} {word} {ctx.step} {os.getpid()}\n")


class Batches:
    """Batches of two prompts: so many, or endlessly many."""

    def __init__(self, batches: int | None) -> None:
        self.cursor, self.batches = 0, batches

    def take(self) -> list[Prompt]:
        self.cursor += 1
        return [Prompt("q", "a", 2 * self.cursor + i) for i in (-2, -1)]

    def seek(self, cursor: int) -> None:
        self.cursor = cursor


class Data:
    def __init__(self, shared: Shared, *, batches: int | None = None) -> None:
        self._batches = batches

    def stream(self, name: str) -> Batches:
        return Batches(self._batches)


class Engine(Noted):
    """``fail``: the step in which generate raises; ``die``: it ends its process; ``flaky``: each first try fails."""

    def __init__(self, shared: Shared, *, fail: int | None = None, die: int | None = None, flaky: bool = False) -> None:
        super().__init__(shared, "engine")
        self._fail, self._die, self._flaky = fail, die, flaky
        self._version = -1

    def version(self, resource: str) -> int:
        return self._version

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        self.note("generate", ctx)
        batch = prompts.take()
        if ctx.step == self._fail or (self._flaky and ctx.attempt == 0):  # type: ignore[attr-defined]
            raise ValueError("no more tokens")
        if ctx.step == self._die:
            os._exit(9)
        ctx.log(asked=float(batch[0].index))
        return {"rollouts": [Rollout(one, (1,), (2,), (-0.1,), "x", self._version, one.index) for one in batch]}

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        self.note("sync", ctx)
        self._version = next(iter(weights.values())).version


class Trainer(Noted):
    """Counts updates. ``slow`` is how long one takes."""

    def __init__(self, shared: Shared, *, slow: float = 0.0) -> None:
        super().__init__(shared, "trainer")
        self._slow, self._updates = slow, 0

    def version(self, resource: str) -> int:
        return self._updates

    def weights(self, resource: str) -> Weights:
        return Weights(self._updates, lambda: iter(()))

    def train(self, ctx: Context, rollouts: list[Rollout]) -> None:
        self.note("train", ctx)
        time.sleep(self._slow)
        self._updates += 1

    def save(self, ctx: Context) -> dict[str, str]:
        with ctx.checkpoint() as folder:
            (folder / "updates.txt").write_text(str(self._updates))
        return {"ckpt": str(folder)}

    def load(self, folder: Path) -> None:
        self._updates = int((folder / "updates.txt").read_text())


class Greedy:
    """A component that cannot be built."""

    def __init__(self, shared: Shared) -> None:
        raise RuntimeError("out of luck")


def judged(rollouts: list[Rollout]) -> dict[str, Any]:
    """A phase that is no component's: a reward of its own process for each rollout."""
    return {"rewards": [float(os.getpid()) for _ in rollouts]}
