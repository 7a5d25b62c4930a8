"""How long the compiler takes, as ratios against rustworkx doing the same on the unrolled run, in one process.

``python benchmarks/compile.py`` prints a table of process times (medians) and exits with 1 where a bound is missed.
rustworkx builds, sorts and prunes a run of 100,000 steps of 14 phases as one graph; stepgraph compiles a million steps.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import rustworkx
import yaml

from stepgraph.compiler import compile as compile_graph
from stepgraph.compiler import seq
from stepgraph.ir.graph import Graph
from stepgraph.spec import parse

MILLION = 1_000_000
UNROLLED = 100_000

RESOURCES: dict[str, Any] = {
    "prompts": "stream",
    "policy": {"kind": "weights", "of": "trainer"},
    "critic": {"kind": "weights", "of": "critic"},
    "engine": {"kind": "weights", "of": "engine"},
    "kv": {"kind": "scratch", "of": "engine", "at": "none"},
    "ckpt": "sink",
    "scores": "sink",
}
STEP = """
generate:       {use: engine.generate, reads: [engine], updates: [prompts], needs: {engine: device, kv: device}, writes: [rollouts]}
offload_engine: {use: engine.offload, moves: {engine: host, kv: none}}
score:          {use: rewards.score, reads: [rollouts], writes: [rewards]}
reload_critic:  {use: critic.reload, moves: {critic: device}}
train_critic:   {use: critic.train, reads: [rollouts, rewards], updates: [critic], needs: {critic: device}, writes: [values]}
offload_critic: {use: critic.offload, moves: {critic: host}}
reload_policy:  {use: trainer.reload, moves: {policy: device}}
train:          {use: trainer.train, reads: [rollouts, rewards, values], updates: [policy], needs: {policy: device}}
save:           {use: trainer.save, reads: [policy], needs: {policy: device}, writes: [ckpt]}
offload_policy: {use: trainer.offload, moves: {policy: host}}
reload_engine:  {use: engine.reload, moves: {engine: device}}
sync_weights:   {use: engine.sync, copies: {engine: policy}, needs: {engine: device}}
reload_kv:      {use: engine.reload, moves: {kv: device}}
eval:           {use: engine.evaluate, reads: [engine], needs: {engine: device, kv: device}, writes: [scores]}
"""  # noqa: E501 - one phase a line, as in a graph file
EVERY: dict[str, Any] = {"save": {"every": 20, "last": True}, "eval": {"every": 10}}


def loop(gates: dict[str, Any], steps: int) -> Graph:
    """A colocated loop of 14 phases with a critic."""
    colocated = {"trainer": ["engine", "critic"], "critic": ["engine", "trainer"], "engine": ["trainer", "critic"]}
    step: dict[str, Any] = yaml.safe_load(STEP)
    step["save"]["when"], step["eval"]["when"] = gates["save"], gates["eval"]
    start = dict.fromkeys(("reload_engine", "sync_weights", "reload_kv"))
    graph = {"name": "bench", "resources": RESOURCES, "keep": {"policy": "any"}, "start": start, "step": step}
    return parse(graph, {"makes_room": colocated}, {"steps": steps})


def scattered(steps: int, density: float = 0.01) -> dict[str, Any]:
    """Evals and saves in steps drawn at random."""
    draw = random.Random(0)
    picked = draw.sample(range(steps), int(steps * density))
    return {"save": {"steps": picked[::2], "last": True}, "eval": {"steps": picked[1::2]}}


def unrolled(steps: int, graph: Graph) -> int:
    """Build, sort and prune the run as one graph: an edge from each phase to the next, and from step to step."""
    names = [phase.name for phase in graph.step]
    dag: Any = rustworkx.PyDAG(check_cycle=False)
    nodes = list(dag.add_nodes_from([name for _ in range(steps) for name in names]))
    dag.add_edges_from_no_data(list(pairwise(nodes)))
    order = rustworkx.topological_sort(dag)
    live = {nodes[-1]}
    for node in reversed(order):
        if node in live:
            live.update(dag.predecessor_indices(node))
    dag.remove_nodes_from([node for node in nodes if node not in live])
    return int(dag.num_nodes())


def measured(work: Callable[[], object], times: int) -> float:
    """The median process time of some runs, in seconds."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def extra_memory(work: Callable[[], object]) -> float:
    """The most memory that Python holds during one run over what it held before, in MB."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / 1e6


def cold(graph: Graph) -> Callable[[], object]:
    """Compile without anything remembered from before."""

    def work() -> object:
        seq.rep.cache_clear()
        return compile_graph(graph)

    return work


def many_shapes() -> Graph:
    """32 steps of up to 14 phases, no two alike: five phases are due by the bits of the step's number."""
    step: dict[str, Any] = yaml.safe_load(STEP)
    for name in ("reload_critic", "train_critic", "offload_critic"):
        del step[name]
    step["train"]["reads"] = ["rollouts", "rewards"]
    step |= {
        name: {"use": f"logs.{name}", "reads": ["rollouts"], "writes": [name]} for name in ("audit", "report", "trace")
    }
    for bit, name in enumerate(("save", "eval", "audit", "report", "trace")):
        step[name]["when"] = {"steps": [k for k in range(32) if k >> bit & 1]}
    start = dict.fromkeys(("reload_engine", "sync_weights", "reload_kv"))
    graph = {"name": "shapes", "resources": RESOURCES, "keep": {"policy": "any"}, "start": start, "step": step}
    return parse(graph, {"makes_room": {"trainer": ["engine"], "engine": ["trainer"]}}, {"steps": 32})


def main() -> int:
    """Measure, print, and judge."""
    periodic, short, random_run = loop(EVERY, MILLION), loop(EVERY, 10_000), loop(scattered(MILLION), MILLION)
    base = measured(lambda: unrolled(UNROLLED, short), 3)
    million, ten, wild = (measured(cold(g), n) for g, n in ((periodic, 51), (short, 51), (random_run, 7)))
    plan = compile_graph(random_run)
    plan.step(0)
    steps = [random.Random(1).randrange(MILLION) for _ in range(2000)]
    look = measured(lambda: [plan.step(k) for k in steps], 9) / len(steps)
    shape = measured(cold(many_shapes()), 101) / 32
    rows = [
        ("periodic run, 1,000,000 steps", million, f"1/{base / million:,.0f} of rustworkx", million <= base / 1000),
        ("  against 10,000 steps", ten, f"{million / ten:.2f} times", million <= 1.5 * ten),
        ("random schedule, 1,000,000 steps", wild, f"1/{base / wild:,.0f} of rustworkx", wild <= base / 50),
        ("  extra memory", 0.0, f"{(mb := extra_memory(cold(random_run))):.1f} MB", mb < 16),
        ("plan.step(k), any k", look, "", look <= 10e-6),
        ("one step shape of up to 14 phases", shape, "", shape <= 100e-6),
    ]
    print(f"{'rustworkx, 100,000 steps unrolled':36}{base * 1e3:10.3f} ms")
    for what, seconds, ratio, good in rows:
        print(f"{what:36}{seconds * 1e3:10.3f} ms  {ratio:28}{'ok' if good else 'MISSED'}")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
