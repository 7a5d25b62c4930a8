"""Runs on Ray: the same plan gives the same run as in one process; whatever goes wrong ends in one clear message."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ray_runs import LOOP, PARTS, calls, compiled, descendants, ended, gone, looped, metrics

import stepgraph
from stepgraph.cli import main
from stepgraph.data.component import Data
from stepgraph.errors import ConfigError
from stepgraph.runtime import ray as executor
from stepgraph.runtime.bind import bind_one
from stepgraph.runtime.contract import Shared
from stepgraph.runtime.ray import named_as
from stepgraph.runtime.ray_host import surface_of
from stepgraph.runtime.ray_parcel import Packed
from stepgraph.runtime.ray_room import bundles, sharing
from stepgraph.runtime.result import Result

ray: Any = pytest.importorskip("ray", reason="needs ray: pip install 'stepgraph[ray]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all runs of this file: a run that finds one uses it, and leaves it."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=4, resources={"shelf": 1}, **quiet)
    yield
    ray.shutdown()


@pytest.fixture
def loop(cluster: None, tmp_path: Path) -> Callable[..., tuple[Result, str]]:
    """Run the small loop on Ray; returns its result and what it printed."""
    return partial(looped, tmp_path / "out")


# ---- the same run --------------------------------------------------------------------------------------------------


WORDS = ("run", "experiment=demo", "run.steps=3", "data.batch=4", "data.eval_size=4", "graph.step.eval.when.every=2")
SAME = ("phase", "step", "outcome", "versions_read", "versions_written", "cursors", "sinks", "moves", "copies")


def test_a_run_on_ray_is_the_run_in_one_process(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    for name in ("local", "ray"):
        assert main([*WORDS, f"executor={name}", f"run.dir={name}"]) == 0
    here, there = (tmp_path / name for name in ("local", "ray"))
    assert (here / "plan.json").read_text() == (there / "plan.json").read_text()
    for name in ("reward/mean", "policy/loss", "eval/reward", "staleness"):
        assert [one.get(name) for one in metrics(here)] == [one.get(name) for one in metrics(there)], name
    seen = [sorted(json.dumps({word: one.get(word) for word in SAME}) for one in ended(run)) for run in (here, there)]
    assert seen[0] == [one.replace(str(there), str(here)).replace('"ray/', '"local/') for one in seen[1]]
    model = Path("checkpoints") / "step_000002" / "model.safetensors"
    assert (here / model).read_bytes() == (there / model).read_bytes()


def test_components_are_called_in_their_own_processes_in_the_order_of_the_plan(loop: Any, tmp_path: Path) -> None:
    _, out = loop()
    noted = calls(tmp_path / "out")
    of = {name: {pid for who, _, _, pid in noted if who == name} for name in ("engine", "trainer")}
    assert {len(pids) for pids in of.values()} == {1}
    assert len({os.getpid()}.union(*of.values())) == 3
    assert [(word, step) for who, word, step, _ in noted if who == "trainer"] == [("train", k) for k in "012"]
    engine = [f"{word} {step}" for who, word, step, _ in noted if who == "engine"]
    assert engine == ["sync None", "generate 0", "sync 0", "generate 1", "sync 1", "generate 2"]
    assert "by device: engine | trainer | data" in out
    chained = ended(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "chained")
    judged = {"use": f"{PARTS}:judged", "reads": ["rollouts"], "writes": ["rewards"]}
    loop(chain=False, step={"judge": judged})
    waited = [one for one in ended(tmp_path / "out") if one["phase"] != "judge"]
    seen = [sorted(str({word: one.get(word) for word in SAME}) for one in run) for run in (chained, waited)]
    assert seen[0] == seen[1]
    steps = [one for one in metrics(tmp_path / "out") if one["step"] is not None]
    assert [(one["asked"], one["staleness"]) for one in steps] == [(0, 0), (2, 0), (4, 0)]
    judge = next(one for one in ended(tmp_path / "out") if one["phase"] == "judge")
    assert (judge["outcome"], judge["thread"]) == ("ok", "actor functions")


def test_a_run_whose_prompts_end_saves_its_last_step_and_goes_on_with_more(loop: Any, tmp_path: Path) -> None:
    result, out = loop(steps=9, data={"batches": 2})
    assert (result.status, result.steps) == ("stopped", 2)
    assert "prompts ran out: step 2 is the last one" in out
    saved = tmp_path / "out" / "checkpoints" / "step_000001"
    state = json.loads((saved / "state.json").read_text())
    assert (state["cursors"], state["versions"]["policy"], state["completed"]) == ({"prompts": 2}, 2, 2)
    assert (saved / "COMPLETE").exists()
    assert ended(tmp_path / "out")[-1]["sinks"] == {"ckpt": str(saved)}
    result, _ = loop(steps=4, first=2, resume=True)
    assert (result.status, result.first, result.steps) == ("completed", 2, 2)
    assert (tmp_path / "out" / "checkpoints" / "step_000003" / "updates.txt").read_text() == "4"
    assert [one["asked"] for one in metrics(tmp_path / "out") if one["step"] in (2, 3)] == [4, 6]


# ---- functions ----------------------------------------------------------------------------------------------------


WEIGH: dict[str, Any] = {
    "use": f"{PARTS}:weighed",
    "reads": ["rollouts", "policy"],
    "writes": ["rewards"],
    "after": "generate",
}
SHELF: dict[str, Any] = {"num_cpus": 0.5, "resources": {"shelf": 1}, "runtime_env": {"env_vars": {"TOLD": "7"}}}


def test_a_function_with_resources_of_its_own_is_a_task(loop: Any, tmp_path: Path) -> None:
    result, out = loop(step={"weigh": WEIGH}, actors={"weigh": SHELF})
    assert result.status == "completed", out
    told = [one for one in metrics(tmp_path / "out") if "shelf" in one]
    assert [(one["shelf"], one["cpus"], one["told"], one["updates"]) for one in told] == [
        (1, 0.5, 7, k) for k in range(3)
    ]
    assert not {int(one["pid"]) for one in told} & {pid for *_, pid in calls(tmp_path / "out")}
    assert {one["thread"] for one in ended(tmp_path / "out") if one["phase"] == "weigh"} == {"task weigh"}
    assert "tasks: weigh" in out
    (tmp_path / "out").rename(tmp_path / "task")
    loop(step={"weigh": WEIGH})
    seen = [
        sorted(str({word: one.get(word) for word in SAME}) for one in ended(tmp_path / run)) for run in ("task", "out")
    ]
    assert seen[0] == seen[1]


def test_a_task_that_fails_is_tried_again_and_told_with_its_node_and_log(loop: Any, tmp_path: Path) -> None:
    weigh = {**WEIGH, "options": {"fail": True}}
    result, out = loop(steps=1, step={"weigh": {**weigh, "retries": 1}}, actors={"weigh": SHELF})
    assert result.status == "completed", out
    assert [one["attempts"] for one in ended(tmp_path / "out") if one["phase"] == "weigh"] == [2]
    (tmp_path / "out").rename(tmp_path / "first")
    result, out = loop(steps=1, step={"weigh": weigh}, actors={"weigh": SHELF})
    assert "FAILED  weigh in step 1/1: ValueError: too heavy [task weigh, pid " in out
    assert f"node {ray.util.get_node_ip_address()} (" in out


def test_a_task_whose_process_ends_is_told(loop: Any) -> None:
    _, out = loop(steps=1, step={"weigh": {**WEIGH, "options": {"die": True}}}, actors={"weigh": SHELF})
    assert "FAILED  weigh in step 1/1: its task died: " in out


def test_a_task_ends_with_the_run_that_an_actor_has_left(loop: Any, tmp_path: Path) -> None:
    weigh = {**WEIGH, "reads": ["policy"], "options": {"slow": 600.0, "rollouts": []}, "writes": [], "pure": False}
    began = time.monotonic()
    _, out = loop(steps=1, step={"weigh": weigh}, actors={"weigh": SHELF}, engine={"die": 0}, grace_s=3)
    assert time.monotonic() - began < 60
    assert "FAILED  generate in step 1/1: its actor died: " in out
    assert gone(int((tmp_path / "weighing").read_text()))


@pytest.mark.parametrize(
    ("actors", "message"),
    [
        ({"weigh": {"resources": {"crane": 1}}}, r"no room .* for weigh: 1 crane: it has 0 crane \(0 free\)"),
        ({"wiegh": SHELF}, r"there is no such component, did you mean 'weigh'\?? .*phases that are functions: weigh"),
        ({"weigh": {"num_cpu": 1}}, "executor.actors.weigh: no option 'num_cpu', did you mean 'num_cpus'"),
        ({"weigh": {"count": 2}}, "executor.actors.weigh.count=2: only a component can be several actors"),
    ],
)
def test_a_task_that_cannot_be_is_refused(loop: Any, tmp_path: Path, actors: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loop(step={"weigh": WEIGH}, actors=actors, room_s=1.0)
    assert not (tmp_path / "out").exists()


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_phase_that_fails_is_told_with_its_step_actor_node_and_log(loop: Any, tmp_path: Path) -> None:
    generate = {**LOOP["step"]["generate"], "retries": 1}
    result, out = loop(step={"generate": generate}, engine={"flaky": True, "fail": 1})
    assert result.status == "failed"
    assert "FAILED  generate in step 2/3: ValueError: no more tokens [actor engine, pid " in out
    assert f"node {ray.util.get_node_ip_address()} (" in out
    log = result.failure.message.rpartition("log ")[2].rstrip("]") if result.failure else ""
    assert Path(log).is_file()
    assert {word for _, word, step, _ in calls(tmp_path / "out") if step == "1"} == {"generate"}
    assert "no more tokens" in ended(tmp_path / "out")[-1]["traceback"]
    tries = [(one["attempts"], one["cursors"]) for one in ended(tmp_path / "out") if one["phase"] == "generate"]
    assert tries == [(2, {"prompts": 1}), (2, {"prompts": 2})]  # trying again takes no prompts of its own


def test_an_actor_that_dies_ends_the_run_within_seconds_and_nothing_is_left(loop: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    _, out = loop(engine={"die": 1}, grace_s=1)
    assert time.monotonic() - began < 20
    assert "FAILED  generate in step 2/3: its actor died: " in out
    assert "[actor engine, pid " in out
    assert out.count("FAILED") == 1
    assert all(gone(pid) for *_, pid in calls(tmp_path / "out"))


def test_what_no_node_has_is_refused_after_a_time_of_our_own(loop: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no room .* within 0.5 s for engine: 64 CPU: it has 4 CPU \(4 free\)"):
        loop(actors={"engine": {"num_cpus": 64}}, room_s=0.5)
    assert not (tmp_path / "out").exists()


def test_a_component_that_cannot_be_built_ends_the_run_before_it_begins(loop: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^out of luck$"):
        loop(engine={"_target_": f"{PARTS}:Greedy"})
    assert not (tmp_path / "out").exists()


def test_a_method_that_a_component_lacks_is_told_as_in_one_process() -> None:
    far = named_as("Task")("data", None, surface_of(Data(Shared({}, {}, 0, Path()), task="digits"), "there"), "")
    with pytest.raises(ConfigError, match=r"component data \(Task\) has no method 'strem', did you mean 'stream'"):
        bind_one("generate", "data.strem", {"data": far})


@pytest.mark.parametrize(
    ("actors", "message"),
    [
        ({"enigne": {}}, "executor.actors.enigne: there is no such component, did you mean 'engine'"),
        ({"engine": {"num_cpu": 1}}, "executor.actors.engine: no option 'num_cpu', did you mean 'num_cpus'"),
    ],
)
def test_a_wrong_word_about_an_actor_is_refused(loop: Any, actors: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loop(actors=actors)


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^executor=ray needs ray: pip install 'stepgraph\[ray\]'$"):
        executor.run(compiled(LOOP, 1), config={})


def test_an_address_where_nobody_answers_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else's, and nobody answers
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"executor.address={address}: no cluster answers there"):
            executor.check_address(address)


def test_components_that_are_here_already_cannot_be_actors() -> None:
    with pytest.raises(ConfigError, match="give a config, not components"):
        executor.run(compiled(LOOP, 1), {"engine": object()})


SLOW = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from ray_runs import LOOP, PARTS, compiled
from stepgraph.runtime import ray
names = ("engine", "trainer", "data")
config = {{name: {{"_target_": f"{{PARTS}}:{{name.title()}}"}} for name in names}}
config["trainer"]["slow"] = 600.0
ray.run(compiled(LOOP, 3), config=config, run_dir=Path("out"), init={{"num_cpus": 3}})
"""


