"""Plans of the compiler, run with components that know where things are: what was pruned is really not called."""

from __future__ import annotations

import io
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph.compiler.plan import Plan
from stepgraph.runtime.checkpoint import find_checkpoint
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run

from .parts import Data, Engine, Trainer, events, metrics

OVERRIDES = ["graph.step.save.when.every=2", "graph.step.eval.when.every=3"]


class Placed(Engine):
    """An engine that refuses to work where it is not."""

    def __init__(self, at: Mapping[str, str]) -> None:
        super().__init__()
        self.at = dict(at)

    def generate(self, ctx: Any, prompts: Any) -> Any:
        assert (self.at["engine"], self.at["kv"]) == ("device", "device")
        return super().generate(ctx, prompts)

    def evaluate(self, ctx: Any) -> dict[str, Any]:
        assert (self.at["engine"], self.at["kv"]) == ("device", "device")
        ctx.log(**{"eval/reward": 0.25})
        return {"scores": {"version": self.held}}

    def sync(self, ctx: Any, weights: Any) -> None:
        assert self.at["engine"] == "device"
        super().sync(ctx, weights)

    def offload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
        self.at |= moves
        return super().offload(ctx, moves)

    reload = offload


class PlacedTrainer(Trainer):
    """A trainer that refuses to train off the device."""

    def __init__(self, at: str, stop_at: int = -1) -> None:
        super().__init__()
        self.at, self.stop_at = at, stop_at

    def train(self, ctx: Any, rollouts: Any, rewards: Any) -> None:
        assert self.at == "device"
        super().train(ctx, rollouts)
        if ctx.step == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)

    def save(self, ctx: Any) -> Any:
        assert self.at == "device"
        return super().save(ctx)

    def offload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
        self.at = moves["policy"]
        return {"policy": 1}

    reload = offload


class Rewards:
    def score(self, ctx: Any, rollouts: Any) -> dict[str, Any]:
        return {"rewards": [float(rollout.prompt.index) for rollout in rollouts]}


def compiled(placement: str, steps: int, first: int = 0) -> Plan:
    return stepgraph.compile(stepgraph.load("grpo", [f"placement={placement}", *OVERRIDES]), steps=steps, first=first)


def parts_for(plan: Plan, stop_at: int = -1) -> dict[str, Any]:
    at = {name: resource.at for name, resource in plan.graph.resources.items()}
    trainer = PlacedTrainer(at["policy"], stop_at)
    return {"engine": Placed(at), "trainer": trainer, "rewards": Rewards(), "data": Data()}


def go(plan: Plan, run_dir: Path, out: io.StringIO | None = None, **words: Any) -> tuple[Result, dict[str, Any]]:
    parts = parts_for(plan, words.pop("stop_at", -1))
    return run(plan, parts, run_dir=run_dir, out=out or io.StringIO(), **words), parts


@pytest.mark.parametrize("placement", ["colocated", "split"])
def test_a_compiled_run_calls_what_the_plan_keeps_and_nothing_else(tmp_path: Path, placement: str) -> None:
    plan = compiled(placement, 6)
    result, parts = go(plan, tmp_path)
    assert result.status == "completed", result.failure
    ran = Counter((event["section"], event["phase"]) for event in events(tmp_path, "end"))
    kept = Counter((f"step {k}", planned.name) for k in range(6) for planned in plan.step(k).phases)
    kept += Counter(("start", planned.name) for planned in plan.start.phases)
    assert ran == kept
    assert result.pruned == plan.to_dict()["totals"]["pruned_runs"]
    assert (parts["trainer"].updates, parts["data"].one.cursor) == (6, 6)
    assert [m.get("eval/reward") for m in metrics(tmp_path) if m["step"] is not None].count(0.25) == 2


def test_the_last_step_hands_nothing_over_and_says_what_that_saved(tmp_path: Path) -> None:
    out = io.StringIO()
    result, _ = go(compiled("colocated", 4), tmp_path, out)
    last = [event["phase"] for event in events(tmp_path, "end") if event["step"] == 3]
    assert {"offload_policy", "reload_engine", "sync_weights", "reload_kv"}.isdisjoint(last)
    assert result.saved.handoffs == result.saved.measured == 4
    assert result.saved.steps == (3,)
    assert "4 handoffs in the last step (measured medians)" in out.getvalue()


def test_a_resumed_run_asks_the_same_prompts_and_ends_the_same(tmp_path: Path) -> None:
    _, through = go(compiled("colocated", 6), tmp_path / "through")
    go(compiled("colocated", 3), tmp_path / "split")
    found = find_checkpoint(tmp_path / "split")
    assert found is not None
    result, parts = go(compiled("colocated", 6, first=found.state.completed), tmp_path / "split", resume=True)
    assert result.status == "completed", result.failure
    assert parts["engine"].asked == through["engine"].asked[3:]
    assert parts["trainer"].updates == through["trainer"].updates


def test_a_run_that_is_asked_to_stop_in_training_saves_and_skips_the_handoff(tmp_path: Path) -> None:
    result, parts = go(
        compiled("colocated", 9), tmp_path, stop_at=4, on_stop=lambda step: compiled("colocated", step + 1)
    )
    assert (result.status, result.steps) == ("stopped", 5)
    last = [event["phase"] for event in events(tmp_path, "end") if event["step"] == 4]
    assert last[-2:] == ["train", "save"]
    assert parts["trainer"].at == "device"
    assert find_checkpoint(tmp_path).state.completed == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("placement", ["colocated", "split"])
def test_a_run_that_is_out_of_data_saves_in_the_step_that_took_the_last_of_it(tmp_path: Path, placement: str) -> None:
    plan, out = compiled(placement, 9), io.StringIO()
    parts = parts_for(plan)
    parts["data"].one.batches = 5
    parts["data"].stream = lambda name: parts["data"].one
    result = run(plan, parts, run_dir=tmp_path, out=out, on_stop=lambda step: compiled(placement, step + 1))
    assert (result.status, result.exit_code, result.steps) == ("stopped", 0, 5)
    assert find_checkpoint(tmp_path).state.completed == 5  # type: ignore[union-attr]
    assert "prompts ran out: step 5 is the last one" in out.getvalue()


def test_a_run_with_just_enough_data_completes(tmp_path: Path) -> None:
    plan = compiled("split", 3)
    parts = parts_for(plan)
    parts["data"].one.batches = 3
    parts["data"].stream = lambda name: parts["data"].one
    assert run(plan, parts, run_dir=tmp_path, out=io.StringIO()).status == "completed"
