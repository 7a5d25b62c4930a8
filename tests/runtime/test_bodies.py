"""What a body is given, what it must give back, and what happens when it does not."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import ConfigError
from stepgraph.ir.resource import Resource
from stepgraph.registry import resolve
from stepgraph.runtime.bind import bind
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run

from .parts import Data, Engine, Tape, Trainer, Worker, events, loop_parts, metrics
from .plans import WEIGHTS, HandPlan, hand_plan, loop_plan, phase

MAKE = phase("make", "w.make", writes=("value",))
TAKE = phase("take", "w.take", ["make"], reads=("value",))


def go(plan: HandPlan, run_dir: Path, out: io.StringIO | None = None, **bodies: Any) -> Result:
    return run(plan, {"w": Worker(Tape(), **bodies)}, run_dir=run_dir, out=out or io.StringIO())


def message(result: Result) -> str:
    assert result.failure is not None
    return result.failure.message


def test_a_value_goes_from_its_writer_to_its_readers_by_name(tmp_path: Path) -> None:
    seen: list[Any] = []
    result = go(
        hand_plan((MAKE, TAKE), steps=2),
        tmp_path,
        make=lambda ctx: {"value": ctx.step},
        take=lambda ctx, value: seen.append(value),
    )
    assert (result.status, sorted(seen)) == ("completed", [0, 1])


def test_a_value_made_ahead_reaches_the_step_that_it_was_made_for(tmp_path: Path) -> None:
    seen: list[tuple[int, Any]] = []

    def step(k: int) -> tuple[Any, ...]:
        ahead = (phase("make", "w.make", writes=("value",), ahead=1),) if k < 2 else ()
        return (*ahead, phase("take", "w.take", ["make@previous"], reads=("value",)))

    first = phase("make", "w.make", for_step=0, writes=("value",))
    plan = hand_plan(step, steps=3, begin=(first,))
    result = go(
        plan, tmp_path, make=lambda ctx: {"value": ctx.step}, take=lambda ctx, value: seen.append((ctx.step, value))
    )
    assert (result.status, sorted(seen)) == ("completed", [(0, 0), (1, 1), (2, 2)])


def test_a_value_is_released_when_its_last_reader_is_done(tmp_path: Path) -> None:
    import gc
    import weakref

    class Big(list[int]):
        """Lists take no weak references; their children do."""

    alive: list[weakref.ref[Big]] = []
    seen: list[bool] = []

    def make(ctx: Any) -> dict[str, Any]:
        big = Big([1])
        alive.append(weakref.ref(big))
        return {"value": big}

    def after(ctx: Any) -> None:
        gc.collect()
        seen.append(alive[0]() is None)

    def take(ctx: Any, value: Big) -> None:
        seen.append(alive[0]() is not None)

    again = phase("again", "w.take", ["take"], reads=("value",))
    idle = phase("idle", "w.idle", ["again"])
    last = phase("last", "w.after", ["idle"])
    go(
        hand_plan((MAKE, TAKE, again, idle, last)),
        tmp_path,
        make=make,
        take=take,
        idle=lambda ctx: time.sleep(0.05),
        after=after,
    )
    assert seen == [True, True, True]


def test_an_updated_value_replaces_the_old_one(tmp_path: Path) -> None:
    seen: list[Any] = []
    update = phase("more", "w.more", ["make"], updates=("value",))
    late = phase("take", "w.take", ["more"], reads=("value",))
    go(
        hand_plan((MAKE, update, late)),
        tmp_path,
        make=lambda ctx: {"value": 1},
        more=lambda ctx, value: {"value": value + 1},
        take=lambda ctx, value: seen.append(value),
    )
    assert seen == [2]


def test_a_key_that_was_not_declared_is_an_error_that_names_it(tmp_path: Path) -> None:
    result = go(hand_plan((MAKE,)), tmp_path, make=lambda ctx: {"valeu": 1})
    assert result.exit_code == 1
    assert message(result) == "make: returned 'valeu', which it does not declare to write, did you mean 'value'?"


def test_a_declared_value_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert message(go(hand_plan((MAKE,)), tmp_path, make=lambda ctx: None)).startswith(
        "make: declares that it writes value"
    )


def test_what_a_body_says_of_a_sink_is_recorded(tmp_path: Path) -> None:
    judge = phase("judge", "w.judge", writes=("scores",))
    go(hand_plan((judge,), resources=WEIGHTS), tmp_path, judge=lambda ctx: {"scores": {"mean": 0.5}})
    assert [e["sinks"] for e in events(tmp_path, "end")] == [{"scores": {"mean": 0.5}}]


def test_what_is_logged_is_in_the_metrics_of_the_step_it_works_for(tmp_path: Path) -> None:
    plan = hand_plan(lambda k: (phase("a", "w.a", ahead=1),) if k == 0 else (phase("b", "w.b"),), steps=2)
    go(plan, tmp_path, a=lambda ctx: ctx.log(**{"x/y": 1.5}), b=lambda ctx: None)
    first, second = metrics(tmp_path)
    assert "x/y" not in first
    assert second["x/y"] == 1.5
    assert first["timing_s/a"] >= 0


def test_seeds_differ_by_phase_and_step_and_not_by_run(tmp_path: Path) -> None:
    def seeds(seed: int, folder: str) -> list[int]:
        found: list[int] = []
        plan = hand_plan((phase("a", "w.a"), phase("b", "w.a", ["a"])), steps=2)
        run(
            plan,
            {"w": Worker(Tape(), a=lambda ctx: found.append(ctx.seed))},
            run_dir=tmp_path / folder,
            seed=seed,
            out=io.StringIO(),
        )
        return sorted(found)

    assert seeds(0, "a") == seeds(0, "b")
    assert len(set(seeds(0, "c"))) == 4
    assert not set(seeds(0, "d")) & set(seeds(1, "e"))


def test_the_first_error_ends_the_run_and_says_where_it_was(tmp_path: Path) -> None:
    def bad(ctx: Any) -> None:
        if ctx.step == 1:
            raise ValueError("loss is nan")

    out = io.StringIO()
    plan = hand_plan(
        (phase("make", "w.make", ["late@previous"]), phase("bad", "w.bad", ["make"]), phase("late", "w.make", ["bad"])),
        steps=3,
    )
    result = go(plan, tmp_path, out, make=lambda ctx: None, bad=bad)
    assert (result.status, result.exit_code, result.steps) == ("failed", 1, 1)
    assert result.failure is not None
    assert (result.failure.phase, result.failure.step) == ("bad", 1)
    assert [name for name, _ in result.failure.before] == ["bad", "late", "make"]
    text = out.getvalue()
    assert "FAILED  bad in step 2/3: ValueError: loss is nan" in text
    assert "safe     nothing was saved" in text
    assert f"go on    stepgraph run run.dir={tmp_path} resume=auto" in text
    assert "late" not in [e["phase"] for e in events(tmp_path, "start") if e["step"] == 1]
    assert (
        "ValueError: loss is nan" in next(e for e in events(tmp_path, "end") if e["outcome"] == "failed")["traceback"]
    )


def test_running_phases_are_waited_for_and_the_first_error_wins(tmp_path: Path) -> None:
    tape = Tape()

    def late(ctx: Any) -> None:
        time.sleep(0.05)
        raise ValueError("second")

    def early(ctx: Any) -> None:
        raise ValueError("first")

    worker = Worker(tape, early=early, late=late)
    plan = hand_plan((phase("late", "w.late"), phase("early", "w.early")))
    result = run(plan, {"w": worker}, run_dir=tmp_path, out=io.StringIO())
    assert message(result) == "ValueError: first"
    assert ("end", "late", 0) in tape.marks


def boom(ctx: Any, **_: Any) -> None:
    raise ValueError("boom")


def test_an_optional_phase_that_fails_is_owed_and_the_run_goes_on(tmp_path: Path) -> None:
    out = io.StringIO()
    plan = hand_plan((phase("audit", "w.audit", on_error="warn"), phase("b", "w.b", ["audit"])))
    result = go(plan, tmp_path, out, audit=boom, b=lambda ctx: None)
    assert (result.status, result.exit_code, result.owed) == ("completed_with_warnings", 0, ("audit in step 1/1",))
    assert "owed: audit in step 1/1" in out.getvalue()


def test_whoever_reads_what_an_optional_phase_owes_fails_and_says_so(tmp_path: Path) -> None:
    optional = phase("make", "w.make", writes=("value",), on_error="warn")
    result = go(hand_plan((optional, TAKE)), tmp_path, make=boom, take=lambda ctx, value: None)
    assert message(result) == "take: reads value of make, which failed"


def test_a_handoff_that_only_an_optional_phase_wants_may_fail_when_all_else_is_done(tmp_path: Path) -> None:
    sync = phase("sync", "w.sync", ["train"], moves={"kv": "host"}, why="feeds:judge")
    judge = phase("judge", "w.judge", ["sync"], needs={"kv": "host"}, on_error="warn")
    plan = hand_plan((phase("train", "w.train"), sync, judge), steps=1, resources=WEIGHTS)
    result = go(plan, tmp_path, train=lambda ctx: None, sync=lambda ctx, moves: boom(ctx), judge=lambda ctx: None)
    assert (result.status, result.owed) == ("completed_with_warnings", ("sync in step 1/1", "judge in step 1/1"))
    train = phase("train", "w.train", ["judge@previous"])
    early = hand_plan((train, sync, judge), steps=2, resources=WEIGHTS)
    bodies = {"train": lambda ctx: None, "sync": lambda ctx, moves: boom(ctx), "judge": lambda ctx: None}
    assert go(early, tmp_path / "early", **bodies).status == "failed"


def test_a_phase_is_tried_again_and_gets_its_prompts_again(tmp_path: Path) -> None:
    tries: list[int] = []
    data = Data()

    def generate(ctx: Any, prompts: Any) -> dict[str, Any]:
        tries.append(prompts.take()[0].index)
        if len(tries) == 1:
            raise OSError("no route")
        return {"rollouts": []}

    take = phase("generate", "w.generate", updates=("prompts",), writes=("rollouts",), retries=1)
    parts = {"w": Worker(Tape(), generate=generate), "data": data}
    assert run(hand_plan((take,), resources=WEIGHTS), parts, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    assert (tries, data.one.cursor) == ([0, 0], 1)
    assert [e["attempt"] for e in events(tmp_path, "retry")] == [1]


def test_retries_that_run_out_are_a_failure(tmp_path: Path) -> None:
    tries: list[int] = []

    def bad(ctx: Any) -> None:
        tries.append(ctx.attempt)
        raise ValueError("no")

    assert go(hand_plan((phase("a", "w.a", retries=2),)), tmp_path, a=bad).status == "failed"
    assert tries == [0, 1, 2]


def test_a_phase_that_takes_too_long_fails_and_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    result = go(hand_plan((phase("a", "w.a", timeout_s=0.05, retries=3),)), tmp_path, a=lambda ctx: time.sleep(1.5))
    assert time.monotonic() - began < 1.0
    assert message(result).endswith("took longer than its timeout_s of 0.05 s; its call is left behind")


def test_a_phase_whose_needs_do_not_hold_is_refused_before_it_is_called(tmp_path: Path) -> None:
    called: list[str] = []
    needy = phase("generate", "w.generate", needs={"kv": "host", "engine": "!host"})
    result = go(hand_plan((needy,), resources=WEIGHTS), tmp_path, generate=lambda ctx: called.append("x"))
    assert message(result) == "generate: needs kv at host, but it is at device"
    assert not called


def test_an_engine_that_lies_about_its_sync_is_caught_with_both_numbers(tmp_path: Path) -> None:
    parts = loop_parts() | {"engine": Engine(lie=3)}
    result = run(loop_plan(2), parts, run_dir=tmp_path, out=io.StringIO())
    assert message(result) == "sync: engine says that engine holds version 3, but it should hold 0"


def test_a_trainer_that_did_not_update_is_caught(tmp_path: Path) -> None:
    parts = loop_parts()
    parts["trainer"].train = lambda ctx, rollouts: None
    result = run(loop_plan(2), parts, run_dir=tmp_path, out=io.StringIO())
    assert message(result) == "train: trainer says that policy holds version 0, but it should hold 1"


def test_rollouts_of_another_version_are_caught_with_both_numbers(tmp_path: Path) -> None:
    parts = loop_parts()
    engine = parts["engine"]
    honest = engine.sync

    def stale(ctx: Any, weights: Any) -> None:
        honest(ctx, weights)
        engine.version = lambda resource, told=engine.held: told
        engine.held = 0

    engine.sync = stale
    result = run(loop_plan(2), parts, run_dir=tmp_path, out=io.StringIO())
    assert message(result) == "generate: a rollout says that version 0 made it, but it read engine version 1"


def test_versions_and_staleness_are_recorded(tmp_path: Path) -> None:
    assert run(loop_plan(2), loop_parts(), run_dir=tmp_path, out=io.StringIO()).status == "completed"
    read = [(e["versions_read"], e["for_step"]) for e in events(tmp_path, "end") if e["phase"] == "generate"]
    assert read == [({"engine": 0}, 0), ({"engine": 1}, 1)]
    assert [m["staleness"] for m in metrics(tmp_path) if m["step"] is not None] == [0, 0]


def test_an_offload_that_frees_too_little_is_a_warning(tmp_path: Path) -> None:
    out = io.StringIO()
    sized = (Resource("engine", "weights", of="engine", at="device", size=2.0),)
    plan = hand_plan((phase("offload", "engine.offload", moves={"engine": "host"}),), resources=sized)
    result = run(plan, {"engine": Engine()}, run_dir=tmp_path, out=out)
    assert result.status == "completed"
    assert result.warnings == ("offload: freed 1 GiB of engine, but its declared size is 2 GiB",)
    assert "warning: offload: freed 1 GiB" in out.getvalue()
    assert next(events(tmp_path, "end"))["bytes"] == {"engine": 2**30}


def test_bytes_of_what_was_not_moved_are_refused(tmp_path: Path) -> None:
    plan = hand_plan((phase("offload", "w.off", moves={"engine": "host"}),), resources=WEIGHTS)
    assert "'kv', which it was not asked to move" in message(go(plan, tmp_path, off=lambda ctx, moves: {"kv": 1}))


def test_a_missing_component_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="take: no component 'wroker', did you mean 'worker'"):
        run(hand_plan((phase("take", "wroker.do"),)), {"worker": Worker(Tape())}, run_dir=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_missing_method_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"component trainer \(Trainer\) has no method 'trian', did you mean 'train'"):
        bind(hand_plan((phase("train", "trainer.trian"),)), {"trainer": Trainer()})


def test_a_source_without_weights_is_refused() -> None:
    plan = hand_plan((phase("sync", "engine.sync", copies={"engine": "policy"}),), resources=WEIGHTS)
    with pytest.raises(
        ConfigError, match="sync: copies from policy, but its component trainer has no method 'weights'"
    ):
        bind(plan, {"engine": Engine(), "trainer": Engine()})


def test_a_stream_that_nobody_has_is_refused() -> None:
    plan = hand_plan((phase("generate", "engine.generate", updates=("prompts",)),), resources=WEIGHTS)
    with pytest.raises(ConfigError, match="takes from prompts, but component 'data'"):
        bind(plan, {"engine": Engine()})


@pytest.mark.parametrize("use", ["os.path.basename", "os.path:basename"])
def test_a_dotted_path_is_imported(use: str) -> None:
    import os

    assert bind(hand_plan((phase("a", use, options={"p": "x"}),)), {}).bodies[use].body is os.path.basename


def test_a_function_in_a_file_gets_what_it_declares_and_the_context_where_it_asks(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def plain(value):\n    return {'twice': 2 * value}\n\ndef told(ctx, twice):\n    ctx.log(twice=twice)\n"
    )
    plan = hand_plan(
        (
            MAKE,
            phase("plain", f"{file}:plain", ["make"], reads=("value",), writes=("twice",)),
            phase("told", f"{file}:told", ["plain"], reads=("twice",)),
        )
    )
    assert go(plan, tmp_path / "run", make=lambda ctx: {"value": 4}).status == "completed"
    assert metrics(tmp_path / "run")[0]["twice"] == 8


def test_hooks_are_resolved_and_options_are_given(tmp_path: Path) -> None:
    seen: list[Any] = []
    plan = hand_plan((phase("a", "w.a", hooks={"reward": "os.path:join"}, options={"deep": 3}),))
    go(plan, tmp_path, a=lambda ctx, deep: seen.append((ctx.hooks["reward"]("x", "y"), deep)))
    assert seen == [("x/y", 3)]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_package.x", "no module 'no_such_package'"),
        ("os.path:basenam", "os.path has no 'basenam', did you mean 'basename'"),
        ("./none.py:x", "no file 'none.py'"),
        ("bare", "nothing is called 'bare'"),
    ],
)
def test_a_target_that_cannot_be_found_says_why(target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(target, "phase")


def test_work_that_copies_gets_the_weights_where_it_asks(tmp_path: Path) -> None:
    seen: list[int] = []
    fused = phase("fused", "w.fused", reads=("policy",), copies={"engine": "policy"}, writes=("scores",))
    parts = {"w": Worker(Tape()), "trainer": Trainer(), "engine": object()}

    def body(ctx: Any, weights: Any) -> None:
        seen.append(weights["engine"].version)

    parts["w"].fused = body
    assert run(hand_plan((fused,), resources=WEIGHTS), parts, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    assert seen == [0]
