"""A run in which something fires goes on from where everything really is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import stepgraph
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.mirror import Mirror
from stepgraph.runtime.onward import contents, movers
from stepgraph.runtime.run import run

GRAPH: dict[str, Any] = {
    "name": "nap",
    "resources": {
        "policy": {"kind": "weights", "of": "trainer", "at": "device"},
        "engine": {"kind": "weights", "of": "engine", "at": "device"},
        "scores": "sink",
    },
    "keep": {"policy": "any"},
    "start": {"sync": None},
    "step": {
        "generate": {
            "use": "engine.generate",
            "reads": ["engine"],
            "needs": {"engine": "device"},
            "writes": ["rollouts"],
        },
        "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"use": "engine.sync", "copies": {"engine": "policy"}},
        "nap": {"use": "engine.nap", "reads": ["policy"], "moves": {"engine": "host"}, "when": {"file": "nap"}},
        "wake": {"use": "engine.wake", "moves": {"engine": "device"}},
    },
}


class Engine:
    """Writes the calls down; asks for a nap in its second step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None]] = []

    def generate(self, ctx: Any) -> dict[str, Any]:
        self.calls.append(("generate", ctx.step))
        if ctx.step == 1:
            (ctx.run_dir / "nap").touch()
        return {"rollouts": [ctx.step]}

    def sync(self, ctx: Any, weights: Any) -> None:
        self.calls.append(("sync", ctx.step))

    def nap(self, ctx: Any) -> dict[str, Any]:
        self.calls.append(("nap", ctx.step))
        return {}

    def wake(self, ctx: Any, moves: Any) -> dict[str, int]:
        self.calls.append(("wake", ctx.step))
        return {}


class Trainer:
    def __init__(self) -> None:
        self.updates = 0

    def train(self, ctx: Any, rollouts: Any) -> dict[str, Any]:
        self.updates += 1
        return {}

    def weights(self, name: str) -> Weights:
        return Weights(self.updates, lambda: iter(()))


def test_what_is_left_is_compiled_again_once_it_is_known_whether_a_phase_fired(tmp_path: Path) -> None:
    engine = Engine()
    plan = stepgraph.compile(stepgraph.load(GRAPH), steps=4)
    result = run(plan, {"engine": engine, "trainer": Trainer()}, run_dir=tmp_path / "run", signals=False)
    assert result.status == "completed"
    assert [step for name, step in engine.calls if name == "nap"] == [1]
    assert ("wake", 1) in engine.calls
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "compiled"] == [1, 2, 3]


def test_only_phases_that_the_run_decides_and_that_change_something_are_movers() -> None:
    assert movers(stepgraph.load(GRAPH, ["run.steps=1"])) == {"nap"}
    assert (
        movers(stepgraph.load(GRAPH, ["graph.step.nap.when.file=null", "graph.step.nap.when.every=2"])) == frozenset()
    )


def test_a_copy_holds_its_source_s_contents_while_the_versions_agree() -> None:
    graph = stepgraph.load(GRAPH)
    same = contents(Mirror(graph, {"policy": 3, "engine": 3}, {}))
    behind = contents(Mirror(graph, {"policy": 3, "engine": 2}, {}))
    assert same["policy"] == same["engine"]
    assert behind["policy"] != behind["engine"]
    assert "engine" not in contents(Mirror(graph, {"policy": 0, "engine": -1}, {}))
