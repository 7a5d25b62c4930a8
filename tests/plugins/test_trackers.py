"""Trackers get every line of numbers, beside the run: none slows it, fails it, or misses its end."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import ConfigError
from stepgraph.runtime import tracking
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run
from stepgraph.runtime.tracking import Tracked, tracker_of
from stepgraph.testing import plan_of

from .conftest import Install, Type

GRAPH = {"name": "counted", "step": {"count": {"use": "counter.count"}}}
TRACKER = """
import json
from pathlib import Path

class Lines:
    def __init__(self, *, mark="-"):
        self.mark = mark

    def start(self, run_dir, config):
        self.file = (Path(run_dir) / "lines").open("a")
        self.told("start", config["run"]["first"], config["run"]["steps"])

    def log(self, step, metrics):
        self.told("log", step, metrics.get("count"))

    def finish(self, status):
        self.told("finish", status, self.mark)
        self.file.close()

    def told(self, *words):
        print(json.dumps(words), file=self.file, flush=True)
"""
COUNT = "def count(ctx):\n    ctx.log(count=ctx.step)\ndef fail(ctx):\n    raise ValueError('cheese')\n"
MINE = "name: mine\nstep:\n  count: {use: './count.py:count'}\n"


class Notes:
    """Writes down what it is told, and on which thread."""

    def __init__(self, **bodies: Callable[..., Any]) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self._bodies = bodies

    def _say(self, word: str, *given: Any) -> None:
        self.told.append((word, *given))
        self.threads.add(threading.current_thread().name)
        self._bodies.get(word, lambda *_: None)(*given)

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._say("start", run_dir, config)

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        self._say("log", step, metrics)

    def finish(self, status: str) -> None:
        self._say("finish", status)


class Counter:
    def __init__(self, body: Callable[..., Any]) -> None:
        self.count = body


def counted(folder: Path, tracker: Any, body: Callable[..., Any] | None = None, **more: Any) -> Result:
    plan = plan_of(GRAPH, steps=3)
    parts = {"counter": Counter(body or (lambda ctx: ctx.log(count=ctx.step)))}
    return run(plan, parts, run_dir=folder, tracker=tracker, out=more.pop("out", io.StringIO()), signals=False, **more)


def raises(*_: Any) -> None:
    raise OSError("no\nnetwork")


def warnings(folder: Path) -> list[str]:
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [line["text"] for line in lines if line["event"] == "warning"]


def test_a_tracker_gets_what_metrics_jsonl_gets_on_a_thread_of_its_own(tmp_path: Path) -> None:
    notes = Notes()
    assert counted(tmp_path / "run", notes, config={"run": {"seed": 7}}).status == "completed"
    assert notes.told[0] == ("start", tmp_path / "run", {"run": {"seed": 7, "first": 0, "steps": 3}})
    assert notes.told[-1] == ("finish", "completed")
    written = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [{"step": step, **metrics} for _, step, metrics in notes.told[1:-1]] == written
    assert notes.threads == {"tracker"}


@pytest.mark.parametrize("word", ["start", "log", "finish"])
def test_a_tracker_that_fails_is_warned_of_once_and_the_run_goes_on(tmp_path: Path, word: str) -> None:
    out, notes = io.StringIO(), Notes(**{word: raises})
    done = counted(tmp_path / "run", notes, out=out)
    told = f"the tracker's {word} failed, the run goes on: OSError: no network"
    assert (done.status, done.warnings) == ("completed", (told,))
    assert warnings(tmp_path / "run") == [told]
    assert out.getvalue().count("warning: ") == 1
    asked = [one[0] for one in notes.told]
    assert asked == (["start"] if word == "start" else ["start", "log", "log", "log", "finish"])


def test_a_slow_tracker_does_not_slow_the_run(tmp_path: Path) -> None:
    notes = Notes(log=lambda *_: time.sleep(0.3))
    ended = []
    done = counted(tmp_path / "run", notes, watch=lambda event: ended.append((event["event"], time.monotonic())))
    steps = [at for word, at in ended if word == "step"]
    assert steps[-1] - steps[0] < 0.3
    assert (len(notes.told), done.warnings) == (5, ())


def test_a_tracker_that_hangs_is_left_behind_and_lines_that_find_no_room_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "ROOM", 2)
    release, said = threading.Event(), list[str]()
    hanging = Tracked(Notes(start=lambda *_: release.wait(10)))
    hanging.start(tmp_path, said.append)
    for step in range(5):
        hanging.log(step, {})
    hanging.finish("completed", patience=0.05)
    release.set()
    assert said == ["the tracker is not done 0.05 s after the run: its last lines may be missing"]

    gate, heard = threading.Event(), list[str]()
    notes = Notes(start=lambda *_: gate.wait(10))
    slow = Tracked(notes)
    slow.start(tmp_path, heard.append)
    while not notes.told:
        time.sleep(0.001)
    for step in range(5):
        slow.log(step, {})
    gate.set()
    slow.finish("completed")
    assert [one[1] for one in notes.told if one[0] == "log"] == [0, 1]
    assert heard == ["the tracker was too slow: 3 lines are only in metrics.jsonl"]


def test_a_tracker_hears_of_every_end(tmp_path: Path) -> None:
    failing, broken = Notes(), Notes()
    assert counted(tmp_path / "failed", failing, lambda ctx: 1 / 0).status == "failed"
    assert failing.told[-1] == ("finish", "failed")

    def watch(event: Mapping[str, Any]) -> None:
        if event["event"] == "step":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        counted(tmp_path / "broken", broken, watch=watch)
    assert broken.told[-1] == ("finish", "failed")


KILLED = f"""
import sys, time
{TRACKER}
from stepgraph.runtime.run import run
from stepgraph.testing import plan_of

