"""Pages to look at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import stepgraph
from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.run import run
from stepgraph.runtime.trace import TRACE
from stepgraph.views.html import html
from stepgraph.views.scene import Scene
from stepgraph.views.scene_pair import scene_of_two
from stepgraph.views.scene_plan import scene_of
from stepgraph.views.scene_run import measure

SIZES = ("placement.sizes={policy: 48, engine: 16, kv: 24}", "placement.capacity={device: 80}")


def grpo(step: int | None = None, steps: int = 36, overrides: Sequence[str] = SIZES) -> Scene:
    """The shipped loop."""
    graph = stepgraph.load("grpo", ["placement=colocated", *overrides])
    return scene_of(stepgraph.compile(graph, steps=steps), step)


def hostile(evil: str) -> Scene:
    """A graph whose every free text is ``evil``."""
    step: dict[str, Any] = {
        "make": {"use": f"./a.py:{evil}", "doc": evil, "writes": ["thing"]},
        "take": {"use": "b.take", "reads": ["thing"], "when": {"file": evil}},
    }
    graph = spec.parse({"name": evil, "step": step}, {"name": evil}, {"steps": 3}, source=evil)
    return scene_of(stepgraph.compile(graph))


def two() -> Scene:
    """The shipped loop in two placements."""
    plans = [
        stepgraph.compile(stepgraph.load("grpo", [f"placement={name}"]), steps=36) for name in ("colocated", "split")
    ]
    return scene_of_two((plans[0], plans[1]), ("colocated", "split"), (None, None))


def page(scene: Scene, folder: Path) -> Path:
    file = folder / "page.html"
    file.write_text(html(scene), encoding="utf-8")
    return file


class Part:
    """A component that does what it is asked, and keeps what the trace says meanwhile in ``seen``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.updates, self.copy = folder, "", 0, -1

    def generate(self, ctx: Any) -> dict[str, Any]:
        time.sleep(0.002)
        return {"rollouts": []}

    def train(self, ctx: Any, rollouts: list[Any]) -> None:
        time.sleep(0.003)
        self.updates += 1
        self.seen = (self.folder / "run" / TRACE).read_text(encoding="utf-8")

    def move(self, ctx: Any, moves: dict[str, str]) -> dict[str, int]:
        return dict.fromkeys(moves, 3 << 20)

    def sync(self, ctx: Any, weights: dict[str, Weights]) -> None:
        self.copy = next(iter(weights.values())).version

    def weights(self, resource: str) -> Weights:
        return Weights(self.updates, lambda: iter(()))

    def version(self, resource: str) -> int:
        return self.updates if resource == "policy" else self.copy


SMALL: dict[str, Any] = {
    "name": "small",
    "resources": {
        "policy": {"kind": "weights", "of": "trainer", "at": "device"},
        "engine": {"kind": "weights", "of": "engine", "at": "host"},
    },
    "keep": {"policy": "any"},
    "start": {"reload": None, "sync": None},
    "step": {
        "generate": {
            "use": "engine.generate",
            "reads": ["engine"],
            "needs": {"engine": "device"},
            "writes": ["rollouts"],
        },
        "offload": {"use": "engine.move", "moves": {"engine": "host"}},
        "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"], "needs": {"policy": "device"}},
        "reload": {"use": "engine.move", "moves": {"engine": "device"}},
        "sync": {"use": "engine.sync", "copies": {"engine": "policy"}, "needs": {"engine": "device"}},
    },
}


def small(steps: int) -> Plan:
    return stepgraph.compile(spec.parse(SMALL, {"makes_room": {"engine": ["trainer"]}}, {"steps": steps}))


def measured(folder: Path, steps: int = 3) -> Scene:
    """A real run, with what it measured."""
    traced(folder, steps)
    plan = small(steps)
    names = tuple(phase.name for phase in plan.graph.step)
    return replace(scene_of(plan), measured=measure(folder / "run", names, 0, steps))


def traced(folder: Path, steps: int = 3) -> tuple[str, str]:
    """The trace of a real run, and what it was while the last step was training."""

    engine, trainer = Part(folder), Part(folder)
    run(small(steps), {"engine": engine, "trainer": trainer}, run_dir=folder / "run", signals=False)
    return (folder / "run" / TRACE).read_text(encoding="utf-8"), trainer.seen
