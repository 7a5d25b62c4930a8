"""What a person reads, and what stands in the run directory."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from stepgraph.ir.plan import Pruned
from stepgraph.runtime import record
from stepgraph.runtime.report import WIDTH, duration, last_line, saved_words, step_line
from stepgraph.runtime.result import Result, Saved
from stepgraph.runtime.run import run
from stepgraph.runtime.timing import Clock, Ran, StepTime

from .parts import Tape, Worker, events, loop_parts, metrics
from .plans import WEIGHTS, hand_plan, loop_plan, phase


def ran(name: str, seconds: float, began: float = 0.0, kind: str = "work", copies: bool = False) -> Ran:
    return Ran(name, 0, began, began + seconds, seconds, kind, copies)


def test_a_step_is_one_line_with_the_words_of_its_phases() -> None:
    phases = (
        ran("generate", 18.43),
        ran("off", 3.3, kind="handoff"),
        ran("train", 22.1),
        ran("copy", 1.66, kind="handoff", copies=True),
        ran("on", 4.0, kind="handoff"),
    )
    line = step_line(6, 36, StepTime(51.8, 0.0, phases), {"reward/mean": 0.61, "policy/kl": 0.018}, 1)
    assert line == (
        "step 7/36 51.8s | generate 18.4 train 22.1 sync 1.7 handoff 7.3 idle 0.0 | reward 0.61 kl 0.018 | variant 1"
    )


def test_short_times_have_digits_that_are_not_zero() -> None:
    assert [duration(x) for x in (51.83, 1.0, 0.5, 0.0123, 0.00045, 0.0)] == [
        "51.8",
        "1.0",
        "0.50",
        "0.012",
        "0.0004",
        "0.0",
    ]


def test_a_long_line_sums_its_smallest_work_as_other() -> None:
    phases = tuple(ran(f"quite_a_long_name_{i}", 10.0 ** (i - 3)) for i in range(7))
    line = step_line(0, 10, StepTime(1111.1, 0.0, phases), {}, 1)
    assert len(line) <= WIDTH
    assert "quite_a_long_name_6 1000.0" in line
    assert "quite_a_long_name_5 100.0" in line
    assert re.search(r"other \d", line)
    assert "quite_a_long_name_0" not in line


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (Saved(4, 4, 5.3, (35,)), "saved ~5.3 s: 4 handoffs in the last step (measured medians)"),
        (Saved(1, 1, 0.012, (3,)), "saved ~0.012 s: 1 handoff in step 4 (measured medians)"),
        (
            Saved(8, 4, 2.0, (3, 35)),
            "saved ~2.0 s: 8 handoffs in 2 steps (measured medians; 4 never ran and are not counted)",
        ),
        (Saved(4, 0, 0.0, (35,)), "4 handoffs not run in the last step"),
        (Saved(), ""),
    ],
)
def test_the_time_saved_is_what_was_measured_and_no_more(saved: Saved, words: str) -> None:
    assert saved_words(saved, last=35) == words


def test_the_last_line_says_the_status_what_was_pruned_and_what_that_saved(tmp_path: Path) -> None:
    result = Result("completed", 0, 36, 36, tmp_path, 71, Saved(4, 4, 5.3, (35,)), 1865.0)
    assert last_line(result) == (
        "completed: 36 of 36 steps in 31 min 5 s; 71 phase runs pruned; "
        "saved ~5.3 s: 4 handoffs in the last step (measured medians)"
    )


def test_saved_time_is_the_median_of_the_same_handoffs_in_the_other_steps(tmp_path: Path) -> None:
    work = phase("work", "w.do", ["give@previous"])
    give = phase("give", "w.give", ["work"], moves={"engine": "host"})
    gone = (Pruned("give", "no_consumer", "nobody"), Pruned("judge", "not_due", "every=10"))
    plan = hand_plan(lambda k: (work, give) if k < 3 else (work,), steps=4, resources=WEIGHTS, pruned={3: gone})
    out = io.StringIO()
    parts = {"w": Worker(Tape(), 0.01, give=lambda ctx, moves: None)}
    result = run(plan, parts, run_dir=tmp_path, out=out)
    durations = [event["seconds"] for event in events(tmp_path, "end") if event["phase"] == "give"]
    assert result.saved == Saved(1, 1, sorted(durations)[1], (3,))
    assert result.pruned == 2
    assert "2 phase runs pruned; saved ~0.01" in out.getvalue()
    assert "1 handoff in the last step (measured medians)" in out.getvalue()
    assert [line["graph/pruned"] for line in metrics(tmp_path)] == [0, 0, 0, 2]


def slowly(body: Any) -> Any:
    def slow(*given: Any, **contents: Any) -> Any:
        time.sleep(0.02)
        return body(*given, **contents)

    return slow


def test_one_line_a_step_and_one_for_start(tmp_path: Path) -> None:
    out = io.StringIO()
    parts = loop_parts()
    for part, word in ((parts["engine"], "generate"), (parts["engine"], "sync"), (parts["trainer"], "train")):
        setattr(part, word, slowly(getattr(part, word)))
    run(loop_plan(3), parts, run_dir=tmp_path, out=out)
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["start", "step", "step", "step", "completed:"]
    assert re.match(
        r"step 2/3 [\d.]+s \| generate [\d.]+ train [\d.]+ save [\d.]+ sync [\d.]+( idle [\d.]+)? \|", lines[2]
    )
    assert "| reward 2.5 kl 0.018 | variant 1" in lines[2]


def test_overlapping_phases_are_exposed_only_where_they_are_alone() -> None:
    clock = Clock(0.0)
    for one in (ran("a", 2.0), ran("b", 3.0, 1.0), ran("c", 1.0, 5.0)):
        clock.add(one)
    time = clock.close(0)
    assert (time.seconds, time.idle) == (6.0, 1.0)
    assert time.exposed == {"a": 1.0, "b": 2.0, "c": 1.0}


def test_a_phase_of_the_next_step_that_goes_on_is_not_idle_time() -> None:
    clock = Clock(0.0)
    clock.add(ran("a", 1.0, 2.0))
    assert clock.close(0, [Ran("b", 1, 0.5, float("inf"), 0.0)]).idle == 0.5


def test_steps_add_up_to_the_run(tmp_path: Path) -> None:
    plan = hand_plan((phase("a", "w.do", ["a@previous"]), phase("b", "w.do", ["b@previous"])), steps=4)
    began = time.monotonic()
    run(plan, {"w": Worker(Tape(), 0.02)}, run_dir=tmp_path, out=io.StringIO())
    whole = time.monotonic() - began
    assert 0.08 <= sum(line["timing_s/step"] for line in metrics(tmp_path)) <= whole


def test_the_run_directory_holds_plan_config_events_and_metrics(tmp_path: Path) -> None:
    seen: list[Any] = []
    run(loop_plan(1), loop_parts(), run_dir=tmp_path, out=io.StringIO(), config_text="graph: hand\n", watch=seen.append)
    assert json.loads((tmp_path / "plan.json").read_text())["graph"] == "hand"
    assert (tmp_path / "config.yaml").read_text() == "graph: hand\n"
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "completed"
    recorded = list(events(tmp_path))
    assert [event["event"] for event in recorded] == [event["event"] for event in seen]
    assert (recorded[0]["event"], recorded[-1]["event"]) == ("run", "finish")
    train = next(event for event in recorded if event["event"] == "end" and event["phase"] == "train")
    assert train["outcome"] == "ok"
    assert train["versions_written"] == {"policy": 1}
    assert train["thread"].startswith("stepgraph")
    assert {"t", "wall", "seconds", "step", "for_step", "kind", "variant"} <= train.keys()


def test_events_are_on_disk_while_the_run_goes_on(tmp_path: Path) -> None:
    found: list[str] = []

    def look(ctx: Any) -> None:
        found.extend(event["event"] for event in events(tmp_path))

    run(hand_plan((phase("look", "w.look"),)), {"w": Worker(Tape(), look=look)}, run_dir=tmp_path, out=io.StringIO())
    assert found == ["run", "start"]


def test_numbers_that_json_does_not_know_are_words(tmp_path: Path) -> None:
    plan = hand_plan((phase("a", "w.a"),))
    parts = {"w": Worker(Tape(), a=lambda ctx: ctx.log(loss=float("nan")))}
    run(plan, parts, run_dir=tmp_path, out=io.StringIO())
    assert json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)["loss"] == "nan"


def test_an_empty_plan_says_so_and_leaves_no_trace(tmp_path: Path) -> None:
    out = io.StringIO()
    result = run(hand_plan((), steps=0), {}, run_dir=tmp_path / "run", out=out)
    assert (result.status, result.exit_code) == ("completed", 0)
    assert out.getvalue() == "completed: the plan is empty; nothing was started\n"
    assert not (tmp_path / "run").exists()


def test_a_run_of_no_steps_still_runs_its_start(tmp_path: Path) -> None:
    tape = Tape()
    plan = hand_plan((), steps=0, begin=(phase("judge", "w.do"),))
    assert run(plan, {"w": Worker(tape)}, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    assert tape.begun() == ["judge"]


def test_a_phase_far_over_its_median_is_reported_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SLOW_FROM", 0.05)
    out = io.StringIO()
    said: list[str] = []

    def work(ctx: Any) -> None:
        if ctx.step == 3:
            time.sleep(0.4)
            said.append(out.getvalue())

    plan = hand_plan((phase("work", "w.work", ["next@previous"]), phase("next", "w.do", ["work"])), steps=4)
    run(plan, {"w": Worker(Tape(), work=work)}, run_dir=tmp_path, out=out)
    assert re.search(r"warning: work in step 4/4 has run for [\d.]+ s, usually [\d.]+ s; next waits for it", said[0])
    assert len(list(events(tmp_path, "slow"))) == 1
