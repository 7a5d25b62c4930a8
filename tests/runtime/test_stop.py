"""A run that is asked to stop finishes the step in flight, as the last one where that can still be."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import GraphError
from stepgraph.runtime.checkpoint import find_checkpoint
from stepgraph.runtime.ending import OnStop
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run

from .parts import Tape, Trainer, Worker, events, loop_parts
from .plans import WEIGHTS, HandPlan, hand_plan, phase

WORK = phase("work", "w.work", ["back@previous"])
TRAIN = phase("train", "w.train", ["work"])
AWAY = phase("away", "w.away", ["train"], moves={"policy": "host"})
BACK = phase("back", "w.back", ["away"], moves={"policy": "device"})
SAVE = phase("save", "w.save", ["train"], needs={"policy": "device"}, writes=("ckpt",))
END = phase("end", "w.end", ["save@previous"])


def colocated(steps: int, first: int = 0) -> HandPlan:
    """Hands over after every step but the last, which saves instead."""
    return hand_plan(
        lambda k: (WORK, TRAIN, AWAY, BACK) if k < steps - 1 else (WORK, TRAIN, SAVE),
        steps,
        WEIGHTS,
        first=first,
        finish=(END,),
    )


def stopped_in(
    name: str, tmp_path: Path, on_stop: OnStop | None, out: io.StringIO | None = None
) -> tuple[Result, list[str]]:
    """Run eight steps, with a signal in the phase ``name`` of the third one; returns what ran of the steps after it."""
    tape = Tape()

    def body(word: str) -> Any:
        def run_it(ctx: Any, moves: Any = None) -> None:
            if ctx.phase == name and ctx.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)
            if word == "save":
                with ctx.checkpoint():
                    pass

        return run_it

    worker = Worker(tape, **{word: body(word) for word in ("work", "train", "away", "back", "save", "end")})
    result = run(colocated(8), {"w": worker}, run_dir=tmp_path, out=out or io.StringIO(), on_stop=on_stop)
    return result, [
        f"{p}{'' if s is None else s}" for word, p, s in tape.marks if word == "begin" and (s is None or s > 1)
    ]


def ends_with(step: int) -> HandPlan:
    return colocated(step + 1)


def test_the_step_in_flight_becomes_the_last_one_where_it_still_can(tmp_path: Path) -> None:
    out = io.StringIO()
    result, ran = stopped_in("train", tmp_path, ends_with, out)
    assert ran == ["work2", "train2", "save2", "end"]
    assert (result.status, result.exit_code, result.steps, result.total) == ("stopped", 0, 3, 8)
    assert find_checkpoint(tmp_path).state.completed == 3  # type: ignore[union-attr]
    assert "SIGTERM: finishing step 3 (a second signal ends it at once)" in out.getvalue()
    assert "stopped: 3 of 8 steps" in out.getvalue()
    assert [event["why"] for event in events(tmp_path, "stop")] == ["SIGTERM"]


def test_a_step_that_went_too_far_is_followed_by_one_that_is_the_last(tmp_path: Path) -> None:
    result, ran = stopped_in("away", tmp_path, ends_with)
    assert ran == ["work2", "train2", "away2", "back2", "work3", "train3", "save3", "end"]
    assert (result.status, result.steps) == ("stopped", 4)


def test_without_another_plan_the_step_is_finished_and_what_was_not_run_is_said(tmp_path: Path) -> None:
    result, ran = stopped_in("train", tmp_path, None)
    assert ran == ["work2", "train2", "away2", "back2"]
    assert result.status == "stopped"
    assert result.warnings == ("stopped after step 3: what is declared for a last step was not run",)


def test_a_plan_that_is_refused_is_not_run(tmp_path: Path) -> None:
    def refuse(step: int) -> HandPlan:
        raise GraphError("no room")

    result, ran = stopped_in("train", tmp_path, refuse)
    assert ran == ["work2", "train2", "away2", "back2"]
    assert result.warnings[0] == "no plan for a run that ends with step 3: GraphError: no room"


def test_a_plan_with_another_past_is_not_taken(tmp_path: Path) -> None:
    def other(step: int) -> HandPlan:
        return replace(colocated(step + 1), of_step=lambda k: (WORK, TRAIN))

    result, ran = stopped_in("train", tmp_path, other)
    assert ran == ["work2", "train2", "away2", "back2"]
    assert result.status == "stopped"


def test_a_run_in_its_last_step_completes(tmp_path: Path) -> None:
    def work(ctx: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    plan = hand_plan((phase("work", "w.work"),), finish=(phase("end", "w.do", ["work@previous"]),))
    tape = Tape()
    assert run(plan, {"w": Worker(tape, work=work)}, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    assert tape.begun() == ["work", "end"]


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    run(hand_plan((phase("a", "w.do"),)), {"w": Worker(Tape())}, run_dir=tmp_path, out=io.StringIO())
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_beside_the_main_thread_needs_no_signals(tmp_path: Path) -> None:
    results: list[str] = []

    def go() -> None:
        results.append(
            run(hand_plan((phase("a", "w.do"),)), {"w": Worker(Tape())}, run_dir=tmp_path, out=io.StringIO()).status
        )

    thread = threading.Thread(target=go)
    thread.start()
    thread.join(timeout=10)
    assert results == ["completed"]


def test_a_stopped_run_can_be_resumed(tmp_path: Path) -> None:
    from .plans import loop_plan

    class Stops(Trainer):
        def train(self, ctx: Any, rollouts: Any) -> None:
            super().train(ctx, rollouts)
            if ctx.step == 1:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)

    first = run(loop_plan(5), loop_parts() | {"trainer": Stops()}, run_dir=tmp_path, out=io.StringIO())
    assert first.status == "stopped"
    found = find_checkpoint(tmp_path)
    assert found is not None
    second = run(
        loop_plan(5, first=found.state.completed), loop_parts(), run_dir=tmp_path, resume=True, out=io.StringIO()
    )
    assert (second.status, second.first + second.steps) == ("completed", 5)


TWICE = """
import io, os, signal, sys, time
from tests.runtime.parts import Tape, Worker
from tests.runtime.plans import hand_plan, phase
from stepgraph.runtime.run import run

def work(ctx):
    print("working", flush=True)
    time.sleep(30)

run(hand_plan((phase("work", "w.work"),)), {"w": Worker(Tape(), work=work)}, run_dir=sys.argv[1])
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once_with_130(tmp_path: Path, second: signal.Signals) -> None:
    root = Path(__file__).parents[2]
    run_dir = tmp_path / "run"
    command = [sys.executable, "-c", TWICE, str(run_dir)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().startswith("SIGINT: finishing step 1")
        process.send_signal(second)
        assert process.wait(timeout=10) == 130
    assert list(events(run_dir, "stop"))[-1]["why"] == "second signal: ended at once"
