"""Components of several actors: the run is that of one, each does its part, and whoever fails is who is told of."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ray_runs import LOOP, PARTS, calls, ended, gone, looped, metrics

import stepgraph
from stepgraph.cli import main
from stepgraph.errors import ConfigError
from stepgraph.runtime.ray_room import bundles
from stepgraph.runtime.result import Result

ray: Any = pytest.importorskip("ray", reason="needs ray: pip install 'stepgraph[ray]'")

BOTH = {"engine": {"count": 2}, "trainer": {"count": 2}}
PARKED: dict[str, Any] = {
    "reload": {"use": "trainer.reload", "moves": {"policy": "device"}, "before": "train"},
    "offload": {"use": "trainer.offload", "moves": {"policy": "host"}},
}
SAME = ("phase", "step", "outcome", "versions_read", "versions_written", "cursors", "sinks", "moves", "copies")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all runs of this file."""
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def loop(cluster: None, tmp_path: Path) -> Callable[..., tuple[Result, str]]:
    """Run the small loop with components that can be several, of which there are two each."""
    usual = {"classes": {"engine": "Fleet", "trainer": "Ranks"}, "data": {"size": 5}, "actors": BOTH}
    return lambda out="out", **words: looped(tmp_path / out, **{**usual, "grace_s": 2.0, **words})


def seen(run_dir: Path) -> list[str]:
    return sorted(
        json.dumps({word: one.get(word) for word in SAME}).replace(str(run_dir), "") for one in ended(run_dir)
    )


# ---- the run of one ------------------------------------------------------------------------------------------------


def test_two_of_each_do_what_one_does(loop: Any, tmp_path: Path) -> None:
    judge = {"judge": {"use": f"{PARTS}:judged", "reads": ["rollouts"], "writes": ["rewards"]}}
    keep = {"policy": "host"}
    loop("one", actors={}, step={**judge, **PARKED}, keep=keep)
    result, out = loop("two", step={**judge, **PARKED}, keep=keep)
    assert result.status == "completed", out
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "plan.json").read_text() == (two / "plan.json").read_text()
    assert seen(one) == seen(two)
    assert [(m["first"], m["count"]) for m in metrics(two) if "first" in m] == [(0, 5), (5, 5), (10, 5)]
    assert [m["share"] for m in metrics(two) if "share" in m] == [2.5, 2.5, 2.5]
    assert [e["bytes"] for e in ended(two) if e["phase"] == "offload"] == [{"policy": 1 << 20}]
    assert "engine/0 | engine/1 | trainer/0 | trainer/1 | data" in out
    noted = calls(two)
    assert len({pid for who, *_, pid in noted if "/" in who}) >= 4
    assert sorted(file.name for file in (two / "checkpoints" / "step_000002").glob("updates*")) == [
        "updates-0.txt",
        "updates-1.txt",
    ]


def test_all_of_a_group_load_what_all_of_it_saved(loop: Any, tmp_path: Path) -> None:
    loop(steps=2)
    result, out = loop(steps=3, first=2, resume=True)
    assert (result.status, result.steps) == ("completed", 1), out
    saved = tmp_path / "out" / "checkpoints" / "step_000002"
    assert [(saved / f"updates-{rank}.txt").read_text() for rank in (0, 1)] == ["3", "3"]


def test_prompts_of_a_batch_that_was_tried_twice_are_taken_once(loop: Any, tmp_path: Path) -> None:
    generate = {**LOOP["step"]["generate"], "retries": 1}
    result, out = loop(step={"generate": generate}, engine={"flaky": 1})
    assert result.status == "completed", out
    tries = [(one["attempts"], one["cursors"]) for one in ended(tmp_path / "out") if one["phase"] == "generate"]
    assert tries == [(2, {"prompts": 1}), (2, {"prompts": 2}), (2, {"prompts": 3})]
    assert [m["count"] for m in metrics(tmp_path / "out") if "count" in m] == [5, 5, 5]


def test_members_that_take_different_numbers_of_batches_are_told_apart(loop: Any) -> None:
    _, out = loop(engine={"odd": True})
    assert "its actors took different numbers of batches (rank 0: {'prompts': 1}; rank 1: {'prompts': 2})" in out


