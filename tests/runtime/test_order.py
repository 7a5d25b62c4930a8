"""What runs when: only `after` decides, and at most two neighbouring steps are in flight."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepgraph.errors import GraphError
from stepgraph.ir.resource import Resource
from stepgraph.runtime.run import run
from stepgraph.runtime.schedule import Schedule

from .parts import Tape, Worker, events
from .plans import HandPlan, hand_plan, phase


def go(plan: HandPlan, tape: Tape, run_dir: Path, seconds: float = 0.0, **parts: Any) -> Any:
    return run(plan, {"w": Worker(tape, seconds), **parts}, run_dir=run_dir, out=io.StringIO())


def test_a_phase_starts_when_all_that_it_waits_for_has_ended(tmp_path: Path) -> None:
    tape = Tape()
    plan = hand_plan((phase("a", "w.do"), phase("b", "w.do", ["a"]), phase("c", "w.do", ["a", "b"])), steps=2)
    assert go(plan, tape, tmp_path).status == "completed"
    for step in (0, 1):
        assert tape.index("end", "a", step) < tape.index("begin", "b", step)
        assert tape.index("end", "b", step) < tape.index("begin", "c", step)


def test_phases_that_do_not_wait_for_each_other_run_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=5)

    def meet(ctx: Any) -> None:
        both.wait()

    parts = {"x": Worker(Tape(), do=meet), "y": Worker(Tape(), do=meet)}
    plan = hand_plan((phase("a", "x.do"), phase("b", "y.do")))
    assert run(plan, parts, run_dir=tmp_path, out=io.StringIO()).status == "completed"


def test_the_next_step_overlaps_where_the_plan_allows_it(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=5)
    tape = Tape()

    def meet(ctx: Any) -> None:
        if (ctx.phase, ctx.step) in (("slow", 0), ("quick", 1)):
            both.wait()

    plan = hand_plan(
        (phase("quick", "x.do", ["quick@previous"]), phase("slow", "x.do", ["quick", "slow@previous"])), steps=2
    )
    assert run(plan, {"x": Worker(tape, do=meet)}, run_dir=tmp_path, out=io.StringIO()).status == "completed"


def test_no_more_than_two_steps_are_in_flight(tmp_path: Path) -> None:
    tape = Tape()
    plan = hand_plan((phase("quick", "w.do"), phase("slow", "s.do", ["slow@previous"])), steps=5)
    go(plan, tape, tmp_path, s=Worker(tape, 0.01))
    for step in range(2, 5):
        assert tape.index("end", "slow", step - 2) < tape.index("begin", "quick", step)


def test_previous_means_the_latest_run_before_the_step_however_far_back(tmp_path: Path) -> None:
    tape = Tape()

    def step(k: int) -> tuple[Any, ...]:
        rare = (phase("rare", "s.do"),) if k == 0 else ()
        return (*rare, phase("often", "w.do", ["rare@previous"]))

    go(hand_plan(step, steps=2), tape, tmp_path, s=Worker(tape, 0.02))
    assert tape.index("end", "rare", 0) < tape.index("begin", "often", 1)


def test_previous_is_vacuous_where_there_is_no_earlier_run(tmp_path: Path) -> None:
    tape = Tape()
    assert go(hand_plan((phase("a", "w.do", ["b@previous"]), phase("b", "w.do"))), tape, tmp_path).status == "completed"


def test_previous_of_the_first_step_is_the_run_in_start(tmp_path: Path) -> None:
    tape = Tape()
    plan = hand_plan((phase("a", "w.do", ["b@previous"]),), begin=(phase("b", "s.do"),))
    go(plan, tape, tmp_path, s=Worker(tape, 0.02))
    assert tape.index("end", "b", None) < tape.index("begin", "a", 0)


def test_start_comes_first_and_end_comes_last(tmp_path: Path) -> None:
    tape = Tape()
    plan = hand_plan(
        (phase("a", "w.do", ["s@previous"]),),
        begin=(phase("s", "w.do"),),
        finish=(phase("e", "w.do", ["a@previous"]),),
    )
    go(plan, tape, tmp_path)
    assert tape.begun() == ["s", "a", "e"]


def test_a_name_that_is_not_in_the_step_is_refused() -> None:
    schedule = Schedule(hand_plan((phase("train", "w.do"), phase("b", "w.do", ["trian"]))))
    with pytest.raises(GraphError, match=r"b: waits for 'trian'.*did you mean 'train'"):
        schedule.extend()


OFFLOADS = (
    Resource("engine", "weights", of="w", at="device"),
    Resource("kv", "scratch", of="w", at="device"),
    Resource("policy", "weights", of="w", at="device"),
)


def handoff(name: str, use: str = "w.move", **moves: str) -> Any:
    return phase(name, use, moves=moves)


def moved_by(plan: HandPlan, run_dir: Path) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = []
    worker = Worker(Tape(), move=lambda ctx, moves: calls.append(dict(moves)), work=lambda ctx: None)
    assert run(plan, {"w": worker}, run_dir=run_dir, out=io.StringIO()).status == "completed"
    return calls


def test_adjacent_handoffs_with_one_use_arrive_as_one_call(tmp_path: Path) -> None:
    plan = hand_plan((handoff("a", engine="host"), handoff("b", kv="none")), resources=OFFLOADS)
    assert moved_by(plan, tmp_path) == [{"engine": "host", "kv": "none"}]
    ends = list(events(tmp_path, "end"))
    assert [(e["phase"], e["moves"], e["call"]) for e in ends] == [
        ("a", {"engine": "host"}, ["a", "b"]),
        ("b", {"kv": "none"}, ["a", "b"]),
    ]


def test_handoffs_with_a_phase_between_them_arrive_apart(tmp_path: Path) -> None:
    between = phase("c", "w.work")
    plan = hand_plan((handoff("a", engine="host"), between, handoff("b", kv="none")), resources=OFFLOADS)
    assert sorted(map(str, moved_by(plan, tmp_path))) == ["{'engine': 'host'}", "{'kv': 'none'}"]


def test_a_handoff_that_undoes_its_neighbour_arrives_apart(tmp_path: Path) -> None:
    back = phase("b", "w.move", ["a"], moves={"engine": "device"})
    plan = hand_plan((handoff("a", engine="host"), back), resources=OFFLOADS)
    assert moved_by(plan, tmp_path) == [{"engine": "host"}, {"engine": "device"}]


def test_whoever_waits_for_one_of_them_waits_for_the_call(tmp_path: Path) -> None:
    tape = Tape()
    worker = Worker(tape, 0.01, move=lambda ctx, moves: None, work=lambda ctx: None)
    plan = hand_plan(
        (handoff("a", engine="host"), handoff("b", kv="none"), phase("c", "w.work", ["b"])), resources=OFFLOADS
    )
    run(plan, {"w": worker}, run_dir=tmp_path, out=io.StringIO())
    assert tape.index("end", "a", 0) < tape.index("begin", "c", 0)


@st.composite
def dags(draw: st.DrawFn) -> HandPlan:
    size = draw(st.integers(1, 6))
    names = [f"p{i}" for i in range(size)]

    def edges(i: int) -> list[str]:
        here = draw(st.sets(st.sampled_from(names[:i]))) if i else set()
        before = draw(st.sets(st.sampled_from(names)))
        return [*here, *(f"{name}@previous" for name in before)]

    waits = [edges(i) for i in range(size)]
    hidden = draw(st.sets(st.tuples(st.integers(0, 3), st.sampled_from(names[1:] or ["none"]))))

    def step(k: int) -> tuple[Any, ...]:
        here = [i for i, name in enumerate(names) if (k, name) not in hidden]
        known = {names[i] for i in here}
        return tuple(
            phase(names[i], "w.do", [w for w in waits[i] if w.endswith("@previous") or w in known]) for i in here
        )

    return hand_plan(step, steps=draw(st.integers(0, 4)))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=dags())
def test_no_phase_ever_starts_before_all_that_it_waits_for_is_done(
    plan: HandPlan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tape = Tape()
    result = go(plan, tape, tmp_path_factory.mktemp("dag"))
    assert result.status == "completed"
    latest: dict[str, int] = {}
    for k in range(plan.steps):
        for planned in plan.step(k).phases:
            begin = tape.index("begin", planned.name, k)
            for name in planned.after:
                other = name.removesuffix("@previous")
                step = latest.get(other) if name.endswith("@previous") else k
                if step is not None:
                    assert tape.index("end", other, step) < begin
        latest |= {planned.name: k for planned in plan.step(k).phases}
    assert len(tape.begun()) == sum(len(plan.step(k).phases) for k in range(plan.steps))


@settings(max_examples=50, deadline=None)
@given(plan=dags(), picks=st.lists(st.integers(0, 100), max_size=40))
def test_in_any_order_of_ends_only_what_is_free_is_ready(plan: HandPlan, picks: list[int]) -> None:
    schedule = Schedule(plan)
    done: set[tuple[int | None, str]] = set()
    total = 0
    while True:
        schedule.extend()
        ready = schedule.ready()
        if not ready:
            break
        task = ready[picks[total] % len(ready)] if total < len(picks) else ready[0]
        for name in task.head.after:
            if not name.endswith("@previous"):
                assert (task.section.step, name) in done
        task.started = True
        schedule.finish(task)
        schedule.close()
        done.add((task.section.step, task.name))
        total += 1
    assert not schedule.pending()
    assert total == sum(len(plan.step(k).phases) for k in range(plan.steps))
