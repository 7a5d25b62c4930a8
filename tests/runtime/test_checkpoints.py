"""A crash at any instant of a save leaves a whole checkpoint, and a resumed run is the run that was not interrupted."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import ConfigError
from stepgraph.ir.resource import Resource
from stepgraph.runtime import checkpoint
from stepgraph.runtime.checkpoint import RunState, clean, commit, find_checkpoint
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run
from stepgraph.runtime.rundir import prepare_run_dir

from .parts import Engine, Tape, Trainer, Worker, events, loop_parts
from .plans import SYNC, WEIGHTS, HandPlan, hand_plan, loop_plan, phase


class Crash(BaseException):
    """The machine dies here."""


def save(run_dir: Path, step: int, keep: int | None = None) -> Path:
    root = run_dir / checkpoint.FOLDER
    temporary = root / f".step_{step}.new"
    (temporary / "deep").mkdir(parents=True)
    (temporary / "weights.bin").write_bytes(b"w" * 100 * (step + 1))
    (temporary / "deep" / "more.bin").write_bytes(b"m")
    return commit(temporary, root, RunState(step, step + 1, {"prompts": step + 1}, {"policy": step + 1}), keep)


def whole(found: checkpoint.Checkpoint | None) -> bool:
    """Whether it can be loaded: every file of it is there, in full."""
    if found is None:
        return False
    return (found.path / "weights.bin").stat().st_size == 100 * (found.state.step + 1) and (
        found.path / "deep" / "more.bin"
    ).is_file()


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """Let the ``number``-th call that touches the disk's order die instead; returns a counter of calls."""
    calls = [0]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **words: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                raise Crash
            return real(*args, **words)

        return call

    for name in ("fsync", "rename", "replace"):
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", wrap(shutil.rmtree))
    return lambda: calls[0]


def calls_of_a_save(tmp_path: Path, keep: int | None) -> int:
    with pytest.MonkeyPatch.context() as patch:
        save(tmp_path, 0, keep)
        counted = crash_at(patch, -1)
        save(tmp_path, 1, keep)
        return counted()


@pytest.mark.parametrize("keep", [None, 1])
def test_a_crash_at_any_point_leaves_a_whole_checkpoint(tmp_path: Path, keep: int | None) -> None:
    total = calls_of_a_save(tmp_path / "count", keep)
    assert total >= 10
    steps = []
    for number in range(1, total + 1):
        here = tmp_path / f"crash_{number}"
        save(here, 0, keep)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, number)
            with pytest.raises(Crash):
                save(here, 1, keep)
        found = find_checkpoint(here)
        assert whole(found), f"call {number} of {total}"
        assert found is not None
        steps.append(found.state.step)
        clean(here)
        assert whole(find_checkpoint(here))
        save(here, 2, keep)
        assert find_checkpoint(here).state.step == 2  # type: ignore[union-attr]
    assert steps == sorted(steps), "once the pointer is moved, it stays moved"
    assert set(steps) == {0, 1}


def test_a_removed_checkpoint_is_hidden_before_it_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 0, keep=1)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(Crash()))
    with pytest.raises(Crash):
        save(tmp_path, 1, keep=1)
    assert sorted(one.name for one in (tmp_path / "checkpoints").glob("step*")) == ["step_000001"]


def test_only_as_many_as_asked_for_are_kept_and_the_latest_is_one(tmp_path: Path) -> None:
    for step in range(5):
        save(tmp_path, step, keep=2)
    assert sorted(one.name for one in (tmp_path / "checkpoints").glob("step*")) == ["step_000003", "step_000004"]


def test_all_are_kept_by_default(tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path, step)
    assert len(list((tmp_path / "checkpoints").glob("step*"))) == 3


def test_one_that_was_written_but_never_pointed_to_makes_way(tmp_path: Path) -> None:
    save(tmp_path, 0)
    last = save(tmp_path, 1)
    (tmp_path / "checkpoints" / "latest").write_text("step_000000\n")
    assert find_checkpoint(tmp_path).state.step == 0  # type: ignore[union-attr]
    assert save(tmp_path, 1) == last
    assert find_checkpoint(tmp_path).state.step == 1  # type: ignore[union-attr]


