"""The trace of a run: whole, killed, and gone on with."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from stepgraph.ir.resource import Resource
from stepgraph.runtime.run import run
from stepgraph.runtime.trace import GIB, TRACE, TraceFile

from .parts import Engine, Tape, Worker, loop_parts
from .plans import HandPlan, hand_plan, loop_plan, phase

Events = list[dict[str, Any]]


def traced(plan: HandPlan, parts: dict[str, Any], folder: Path, **words: Any) -> Events:
    run(plan, parts, run_dir=folder, out=io.StringIO(), signals=False, **words)
    return read(folder)


def read(folder: Path) -> Events:
    found: Events = json.loads((folder / TRACE).read_text(encoding="utf-8"))
    return found


def names(events: Events, word: str) -> dict[tuple[int, int], str]:
    """What the processes or lanes are called."""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == word}


def slices(events: Events) -> list[dict[str, Any]]:
    """Each beginning joined with the end on its lane."""
    open_: dict[tuple[int, int], dict[str, Any]] = {}
    found = []
    for event in events:
        lane = (event["pid"], event["tid"])
        if event["ph"] == "B":
            assert lane not in open_, "two slices overlap on one lane"
            open_[lane] = event
        elif event["ph"] == "E":
            begin = open_.pop(lane)
            found.append({**begin, "args": {**begin["args"], **event["args"]}, "end": event["ts"]})
    return found


def test_a_process_for_each_component_and_a_lane_for_each_kind_of_its_work(tmp_path: Path) -> None:
    events = traced(loop_plan(2), loop_parts(), tmp_path / "run")
    assert sorted(names(events, "process_name").values()) == ["engine", "memory", "trainer"]
    processes = {pid: name for (pid, _), name in names(events, "process_name").items()}
    lanes = sorted((processes[pid], name) for (pid, _), name in names(events, "thread_name").items())
    assert lanes == [("engine", "sync"), ("engine", "work"), ("trainer", "work")]


def test_every_call_is_a_slice_with_its_reason_and_its_step(tmp_path: Path) -> None:
    found = slices(traced(loop_plan(2), loop_parts(), tmp_path / "run"))
    ran = {(one["name"], one["args"]["section"]) for one in found}
    assert ran == {("sync", "start"), *((p.name, f"step {k}") for k in (0, 1) for p in loop_plan(2).step(k).phases)}
    assert all(one["args"]["why"] == "work" and one["args"]["outcome"] == "ok" for one in found)
    assert all(one["ts"] < one["end"] for one in found)
    assert next(one for one in found if one["name"] == "sync")["args"]["copies"] == ["policy>>engine"]


def test_calls_of_one_kind_that_overlap_have_lanes_of_their_own(tmp_path: Path) -> None:
    worker = Worker(Tape(), seconds=0.05)
    plan = hand_plan((phase("a", "w.do"), phase("b", "w.do_too"), phase("c", "w.do_three", ["a", "b"])))
    events = traced(plan, {"w": worker}, tmp_path / "run")
    assert len(slices(events)) == 3
    assert sorted(names(events, "thread_name").values()) == ["work", "work 2"]


def test_the_arrows_run_backwards_from_the_end_along_the_critical_path(tmp_path: Path) -> None:
    def slow(ctx: Any) -> None:
        import time

        time.sleep(0.06)

    worker = Worker(Tape(), seconds=0.005, do_slow=slow)
    plan = hand_plan(
        (
            phase("a", "w.do"),
            phase("b", "w.do_slow", ["a"]),
            phase("c", "w.do_c", ["a"]),
            phase("d", "w.do_d", ["b", "c"]),
        )
    )
    events = traced(plan, {"w": worker}, tmp_path / "run")
    path, at = ["d"], next(one for one in slices(events) if one["name"] == "d")
    while arrow := next((e for e in events if e["ph"] == "f" and (e["tid"], e["ts"]) == (at["tid"], at["ts"])), None):
        source = next(e for e in events if e["ph"] == "s" and e["id"] == arrow["id"])
        at = next(o for o in slices(events) if o["tid"] == source["tid"] and o["ts"] <= source["ts"] < o["end"])
        path.append(at["name"])
    assert path == ["d", "b", "a"]


def test_the_counters_follow_what_moves(tmp_path: Path) -> None:
    kv = Resource("kv", "scratch", of="engine", at="device", size=2.0)
    plan = hand_plan(
        (
            phase("off", "engine.offload", moves={"kv": "host"}),
            phase("on", "engine.reload", ["off"], moves={"kv": "device"}),
        ),
        resources=[kv],
    )
    events = traced(plan, {"engine": Engine()}, tmp_path / "run")
    device = [e["args"]["kv"] for e in events if e["ph"] == "C" and e["name"] == "bytes on device"]
    host = [e["args"]["kv"] for e in events if e["ph"] == "C" and e["name"] == "bytes on host"]
    assert device == [2 * GIB, 0, GIB]
    assert host == [0, GIB, 0]


def test_what_failed_says_so(tmp_path: Path) -> None:
    def fail(ctx: Any) -> None:
        raise ValueError("no luck")

    plan = hand_plan((phase("a", "w.do_fail"),))
    found = slices(traced(plan, {"w": Worker(Tape(), do_fail=fail)}, tmp_path / "run"))
    assert [one["args"]["outcome"] for one in found] == ["failed"]


def test_a_resumed_run_goes_on_in_the_same_trace(tmp_path: Path) -> None:
    traced(loop_plan(1), loop_parts(), tmp_path / "run")
    events = traced(loop_plan(2, first=1), loop_parts(), tmp_path / "run", resume=True)
    assert [one["args"]["section"] for one in slices(events) if one["name"] == "train"] == ["step 0", "step 1"]
    first, second = (one for one in slices(events) if one["name"] == "train")
    assert first["end"] < second["ts"]
    assert first["tid"] == second["tid"]


KILLED = """
    import os, sys
    from pathlib import Path
    from runtime.parts import Engine, loop_parts
    from runtime.plans import loop_plan
    from stepgraph.runtime.run import run

    parts = loop_parts()
    train = parts["trainer"].train
    parts["trainer"].train = lambda ctx, rollouts: os._exit(9) if ctx.step == 1 else train(ctx, rollouts)
    run(loop_plan(3), parts, run_dir=Path(sys.argv[1]), signals=False)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The directory of a run that was ended while the second step was training."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    code = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "run")]
    done = subprocess.run(code, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    return tmp_path / "run"


def test_the_trace_of_a_killed_run_lacks_nothing_but_its_bracket(killed: Path) -> None:
    events: Events = json.loads((killed / TRACE).read_text(encoding="utf-8") + "]")
    ends = [event["tid"] for event in events if event["ph"] == "E"]
    last = [event for event in events if event["ph"] == "B"][-1]
    assert (last["name"], last["args"]["section"]) == ("train", "step 1")
    assert len(ends) == sum(event["ph"] == "B" for event in events) - 1


@pytest.mark.parametrize("half", ["", ',\n{"ph":"B","pi'], ids=["between two events", "within an event"])
def test_a_killed_run_is_gone_on_with_on_lanes_where_nothing_hangs(killed: Path, half: str) -> None:
    with (killed / TRACE).open("a", encoding="utf-8") as file:
        file.write(half)
    events = traced(loop_plan(3, first=1), loop_parts(), killed, resume=True)
    hanging = {e["tid"] for e in events if e["ph"] == "B"} - {e["tid"] for e in events if e["ph"] == "E"}
    trained = [e["tid"] for e in events if e["ph"] == "B" and e["name"] == "train"]
    assert len(trained) == 4
    assert not hanging & set(trained[2:])
    assert len(set(trained)) == 2


def test_a_file_without_events_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / TRACE).write_text('[\n{"ph":', encoding="utf-8")
    file = TraceFile(tmp_path / TRACE)
    file.write({"ph": "M"})
    file.close()
    assert read(tmp_path) == [{"ph": "M"}]
