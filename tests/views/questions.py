"""What the tests of ``explain`` and ``diff`` ask about: shipped loops, loops with one odd phase, a run made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.views.explain import Asked
from stepgraph.views.rundir import RunDir, read_run

GOLDEN = Path(__file__).parent / "golden"
PLACEMENTS = ("colocated", "kv_only", "split")
SECONDS = {
    "generate": 18.4, "offload_engine": 1.7, "reload_policy": 2.9, "score": 0.2, "train": 22.1, "save": 3.0,
    "offload_policy": 1.9, "reload_engine": 0.8, "sync_weights": 1.7, "reload_kv": 0.9, "eval": 9.5,
}  # fmt: skip


def shipped(*overrides: str) -> Plan:
    """The shipped loop as the command line compiles it."""
    words = (
        overrides if any(word.startswith("placement=") for word in overrides) else ("placement=colocated", *overrides)
    )
    return stepgraph.compile(stepgraph.load("grpo", words))


def asked(*overrides: str, run: RunDir | None = None) -> Asked:
    """What the command line knows besides the plan: how to compile again, the user's words, a run directory."""
    return Asked(lambda override: shipped(*overrides, override), PLACEMENTS, overrides, run)


def made(step: dict[str, Any], resources: dict[str, Any], steps: int, **more: Any) -> Plan:
    graph = spec.parse({"name": "made", "resources": resources, "step": step, **more}, None, {"steps": steps})
    return stepgraph.compile(graph)


def recorded(folder: Path, plan: Plan, ran: int, change: Callable[[float, int], float] = lambda s, k: s) -> Path:
    """A run directory in which ``ran`` steps of a plan were run, written by hand, its last line cut short."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan.to_dict()), encoding="utf-8")
    lines, now = [], 0.0
    for compiled in (plan.start, *(plan.step(k) for k in range(plan.first, plan.first + ran))):
        for one in compiled.phases:
            seconds = change(SECONDS[one.name], -1 if compiled.step is None else compiled.step)
            now += seconds
            section = "start" if compiled.step is None else "step"
            about = {"phase": one.name, "kind": one.kind, "section": section, "step": compiled.step}
            lines.append({"event": "end", "t": now, **about, "outcome": "ok", "seconds": seconds})
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"event": "end", "phase": "tra'
    (folder / "events.jsonl").write_text(text, encoding="utf-8")
    return folder


def run_of(folder: Path, *overrides: str, ran: int) -> RunDir:
    return read_run(recorded(folder, shipped(*overrides), ran))


def golden(name: str, text: str) -> str:
    """What is written down. A file that is missing is written, and the test fails so that somebody reads it."""
    path = GOLDEN / f"{name}.txt"
    if not path.is_file():
        path.write_text(text + "\n", encoding="utf-8")
        pytest.fail(f"{path.name} was missing and is written now: read it")
    return path.read_text(encoding="utf-8").removesuffix("\n")