class Counter:
    def count(self, ctx):
        print("working", flush=True)
        time.sleep(30)

run(plan_of({GRAPH!r}), {{"counter": Counter()}}, run_dir=sys.argv[1], tracker=Lines())
"""


def test_a_tracker_hears_of_a_second_signal_too(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        wait_for(process.stdout, "working")
        os.kill(process.pid, signal.SIGINT)
        wait_for(process.stdout, "second signal")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
    told = [json.loads(line) for line in (tmp_path / "run" / "lines").read_text().splitlines()]
    assert told == [["start", 0, 20], ["finish", "killed", "-"]]


def wait_for(lines: Any, text: str) -> None:
    assert any(text in line for line in iter(lines.readline, ""))


# ---- by name -------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, typed: Type) -> tuple[str, ...]:
    """The words of a run of one function, in an empty folder."""
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "mine.yaml").write_text(MINE)
    (tmp_path / "count.py").write_text(COUNT)
    return "run", "graph=mine", "placement=null", "run.steps=2", "run.dir=out"


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "lines").read_text().splitlines()]


def test_a_tracker_of_a_package_is_chosen_by_its_name(
    tmp_path: Path, install: Install, typed: Type, mine: tuple[str, ...]
) -> None:
    install("lines", "1.0", "[stepgraph.trackers]\nlines = lines_tracker:Lines\n", lines_tracker=TRACKER)
    done = typed(*mine, "tracker=lines")
    assert (done.code, done.err) == (0, "")
    assert lines(tmp_path / "out") == [
        ["start", 0, 2],
        ["log", 0, 0],
        ["log", 1, 1],
        ["finish", "completed", "-"],
    ]
    assert "ok  tracker    lines" in typed("check", *mine[1:4], "tracker=lines").out


def test_a_file_of_the_group_gives_a_tracker_options_and_a_name(
    tmp_path: Path, typed: Type, mine: tuple[str, ...]
) -> None:
    (tmp_path / "lines.py").write_text(TRACKER)
    (tmp_path / "conf" / "tracker").mkdir(parents=True)
    (tmp_path / "conf" / "tracker" / "marked.yaml").write_text('_target_: ./lines.py:Lines\nmark: "+"\n')
    assert typed(*mine, "tracker=marked").code == 0
    assert lines(tmp_path / "out")[-1] == ["finish", "completed", "+"]
    failed = (*mine[:-1], "run.dir=failed", "graph.step.count.use=./count.py:fail", "tracker=marked", "tracker.mark=x")
    assert typed(*failed).code == 1
    assert lines(tmp_path / "failed")[-1] == ["finish", "failed", "x"]


WRONG = {
    "a name": (["tracker=wnadb"], "there is no tracker 'wnadb', did you mean 'wandb'?"),
    "an option": (["tracker=tensorboard", "tracker.foldr=x"], "did you mean 'folder'?"),
    "no class": (["+tracker.project=x"], "tracker: its section has no _target_"),
    "a target": (["+tracker._target_=./count.py:cuont"], "tracker: ./count.py has no 'cuont', did you mean 'count'?"),
    "no tracker": (["+tracker._target_=./count.py:Half"], "./count.py:Half has no log(step, metrics); a tracker has"),
    "what it takes": (["+tracker._target_=./count.py:Half", "+tracker.x=1"], "got an unexpected keyword argument 'x'"),
    "nothing of it": (["+tracker._target_=lins"], "tracker: nothing is called 'lins'"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
def test_a_tracker_that_cannot_be_is_refused_in_one_line_before_anything_starts(
    tmp_path: Path, typed: Type, mine: tuple[str, ...], words: list[str], message: str
) -> None:
    (tmp_path / "count.py").write_text(f"{COUNT}class Half:\n    def start(self, run_dir, config): ...\n")
    done = typed(*mine, *words)
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True), done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_package_that_is_not_here_is_named_with_its_cure(
    name: str, typed: Type, mine: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("stepgraph.components.trackers.find_spec", lambda package: None if package == name else True)
    done = typed(*mine, f"tracker={name}")
    assert (done.code, done.err) == (2, f"stepgraph: tracker={name} needs {name}: pip install {name}\n")
    assert typed("check", *mine[1:4], f"tracker={name}").err == done.err
    assert not (tmp_path / "out").exists()


# ---- the real ones -------------------------------------------------------------------------------------------------


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: pip install {' '.join(missing)}")


def twice(folder: Path, tracker: Callable[[], Any]) -> None:
    """A run of three steps, and one that goes on with it: the second one does step 2 again."""
    log = Tracked(tracker(), {"run": {"first": 0, "steps": 3}, "trainer": {"lr": 0.1}})
    log.start(folder, pytest.fail)
    log.log(None, {"graph/section": "start", "reward/mean": 0.25})
    for step in range(3):
        log.log(step, {"reward/mean": step / 2})
    log.finish("failed")
    again = Tracked(tracker(), {"run": {"first": 2, "steps": 4}})
    again.start(folder, pytest.fail)
    for step in (2, 3):
        again.log(step, {"reward/mean": step * 10.0})
    again.finish("completed")
    assert (log.warnings, again.warnings) == ([], [])


@pytest.mark.torch
@needs("torch", "tensorboard")
def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    from stepgraph.components.trackers import TensorBoard

    twice(tmp_path, TensorBoard)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(one.step, one.value) for one in found.Scalars("reward/mean")] == [
        (-1, 0.25),
        (0, 0.0),
        (1, 0.5),
        (2, 20.0),
        (3, 30.0),
    ]


@needs("mlflow", "sqlalchemy")
def test_mlflow_has_one_run_with_every_number(tmp_path: Path) -> None:
    import mlflow

    from stepgraph.components.trackers import MLflow

    uri = f"sqlite:///{tmp_path / 'ml.db'}"
    twice(tmp_path, lambda: MLflow(uri=uri))
    client = mlflow.MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("stepgraph").experiment_id])
    points = client.get_metric_history(found.info.run_id, "reward/mean")
    assert [(one.step, one.value) for one in points] == [(-1, 0.25), (0, 0.0), (1, 0.5), (2, 1.0), (2, 20.0), (3, 30.0)]
    assert (found.info.status, found.info.run_name) == ("FINISHED", tmp_path.name)
    assert found.data.params == {"run.first": "0", "run.steps": "3", "trainer.lr": "0.1"}


@needs("wandb")
def test_wandb_keeps_one_run_offline_with_every_number(tmp_path: Path) -> None:
    from stepgraph.components.trackers import WandB

    twice(tmp_path, lambda: WandB(mode="offline", settings={"group": "ours"}))
    files = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime)
    assert [row for file in files for row in history(file)] == [
        (-1, 0.25),
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
        (2, 20.0),
        (3, 30.0),
    ]
    assert {file.stem for file in files} == {f"run-{(tmp_path / 'wandb.id').read_text().strip()}"}


def history(file: Path) -> Iterator[tuple[float, float]]:
    """The numbers in one of its files, whose records lie behind heads of 7 bytes, as in a log of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    data, place = file.read_bytes(), 7
    while place + 7 <= len(data):
        _, size, kind = struct.unpack_from("<IHB", data, place)
        record: Any = wandb_internal_pb2.Record()
        if kind == 1:  # the records of small rows are whole
            record.ParseFromString(data[place + 7 : place + 7 + size])
        row = {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.history.item}
        if "reward/mean" in row:
            yield row["step"], row["reward/mean"]
        place += 7 + size


def test_a_section_that_is_empty_is_no_tracker() -> None:
    assert tracker_of({}) is None
    with pytest.raises(ConfigError, match="has no _target_"):
        tracker_of({"project": "x"})