def test_a_second_save_of_a_step_does_not_touch_the_first(tmp_path: Path) -> None:
    first, second = save(tmp_path, 1), save(tmp_path, 1)
    assert (first.name, second.name) == ("step_000001", "step_000001-2")
    assert find_checkpoint(tmp_path).path == second  # type: ignore[union-attr]


def test_without_a_pointer_the_newest_whole_one_is_found(tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path, step)
    (tmp_path / "checkpoints" / "latest").unlink()
    (tmp_path / "checkpoints" / "step_000002" / "COMPLETE").unlink()
    assert find_checkpoint(tmp_path).state.step == 1  # type: ignore[union-attr]


def go(plan: HandPlan, run_dir: Path, parts: dict[str, Any] | None = None, **words: Any) -> Result:
    return run(plan, parts or loop_parts(), run_dir=run_dir, out=io.StringIO(), **words)


def test_a_save_holds_the_step_the_cursor_and_the_versions(tmp_path: Path) -> None:
    go(loop_plan(3), tmp_path, seed=5)
    found = find_checkpoint(tmp_path)
    assert found is not None
    assert found.path == tmp_path / "checkpoints" / "step_000002"
    assert found.state == RunState(2, 3, {"prompts": 3}, {"policy": 3, "engine": 2}, 5, "hand")
    assert json.loads((found.path / "updates.json").read_text()) == 3


def test_a_resumed_run_goes_on_as_if_it_had_not_ended(tmp_path: Path) -> None:
    through = loop_parts()
    go(loop_plan(4), tmp_path / "through", through)
    go(loop_plan(2), tmp_path / "split")
    (tmp_path / "split" / "result.json").unlink()  # as a machine that died would have left it
    second = loop_parts()
    result = go(loop_plan(4, first=2), tmp_path / "split", second, resume=True)
    assert (result.status, result.steps) == ("completed", 2)
    assert second["trainer"].loaded == tmp_path / "split" / "checkpoints" / "step_000001"
    assert second["engine"].asked == through["engine"].asked[2:]
    assert second["trainer"].updates == through["trainer"].updates == 4


def test_batches_taken_ahead_are_taken_again_after_a_resume(tmp_path: Path) -> None:
    make = {"reads": ("engine",), "updates": ("prompts",), "writes": ("rollouts",)}
    train = phase(
        "train",
        "trainer.train",
        ["generate@previous", "save@previous", "sync@previous"],
        reads=("rollouts",),
        updates=("policy",),
    )
    ahead = phase("generate", "engine.generate", ["sync@previous"], ahead=1, **make)
    save_after = phase("save", "trainer.save", ["train", "generate"], reads=("policy",), writes=("ckpt",))
    sync = phase("sync", "engine.sync", ["train", "generate"], copies={"engine": "policy"})

    def plan(steps: int, first: int = 0) -> HandPlan:
        def step(k: int) -> tuple[Any, ...]:
            return (
                (ahead, train, save_after, sync)
                if k < steps - 1
                else (train, phase("save", "trainer.save", ["train"], reads=("policy",), writes=("ckpt",)))
            )

        early = phase("generate", "engine.generate", ["sync"], for_step=first, **make)
        return hand_plan(step, steps, WEIGHTS, begin=(SYNC, early), first=first)

    class Dies(Trainer):
        def train(self, ctx: Any, rollouts: Any) -> None:
            if ctx.step == 2:
                raise OSError("power")
            super().train(ctx, rollouts)

    assert go(plan(4), tmp_path, loop_parts() | {"trainer": Dies()}).status == "failed"
    found = find_checkpoint(tmp_path)
    assert found is not None
    assert found.state.cursors == {"prompts": 2}
    parts = loop_parts()
    assert go(plan(4, first=2), tmp_path, parts, resume=True).status == "completed"
    assert parts["engine"].asked == [[4, 5], [6, 7]]


def test_a_failure_names_the_checkpoint_that_is_safe(tmp_path: Path) -> None:
    class Dies(Engine):
        def generate(self, ctx: Any, prompts: Any) -> Any:
            if ctx.step == 2:
                raise OSError("power")
            return super().generate(ctx, prompts)

    result = go(loop_plan(3), tmp_path, loop_parts() | {"engine": Dies()}, again="stepgraph run mine resume=auto")
    assert result.failure is not None
    assert result.failure.safe == f"{tmp_path}/checkpoints/step_000001 (after 2 of 3 steps)"
    assert result.failure.go_on == "stepgraph run mine resume=auto"


