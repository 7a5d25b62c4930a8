"""Runs of a small loop on Ray, and what they left behind: what the tests of the executor share."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import stepgraph
from stepgraph.runtime import ray as executor
from stepgraph.runtime.result import Result
from stepgraph.spec import parse

PARTS = Path(__file__).with_name("ray_parts.py")
LOOP: dict[str, Any] = {
    "name": "loop",
    "resources": {
        "prompts": "stream",
        "policy": {"kind": "weights", "of": "trainer", "at": "device"},
        "engine": {"kind": "weights", "of": "engine", "at": "device"},
        "ckpt": "sink",
    },
    "keep": {"policy": "any"},
    "start": {"sync": None},
    "step": {
        "generate": {"use": "engine.generate", "reads": ["engine"], "updates": ["prompts"], "writes": ["rollouts"]},
        "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"]},
        "save": {"use": "trainer.save", "reads": ["policy"], "writes": ["ckpt"], "when": {"last": True}},
        "sync": {"use": "engine.sync", "copies": {"engine": "policy"}},
    },
}


def compiled(graph: Mapping[str, Any], steps: int, first: int = 0) -> Any:
    return stepgraph.compile(parse(graph, {"name": "split"}, {"steps": steps, "first": first}))


def looped(
    run_dir: Path,
    *,
    steps: int = 3,
    first: int = 0,
    step: Mapping[str, Any] = {},
    keep: Mapping[str, str] = {"policy": "any"},
    classes: Mapping[str, str] = {},
    **words: Any,
) -> tuple[Result, str]:
    """Run the small loop with these phases added; returns its result and what it printed.

    ``engine``, ``trainer`` and ``data`` are options of those components, ``classes`` others than the usual ones.
    """
    options = {name: words.pop(name, {}) for name in ("engine", "trainer", "data")}
    targets = {name: {"_target_": f"{PARTS}:{classes.get(name, name.title())}"} for name in options}
    graph = {**LOOP, "keep": dict(keep), "step": {**LOOP["step"], **step}}
    out = io.StringIO()
    result = executor.run(
        compiled(graph, steps, first),
        config={name: {**targets[name], **own} for name, own in options.items()},
        run_dir=run_dir,
        on_stop=lambda last: compiled(graph, last + 1, first),
        out=out,
        **words,
    )
    return result, out.getvalue()


def calls(run_dir: Path) -> list[tuple[str, str, str, int]]:
    """What the components noted: (component, method, step, process)."""
    lines = (run_dir.parent / "noted.txt").read_text().splitlines()
    return [(who, word, step, int(pid)) for who, word, step, pid in map(str.split, lines)]


def ended(run_dir: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    return [one for one in events if one["event"] == "end"]


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within that time. One that only waits to be reaped has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def descendants(pid: int) -> set[int]:
    """Every process that this one started, and those that they did."""
    parents = {int(one.parent.name): one.read_text() for one in Path("/proc").glob("[0-9]*/stat")}
    found, new = set[int](), {pid}
    while new:
        new = {one for one, stat in parents.items() if int(stat.rpartition(")")[2].split()[1]) in new} - found
        found |= new
    return found