def test_a_driver_that_is_killed_takes_its_cluster_along(tmp_path: Path) -> None:
    code = SLOW.format(tests=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True) as driver:
        noted = tmp_path / "noted.txt"
        until = time.monotonic() + 90
        while (
            driver.poll() is None and time.monotonic() < until and not (noted.exists() and "train" in noted.read_text())
        ):
            time.sleep(0.1)
        pids = {pid for *_, pid in calls(tmp_path / "out")} | descendants(driver.pid)
        driver.kill()
    assert len(pids) >= 4
    assert [pid for pid in pids if not gone(pid)] == []


# ---- rooms and parcels ---------------------------------------------------------------------------------------------


def test_those_that_make_room_for_each_other_share_a_bundle() -> None:
    names, actors = (
        ["engine", "trainer", "data"],
        {"default": {"num_cpus": 0}, "engine": {"num_cpus": 2, "num_gpus": 1}},
    )
    actors["trainer"] = {"num_cpus": 1, "num_gpus": 1, "memory": 100}
    together = stepgraph.load("grpo", ["placement=colocated"])
    assert sharing(together, names) == [("engine", "trainer"), ("data",)]
    assert sharing(stepgraph.load("grpo", ["placement=kv_only"]), names) == [("engine", "trainer"), ("data",)]
    assert sharing(stepgraph.load("grpo", ["placement=split"]), names) == [("engine",), ("trainer",), ("data",)]
    shared, alone = bundles(together, names, actors)
    assert shared.whole == {"CPU": 2, "GPU": 1, "memory": 100}
    assert shared.shares["engine"] == {"CPU": 1, "GPU": 0.5, "memory": 0}
    assert shared.shares["trainer"] == {"CPU": 1, "GPU": 0.5, "memory": 100}
    assert alone.whole == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3, 2), (), (0, 4)])
def test_a_tensor_that_was_packed_is_the_same_tensor(dtype: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.rand(shape).mul(7).to(getattr(torch, dtype))
    found = Packed.of(tensor.t() if len(shape) == 2 else tensor).tensor()
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor.t() if len(shape) == 2 else tensor)


def test_weights_reach_a_receiver_without_a_copy(cluster: None) -> None:
    torch = pytest.importorskip("torch")
    ref = ray.put(Packed.of(torch.arange(1 << 18, dtype=torch.float32)))
    one, other = ray.get(ref).tensor(), ray.get(ref).tensor()
    assert one.data_ptr() == other.data_ptr()
    assert torch.equal(one, torch.arange(1 << 18, dtype=torch.float32))