def test_an_unfinished_save_is_not_a_checkpoint(tmp_path: Path) -> None:
    class Dies(Trainer):
        def save(self, ctx: Any) -> Any:
            with ctx.checkpoint() as folder:
                (folder / "updates.json").write_text("1")
                raise OSError("disk full")

    assert go(loop_plan(1), tmp_path, loop_parts() | {"trainer": Dies()}).status == "failed"
    assert find_checkpoint(tmp_path) is None
    assert not list((tmp_path / "checkpoints").iterdir())


def savers(second: Callable[[Any], Any]) -> dict[str, Any]:
    def first(ctx: Any) -> None:
        with ctx.checkpoint() as folder:
            (folder / "a").write_text("a")

    return {"x": Worker(Tape(), save=first), "y": Worker(Tape(), save=second)}


TWO_SAVES = hand_plan(
    (phase("save_x", "x.save", writes=("ckpt",)), phase("save_y", "y.save", ["save_x"], writes=("ckpt",))),
    resources=(Resource("ckpt", "sink"),),
)


def test_two_phases_that_save_make_one_checkpoint(tmp_path: Path) -> None:
    def second(ctx: Any) -> None:
        assert find_checkpoint(tmp_path) is None
        with ctx.checkpoint() as folder:
            (folder / "b").write_text("b")

    assert run(TWO_SAVES, savers(second), run_dir=tmp_path, out=io.StringIO()).status == "completed"
    found = find_checkpoint(tmp_path)
    assert found is not None
    assert ((found.path / "x" / "a").read_text(), (found.path / "y" / "b").read_text()) == ("a", "b")
    assert len(list(events(tmp_path, "checkpoint"))) == 1


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    def second(ctx: Any) -> None:
        raise OSError("disk full")

    assert run(TWO_SAVES, savers(second), run_dir=tmp_path, out=io.StringIO()).status == "failed"
    assert find_checkpoint(tmp_path) is None


def test_a_component_that_loads_another_version_than_was_saved_is_caught(tmp_path: Path) -> None:
    class Forgets(Trainer):
        def load(self, folder: Path) -> None:
            self.updates = 0

    go(loop_plan(2), tmp_path)
    result = go(loop_plan(4, first=2), tmp_path, loop_parts() | {"trainer": Forgets()}, resume=True)
    assert result.failure is not None
    assert "trainer says that policy holds version 0, but the checkpoint was made at 2" in result.failure.message


def test_a_finished_run_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    go(loop_plan(1), tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="holds a finished run"):
        go(loop_plan(1), tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_resuming_a_finished_run_is_already_complete_and_touches_nothing(tmp_path: Path) -> None:
    go(loop_plan(2), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for _ in range(3):
        result = go(loop_plan(2, first=2), tmp_path, resume=True)
        assert (result.status, result.exit_code) == ("already_complete", 0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_run_that_stopped_half_way_is_not_started_over_by_mistake(tmp_path: Path) -> None:
    save(tmp_path, 4)
    with pytest.raises(ConfigError, match="holds a run saved after 5 steps; resume=auto goes on"):
        prepare_run_dir(tmp_path)


def test_a_plan_that_does_not_begin_where_the_checkpoint_ends_is_refused(tmp_path: Path) -> None:
    go(loop_plan(2), tmp_path)
    with pytest.raises(ConfigError, match=r"2 steps are done, but the plan starts with step 0.*first=2"):
        go(loop_plan(4), tmp_path, resume=True)


def test_a_checkpoint_of_another_graph_is_refused(tmp_path: Path) -> None:
    go(loop_plan(2), tmp_path)
    with pytest.raises(ConfigError, match="saved by graph 'hand', not 'other'"):
        go(loop_plan(4, first=2, name="other"), tmp_path, resume=True)


def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    assert go(loop_plan(1), tmp_path, resume=True).status == "completed"


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"file is a file"):
        go(loop_plan(1), tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match=r"cannot write"):
        run(loop_plan(1), config={"engine": {"_target_": "nothing.at.all"}}, run_dir="/proc/run")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_preparing_leaves_nothing_behind(tmp_path: Path) -> None:
    prepare_run_dir(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
