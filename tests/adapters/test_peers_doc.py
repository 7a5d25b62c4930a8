"""What ``docs/peers.md`` says of the loops is so: its tables, its names, its lines of code."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import stepgraph
from stepgraph.adapters import miles
from stepgraph.adapters.recorded import NAMES

from .recordings import LOOPS, of, plan

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_table", ROOT / "benchmarks" / "peers_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_what_the_script_counts(script: ModuleType) -> None:
    assert f"{script.BEGIN}\n{script.tables(plan)}\n{script.END}" in DOC


def test_every_class_of_waste_is_explained_and_occurs(script: ModuleType) -> None:
    heads = [line for line in DOC.splitlines() if line.startswith("| handoff call")]
    for kind in script.CLASSES:
        assert f"- **{kind}**:" in DOC
        assert any(f" {kind} |" in head for head in heads), kind


def names() -> dict[str, tuple[str, set[str], str]]:
    """Phase -> what it is recorded as, what it may call, and where it has no step."""
    table = DOC.split("| recorded | phase |")[1].split("\n\n")[0].splitlines()[2:]
    found = {}
    for line in table:
        recorded, phases, calls, stepless = (cell.strip() for cell in line.strip("|").split("|"))
        found |= {phase: (recorded, set(calls.split(", ")), stepless) for phase in phases.split(", ")}
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_the_table_of_names_has_every_phase_with_what_it_calls(loop: str) -> None:
    graph = yaml.safe_load((ROOT / "graphs" / f"{loop}.yaml").read_text())
    declared = {**graph["end"], **{name: spec for name, spec in graph["start"].items() if spec and "use" in spec}}
    for name, spec in {**graph["step"], **declared}.items():
        recorded, calls, stepless = names()[name]
        assert recorded == NAMES.get(name, name)
        assert spec["use"] in calls
        if recorded != "sync_weights":
            assert (recorded in of(loop).WORDS.stepped) == (not stepless)


def test_the_lines_that_replace_the_loop_do_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    called: list[str] = []

    class Object:
        def __getattr__(self, name: str) -> Any:
            async def method(*args: Any, **options: Any) -> None:
                called.append(name)

            return method

    async def models(*args: Any) -> tuple[Object, None]:
        return Object(), None

    world: dict[str, Any] = {
        "create_placement_groups": lambda args: {"rollout": None},
        "create_rollout_manager": lambda args, pgs: (Object(), None),
        "create_training_models": models,
    }
    lines = next(block for block in re.findall(r"```python\n(.*?)```", DOC, re.DOTALL) if "async def train" in block)
    assert len([line for line in lines.splitlines() if "miles" in line or "args, rollout" in line]) <= 10
    exec(lines, world)
    asyncio.run(world["train"](Namespace(num_rollout=1, save_interval=1, lr=1e-6)))
    assert called == ["update_weights", "generate", "train", "save_model", "save", "dispose"]


def test_a_sync_that_is_due_with_every_eval_ends_the_warning() -> None:
    config = {"num_rollout": 4, "eval_interval": 3, "update_weights_interval": 2}
    words = miles.overrides(config, "miles_async")
    stale = stepgraph.compile(stepgraph.load("miles_async", words))
    mended = stepgraph.compile(stepgraph.load("miles_async", [*words, "graph.step.sync_weights.when.with=eval"]))
    assert len(stale.warnings) == 1
    assert mended.warnings == ()