@pytest.mark.torch
def test_two_torch_engines_share_a_batch(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    taken = "graph.step.look={use: ./look.py:look, reads: [rollouts]}"
    (tmp_path / "look.py").write_text(
        "def look(ctx, rollouts):\n"
        "    ctx.log(order=float([r.prompt.index for r in rollouts] == sorted(r.prompt.index for r in rollouts)),\n"
        "            first=float(rollouts[0].prompt.index), count=float(len(rollouts)),\n"
        "            different=float(len({r.logprobs for r in rollouts})))\n"
    )
    words = ["run", "experiment=demo", "run.steps=2", "data.batch=5", "executor=ray", "run.dir=out", taken]
    assert main([*words, "executor.actors.engine.count=2"]) == 0
    told = [one for one in metrics(tmp_path / "out") if "order" in one]
    group = told[0]["count"] / 5
    assert [(one["order"], one["first"], one["count"]) for one in told] == [(1, 0, 5 * group), (1, 5, 5 * group)]
    assert all(one["staleness"] == 0 and one["different"] > 1 for one in told)


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_member_that_dies_while_the_others_work_with_it_ends_the_run(loop: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    result, out = loop(trainer={"die": 1})
    assert time.monotonic() - began < 25
    assert result.status == "failed"
    assert "FAILED  train in step 2/3: its actor died: " in out
    assert "[actor trainer, rank 1, pid " in out
    assert ", node " in out
    assert out.count("FAILED") == 1
    assert "closed by peer" not in out
    assert all(gone(pid) for *_, pid in calls(tmp_path / "out"))


def test_a_member_that_fails_is_told_and_not_those_that_wait_for_it(loop: Any, tmp_path: Path) -> None:
    result, out = loop(trainer={"fail": 1})
    assert result.status == "failed"
    assert (
        "FAILED  train in step 2/3: ValueError: a share that cannot be trained on [actor trainer, rank 1, pid " in out
    )
    assert all(gone(pid) for *_, pid in calls(tmp_path / "out"))


def test_a_member_that_cannot_give_its_weights_ends_the_sync_that_waits_for_them(loop: Any) -> None:
    result, out = loop(trainer={"export": 1})
    assert result.status == "failed"
    assert "FAILED  sync in step 1/3: ValueError: a weight that is lost [actor trainer, rank 1, pid " in out


def test_more_actors_than_the_cluster_has_room_for_are_refused(loop: Any, tmp_path: Path) -> None:
    actors = {**BOTH, "trainer": {"count": 3, "num_cpus": 2}}
    with pytest.raises(
        ConfigError, match=r"no room .* for trainer/0: 2 CPU; trainer/1: 2 CPU; trainer/2: 2 CPU: it has 4"
    ):
        loop(actors=actors, room_s=0.5)
    assert not (tmp_path / "out").exists()


RETRIED = {"train": {**LOOP["step"]["train"], "retries": 1}}
FILTERED = {"generate": {**LOOP["step"]["generate"], "hooks": {"filter": f"{PARTS}:judged"}}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"classes": {}},
            r"engine: Engine does not know that it can be one of several: .* set executor.actors.engine.count=1",
        ),
        ({"actors": {"data": {"count": 2}}}, "data: Data does not know that it can be one of several"),
        ({"actors": {"functions": {"count": 2}}}, "executor.actors.functions.count=2: only a component can be several"),
        ({"actors": {"engine": {"count": 0}}}, "executor.actors.engine.count=0: give a whole number from 1"),
        ({"actors": {"default": {"count": 2}}}, "executor.actors.default.count=2: only a component can be several"),
        ({"actors": {"engine": {"cuont": 2}}}, "executor.actors.engine: no option 'cuont', did you mean 'count'"),
        ({"step": RETRIED}, "train: has retries, but one actor that tries again alone would wait for the others"),
        ({"step": FILTERED}, r"generate.hooks.filter: needs the whole batch, .* set executor.actors.engine.count=1"),
    ],
)
def test_what_cannot_be_several_is_refused_before_anything_starts(
    loop: Any, tmp_path: Path, words: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        loop(**words)
    assert not (tmp_path / "out").exists()


# ---- rooms ---------------------------------------------------------------------------------------------------------


def test_the_members_of_those_that_share_devices_go_into_bundles_by_rank() -> None:
    actors = {"engine": {"num_gpus": 1, "count": 2}, "trainer": {"num_gpus": 1, "count": 3, "num_cpus": 1}}
    found = bundles(stepgraph.load("grpo", ["placement=colocated"]), ["engine", "trainer", "data"], actors)
    assert [bundle.names for bundle in found] == [
        ("engine/0", "trainer/0"),
        ("engine/1", "trainer/1"),
        ("trainer/2",),
        ("data",),
    ]
    assert [bundle.whole for bundle in found[1:3]] == [{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}]
    assert found[1].shares["engine/1"] == {"CPU": 0.5, "GPU": 0.5}
    assert found[2].shares["trainer/2"] == {"CPU": 1, "GPU": 1}
