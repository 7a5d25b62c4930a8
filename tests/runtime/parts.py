"""Small components that do what the contract says and write down when they were called."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared, Weights


@dataclass
class Tape:
    """Every call's begin and end, in order."""

    marks: list[tuple[str, str, int | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def mark(self, word: str, phase: str, step: int | None) -> None:
        with self.lock:
            self.marks.append((word, phase, step))

    def begun(self) -> list[str]:
        return [phase for word, phase, _ in self.marks if word == "begin"]

    def index(self, word: str, phase: str, step: int | None) -> int:
        return self.marks.index((word, phase, step))


class Worker:
    """Any method is a body that sleeps, does what ``bodies`` says, and is on the tape."""

    def __init__(self, tape: Tape, seconds: float = 0.0, **bodies: Callable[..., Any]) -> None:
        self.tape, self.seconds = tape, seconds
        for name, body in bodies.items():
            setattr(self, name, self._on_tape(body))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do"):
            return self._on_tape(lambda ctx, *_, **__: None)
        raise AttributeError(name)

    def _on_tape(self, body: Callable[..., Any]) -> Callable[..., Any]:
        def run(ctx: Context, *parts: Any, **contents: Any) -> Any:
            self.tape.mark("begin", ctx.phase, ctx.step)
            try:
                time.sleep(self.seconds)
                return body(ctx, *parts, **contents)
            finally:
                self.tape.mark("end", ctx.phase, ctx.step)

        return run


class Stream:
    """Batches of two prompts."""

    def __init__(self) -> None:
        self.cursor = 0

    def take(self) -> list[Prompt]:
        batch = [Prompt(f"q{i}", f"a{i}", i) for i in (2 * self.cursor, 2 * self.cursor + 1)]
        self.cursor += 1
        return batch

    def seek(self, cursor: int) -> None:
        self.cursor = cursor


class Data:
    """Gives a stream that starts anew whenever it is asked for one; ``one`` is the latest."""

    def __init__(self, shared: Shared | None = None, batch: int = 2) -> None:
        self.one = Stream()

    def stream(self, name: str) -> Stream:
        self.one = Stream()
        return self.one


class Engine:
    """A copy of a number. ``lie`` is what it adds to the versions that it tells."""

    def __init__(self, shared: Shared | None = None, *, lie: int = 0, places: Mapping[str, str] | None = None) -> None:
        self.held, self.lie, self.places = -1, lie, places
        self.moved: list[dict[str, str]] = []
        self.asked: list[list[int]] = []

    def version(self, resource: str) -> int:
        return self.held + self.lie

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, Any]:
        batch = prompts.take()
        self.asked.append([prompt.index for prompt in batch])
        return {"rollouts": [Rollout(prompt, (1,), (2,), (-0.1,), "x", self.held, prompt.index) for prompt in batch]}

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        self.held = next(iter(weights.values())).version

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        self.moved.append(dict(moves))
        return dict.fromkeys(moves, 2**30)

    reload = offload


class Trainer:
    """Counts updates. ``load`` and ``save`` keep the count in a file."""

    def __init__(self, shared: Shared | None = None, *, lr: float = 0.1, betas: tuple[float, ...] = ()) -> None:
        self.updates, self.loaded = 0, None
        self.closed = 0

    def version(self, resource: str) -> int:
        return self.updates

    def weights(self, resource: str) -> Weights:
        return Weights(self.updates, lambda: iter(()))

    def train(self, ctx: Context, rollouts: list[Rollout]) -> None:
        self.updates += 1
        ctx.log(**{"reward/mean": 0.5 + self.updates, "policy/kl": 0.018})

    def save(self, ctx: Context) -> dict[str, str]:
        with ctx.checkpoint() as folder:
            (folder / "updates.json").write_text(json.dumps(self.updates))
        return {"ckpt": str(folder)}

    def load(self, folder: Path) -> None:
        self.loaded = folder
        self.updates = json.loads((folder / "updates.json").read_text())

    def close(self) -> None:
        self.closed += 1


def loop_parts() -> dict[str, Any]:
    return {"engine": Engine(), "trainer": Trainer(), "data": Data()}


def events(run_dir: Path, *kinds: str) -> Iterator[dict[str, Any]]:
    """The events of these kinds in a run directory."""
    for line in (run_dir / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if not kinds or event["event"] in kinds:
            yield event


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
