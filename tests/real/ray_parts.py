"""Components that note, in a file, which process called them: for runs whose components live in actors."""

from __future__ import annotations

import os
import signal
import socket
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
    """Batches of prompts: so many, or endlessly many."""

    def __init__(self, batches: int | None, size: int) -> None:
        self.cursor, self.batches, self._size = 0, batches, size

    def take(self) -> list[Prompt]:
        self.cursor += 1
        return [Prompt("q", "a", self._size * (self.cursor - 1) + i) for i in range(self._size)]

    def seek(self, cursor: int) -> None:
        self.cursor = cursor


class Data:
    def __init__(self, shared: Shared, *, batches: int | None = None, size: int = 2) -> None:
        self._batches, self._size = batches, size

    def stream(self, name: str) -> Batches:
        return Batches(self._batches, self._size)


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


class Fleet(Noted):
    """An engine that may be one of several. ``flaky``: this one fails at each first try, after it took its prompts."""

    ranks, divides, undivided = True, ("generate",), ("filter",)

    def __init__(self, shared: Shared, *, flaky: int | None = None, odd: bool = False) -> None:
        super().__init__(shared, f"engine/{shared.rank}")
        self._rank, self._ranks, self._flaky, self._odd = shared.rank, shared.ranks, flaky, odd
        self._version = -1

    def version(self, resource: str) -> int:
        return self._version

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, Any]:
        self.note("generate", ctx)
        batch = prompts.take()
        if self._odd and self._rank:
            prompts.take()
        if self._rank == self._flaky and ctx.attempt == 0:  # type: ignore[attr-defined]
            raise ValueError("no more tokens")
        part = batch[self._rank * len(batch) // self._ranks : (self._rank + 1) * len(batch) // self._ranks]
        ctx.log(share=float(len(part)))
        return {"rollouts": [Rollout(one, (1,), (2,), (-0.1,), "x", self._version, one.index) for one in part]}

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        self.note("sync", ctx)
        source = next(iter(weights.values()))
        assert dict(source.tensors()) == {"updates": source.version}
        self._version = source.version


class Ranks(Noted):
    """A trainer that may be one of several, and all of whose work is done together, over connections of its own.

    ``die``, ``fail``, ``export``: the step in which the last one ends its process, raises, or cannot give its weights.
    """

    ranks = True

    def __init__(
        self, shared: Shared, *, die: int | None = None, fail: int | None = None, export: int | None = None
    ) -> None:
        super().__init__(shared, f"trainer/{shared.rank}")
        self._rank, self._ranks, self._meeting = shared.rank, shared.ranks, shared.meeting
        self._last = shared.rank == shared.ranks - 1
        self._die, self._fail, self._export, self._updates = die, fail, export, 0
        self._others: list[socket.socket] | None = None

    def version(self, resource: str) -> int:
        return self._updates

    def weights(self, resource: str) -> Weights:
        return Weights(self._updates, self._tensors)

    def train(self, ctx: Context, rollouts: list[Rollout]) -> None:
        self.note("train", ctx)
        if self._last and ctx.step == self._die:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._last and ctx.step == self._fail:
            raise ValueError("a share that cannot be trained on")
        self._together()
        self._updates += 1
        ctx.log(first=float(rollouts[0].group), count=float(len(rollouts)))
        assert [one.group for one in rollouts] == list(range(rollouts[0].group, rollouts[0].group + len(rollouts)))

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        return dict.fromkeys(moves, (2 - self._rank) << 20)

    def save(self, ctx: Context) -> dict[str, str]:
        with ctx.checkpoint() as folder:
            self._together()
            (folder / f"updates-{self._rank}.txt").write_text(str(self._updates))
        return {"ckpt": str(folder)}

    def load(self, folder: Path) -> None:
        self._together()
        self._updates = int((folder / f"updates-{self._rank}.txt").read_text())

    def _tensors(self) -> Any:
        if self._last and self._updates == self._export:
            raise ValueError("a weight that is lost")
        self._together()
        yield "updates", self._updates

    def _together(self) -> None:
        """Go on when everybody is here."""
        self._others = self._met() if self._others is None else self._others
        for other in self._others:
            other.sendall(b"x")
        for other in self._others:
            if not other.recv(1):
                raise ConnectionError("Connection closed by peer")

    def _met(self) -> list[socket.socket]:
        if self._ranks == 1:
            return []
        host, port = self._meeting.split(":")
        if self._rank:
            return [self._connected(host, int(port))]
        with socket.create_server(("", int(port))) as server:
            return [server.accept()[0] for _ in range(self._ranks - 1)]

    def _connected(self, host: str, port: int) -> socket.socket:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            other = socket.socket()
            if other.connect_ex((host, port)) == 0:
                return other
            other.close()
            time.sleep(0.02)
        raise TimeoutError(f"nobody meets at {self._meeting}")


class Greedy:
    """A component that cannot be built."""

    def __init__(self, shared: Shared) -> None:
        raise RuntimeError("out of luck")


def weighed(
    ctx: Context, rollouts: list[Rollout], trainer: Any, *, fail: bool = False, die: bool = False, slow: float = 0.0
) -> dict[str, Any]:
    """A phase that is no component's, and wants a shelf: what it was given, and where it is."""
    import ray

    held = ray.get_runtime_context().get_assigned_resources()
    ctx.log(shelf=held.get("shelf", 0.0), cpus=held.get("CPU", 0.0), updates=float(trainer.version("policy")))
    ctx.log(told=float(os.environ.get("TOLD", "0")), pid=float(os.getpid()))
    (ctx.run_dir.parent / "weighing").write_text(str(os.getpid()))
    time.sleep(slow)
    if die:
        os._exit(9)
    if fail and ctx.attempt == 0:  # type: ignore[attr-defined]
        raise ValueError("too heavy")
    return {"rewards": [float(one.group) for one in rollouts]}


def judged(rollouts: list[Rollout]) -> dict[str, Any]:
    """A phase that is no component's: a reward of its own process for each rollout."""
    return {"rewards": [float(os.getpid()) for _ in rollouts]}
