"""Gates that only the run can decide."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import ConfigError
from stepgraph.ir.phase import When
from stepgraph.runtime.gates import rule
from stepgraph.runtime.run import run

from .parts import Tape, Worker, events
from .plans import hand_plan, phase


def fired(tmp_path: Path, when: When, work: Any, steps: int = 4, others: tuple[Any, ...] = ()) -> list[int | None]:
    """The steps in which a phase with this gate ran, after the work of each step."""
    tape = Tape()
    gated = phase("gated", "w.do", ["work"], when=when)
    plan = hand_plan((phase("work", "w.work", ["gated@previous"]), gated, *others), steps=steps)
    assert run(plan, {"w": Worker(tape, work=work)}, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    return [step for word, name, step in tape.marks if (word, name) == ("begin", "gated")]


def may(**words: Any) -> When:
    runtime = tuple((key, str(words.pop(key))) for key in ("file", "signal", "minutes", "metric") if key in words)
    return When(named=True, runtime=runtime, **words)


def test_a_metric_fires_once_it_keeps_the_rule(tmp_path: Path) -> None:
    work = lambda ctx: ctx.log(**{"reward/mean": 0.3 * ctx.step})  # noqa: E731 - a body in one line
    assert fired(tmp_path, may(metric="reward/mean > 0.5"), work) == [2, 3]


def test_a_file_fires_once_each_time_it_is_touched(tmp_path: Path) -> None:
    def work(ctx: Any) -> None:
        if ctx.step == 1:
            (ctx.run_dir / "save_now").touch()

    assert fired(tmp_path, may(file="save_now"), work) == [1]


def test_a_signal_fires_the_next_time_and_no_more(tmp_path: Path) -> None:
    def work(ctx: Any) -> None:
        if ctx.step == 2:
            os.kill(os.getpid(), signal.SIGUSR1)

    assert fired(tmp_path, may(signal="SIGUSR1"), work) == [2]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.parametrize(("minutes", "steps"), [(0, [0, 1, 2, 3]), (60, [])])
def test_minutes_are_counted_from_the_last_time(tmp_path: Path, minutes: int, steps: list[int]) -> None:
    assert fired(tmp_path, may(minutes=minutes), lambda ctx: None) == steps


def test_what_is_due_anyway_runs_anyway(tmp_path: Path) -> None:
    assert fired(tmp_path, may(file="never", every=2), lambda ctx: None) == [1, 3]


def test_a_phase_that_goes_with_it_shares_the_decision(tmp_path: Path) -> None:
    tape_of_other: list[int | None] = []
    other = phase("other", "w.work", ["gated"], when=When(named=True, with_="gated"))

    def work(ctx: Any) -> None:
        if ctx.phase == "other":
            tape_of_other.append(ctx.step)
        elif ctx.step == 1:
            (ctx.run_dir / "now").touch()

    assert fired(tmp_path, may(file="now"), work, others=(other,)) == tape_of_other == [1]


def test_a_phase_that_stayed_closed_is_recorded(tmp_path: Path) -> None:
    fired(tmp_path, may(file="never"), lambda ctx: None, steps=1)
    assert [event["phase"] for event in events(tmp_path, "skip")] == ["gated"]


def test_rules_are_read_with_their_sign() -> None:
    name, compare, limit = rule("policy/kl >= 0.5", "save")
    assert (name, limit, compare(0.5, 0.5), compare(0.4, 0.5)) == ("policy/kl", 0.5, True, False)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (may(metric="reward is high"), "cannot read 'reward is high'"),
        (may(minutes="soon"), "'soon' is not a number"),
        (may(signal="SIGUSR"), "no signal 'SIGUSR', did you mean 'SIGUSR"),
    ],
)
def test_a_trigger_that_makes_no_sense_is_refused_before_anything_runs(tmp_path: Path, when: When, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fired(tmp_path / "run", when, lambda ctx: pytest.fail("it ran"))
    assert not list(tmp_path.iterdir())
