"""Engines and trainers that note their calls in a file, from inside the process that they work in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stepgraph.components.deepspeed.trainer import DeepSpeedTrainer
from stepgraph.components.torch.engine import TorchEngine
from stepgraph.components.torch.park import anonymous_bytes
from stepgraph.components.torch.rollout import RolloutEngine
from stepgraph.components.vllm.engine import VllmEngine
from stepgraph.runtime.contract import Context, Rollout, Stream, Weights

NOTES = "noted.jsonl"
FOREVER = 600.0
DEAF = 2


def note(ctx: Context, word: str, **more: Any) -> None:
    line = {"word": word, "step": ctx.step, "pid": os.getpid(), **more}
    with (ctx.run_dir.parent / NOTES).open("a") as file:
        file.write(json.dumps(line) + "\n")


def notes(run_dir: Path) -> list[dict[str, Any]]:
    """What was noted beside a run directory."""
    return [json.loads(line) for line in (run_dir.parent / NOTES).read_text().splitlines()]


class Noting(RolloutEngine):
    """Notes what was asked and answered, and what the process holds before and after each move."""

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        found = super().generate(ctx, prompts)
        asked = list(dict.fromkeys(rollout.prompt.text for rollout in found["rollouts"]))
        note(ctx, "generate", prompts=asked, versions=sorted({rollout.version for rollout in found["rollouts"]}))
        return found

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        super().sync(ctx, weights)
        note(ctx, "sync", version=self._version)

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        return self._noted(ctx, "offload", moves)

    def reload(self, ctx: Context, moves: Mapping[str, str]) -> dict[str, int]:
        return self._noted(ctx, "reload", moves)

    def _noted(self, ctx: Context, word: str, moves: Mapping[str, str]) -> dict[str, int]:
        before = anonymous_bytes()
        moved = self._move(moves)
        note(ctx, word, moves=dict(moves), resident=[before, anonymous_bytes()])
        return moved


class NotingTorch(Noting, TorchEngine):
    """On torch."""


class NotingVllm(Noting, VllmEngine):
    """On vLLM."""


class StuckVllm(VllmEngine):
    """Stays in the second step's generate, so that it can be killed there."""

    def generate(self, ctx: Context, prompts: Stream) -> dict[str, list[Rollout]]:
        found = super().generate(ctx, prompts)
        if ctx.step == 1:
            note(ctx, "generate")
            time.sleep(FOREVER)
        return found


class StuckDeepSpeed(DeepSpeedTrainer):
    """Stays in the second step's train."""

    def train(self, ctx: Context, rollouts: Any, rewards: Any) -> dict[str, Any]:
        found = super().train(ctx, rollouts, rewards)
        if ctx.step == 1:
            note(ctx, "train")
            time.sleep(FOREVER)
        return found


class Renamed(DeepSpeedTrainer):
    """Gives its weights names that no engine knows."""

    def _tensors_of(self) -> Iterator[tuple[str, Any]]:
        return ((f"module.{name}", tensor) for name, tensor in super()._tensors_of())


class DeafVllm(VllmEngine):
    """Says of one sync that it took the weights, and did not."""

    def sync(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        if ctx.step != DEAF:
            return super().sync(ctx, weights)
        self._version = next(iter(weights.values())).version
        return self._llm.llm_engine.set_weight_version(str(self._version))
