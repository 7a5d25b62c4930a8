"""Weights between actors: whichever way they go, the run is the same, nobody reads half of two, and errors arrive."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph.cli import main
from stepgraph.errors import ConfigError
from stepgraph.runtime import ray as executor
from stepgraph.runtime.result import Result
from stepgraph.spec import parse

ray: Any = pytest.importorskip("ray", reason="needs ray: pip install 'stepgraph[ray]'")
pytest.importorskip("torch")

PARTS = Path(__file__).with_name("weights_parts.py")
LOOP: dict[str, Any] = {
    "name": "loop",
    "resources": {
        "prompts": "stream",
        "policy": {"kind": "weights", "of": "trainer", "at": "device"},
        "engine": {"kind": "weights", "of": "engine", "at": "device"},
    },
    "keep": {"policy": "any", "engine": "any"},
    "start": {"sync": None},
    "step": {
        "generate": {
            "use": "engine.generate",
            "reads": ["engine"],
            "updates": ["prompts"],
            "writes": ["rollouts"],
            "ahead": 1,
        },
        "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"use": "engine.sync", "copies": {"engine": "policy"}},
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two nodes: one with CPUs, and one called west."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    head = {"num_cpus": 4, "include_dashboard": False}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=0, resources={"west": 1})
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    made.shutdown()


def run(tmp_path: Path, transport: str, steps: int = 4, step: Mapping[str, Any] = {}, **words: Any) -> tuple[Any, str]:
    """Run the loop on Ray; its result, and what it printed."""
    options = {name: words.pop(name, {}) for name in ("engine", "trainer", "data")}
    config: dict[str, Any] = {name: {"_target_": f"{PARTS}:{name.title()}", **own} for name, own in options.items()}
    config["transport"] = {"_target_": f"stepgraph.runtime.transport.{transport}"}
    graph = {**LOOP, "step": {**LOOP["step"], **step}}
    plan = stepgraph.compile(parse(graph, {"name": "split"}, {"steps": steps}))
    out = io.StringIO()
    words = {"actors": {"default": {"num_cpus": 1}}, **words}
    result: Result = executor.run(plan, config=config, run_dir=tmp_path / "out", out=out, **words)
    return result, out.getvalue()


def seen(tmp_path: Path) -> list[str]:
    return (tmp_path / "seen.txt").read_text().splitlines()


def test_what_the_run_learns_does_not_depend_on_the_way(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    words = ["experiment=demo", "run.steps=2", "data.batch=4", "data.eval_size=4", "placement=split"]
    found = []
    for name, executed in (("copy", "local"), ("shm", "ray"), ("object_store", "ray")):
        assert main(["run", *words, f"executor={executed}", f"transport={name}", f"run.dir={name}"]) == 0
        assert ("weights go by" in capsys.readouterr().out) == (executed == "ray")
        lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
        model = Path(name, "checkpoints", "step_000001", "model.safetensors").read_bytes()
        found.append(([(one.get("reward/mean"), one.get("policy/loss")) for one in lines], model))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("transport", ["Shm", "ObjectStore"])
def test_a_receiver_that_is_slow_reads_one_version_whole_while_the_next_is_made(
    cluster: None, tmp_path: Path, transport: str
) -> None:
    result, out = run(tmp_path, transport, steps=6, engine={"slow": 0.2})
    assert result.status == "completed"
    assert out.count("weights go by") == 1
    versions = (0, 1, 2, 3, 4, 6)  # the last rollout is made in the step before the last: nobody wants version 5
    assert seen(tmp_path) == [f"{version} [{version:.1f}]" for version in versions]


def test_weights_that_a_receiver_keeps_are_not_overwritten(cluster: None, tmp_path: Path) -> None:
    result, _ = run(tmp_path, "Shm", steps=5, engine={"keep": True})
    assert result.status == "failed"
    assert "are all still being read: a receiver must copy what it is given" in result.failure.message
    assert seen(tmp_path) == [f"{version} [{version:.1f}]" for version in range(4)]


@pytest.mark.parametrize("transport", ["Shm", "ObjectStore"])
def test_an_error_of_the_sender_reaches_the_receiver_s_phase(cluster: None, tmp_path: Path, transport: str) -> None:
    result, out = run(tmp_path, transport, trainer={"fail": 2})
    assert "FAILED  sync in step 2/4: ValueError: the link is down [actor trainer, pid " in out
    assert seen(tmp_path) == ["0 [0.0]", "1 [1.0]"]
    assert result.status == "failed"


def test_an_engine_whose_sync_failed_half_way_refuses_to_generate(cluster: None, tmp_path: Path) -> None:
    step = {"generate": {**LOOP["step"]["generate"], "ahead": 0}}
    step["sync"] = {**LOOP["step"]["sync"], "on_error": "warn"}
    result, out = run(tmp_path, "Shm", step=step, engine={"fail": 2})
    (warning,) = result.warnings
    assert warning.startswith("sync in step 2/4 failed and is optional: RunError: ValueError: the disk is full [actor")
    assert "FAILED  generate in step 3/4: RuntimeError: before any sync" in out


def test_what_cannot_work_on_ray_is_refused_before_ray_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(executor.RayCrew, "_connect")
    with pytest.raises(ConfigError, match="transport=copy is within one process, but trainer and engine have each"):
        run(tmp_path, "Copy")


def test_between_nodes_auto_takes_the_object_store_and_shared_memory_is_refused(cluster: None, tmp_path: Path) -> None:
    actors = {"engine": {"num_cpus": 0, "resources": {"west": 1}}, "trainer": {"num_cpus": 1}}
    node = r"\(node [\d.]+, [0-9a-f]{8}\)"
    with pytest.raises(ConfigError, match=rf"transport=shm .* but trainer {node} and engine {node} are on several"):
        run(tmp_path, "Shm", actors=actors)
    assert not (tmp_path / "out").exists()
    result, out = run(tmp_path, "Auto", steps=3, actors=actors)
    assert result.status == "completed"
    assert "weights go by object_store" in out
    assert seen(tmp_path) == ["0 [0.0]", "1 [1.0]", "3 [3.0]"]


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_transport import run
run(Path.cwd(), "Shm", engine={{"slow": 600.0}}, init={{"num_cpus": 4}})
"""


def who_maps(name: str) -> set[int]:
    """The processes that have this memory."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has just ended
            found |= {int(maps.parent.name)} if name in maps.read_text() else set()
    return found


def until(happens: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.2)
    return happens()


def test_a_driver_that_is_killed_in_a_sync_leaves_no_shared_memory_behind(tmp_path: Path) -> None:
    code, before = KILLED.format(tests=str(Path(__file__).parent)), who_maps("memfd:stepgraph-weights")
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True) as driver:
        both = until(lambda: len(who_maps("memfd:stepgraph-weights") - before) == 2, 120)
        theirs = who_maps("memfd:stepgraph-weights") - before
        driver.kill()
    assert both, "sender and receiver should both have the memory"
    assert until(lambda: not theirs & who_maps("memfd:stepgraph-weights"), 20)
