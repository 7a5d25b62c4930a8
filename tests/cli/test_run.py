"""``stepgraph run`` and ``check``: what is refused before anything is started, and what a run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepgraph import cli
from stepgraph.cli import ask, targets

from .conftest import Run

GRAPH = "name: mine\nresources: {log: sink}\nstep:\n  note: {use: './parts.py:note', writes: [log]}\n"
PARTS = """
from pathlib import Path

def note(ctx):
    Path("started").touch()
    return {}

def fail(ctx):
    raise ValueError("the disk is made of cheese")
"""
MINE = ("graph=mine", "placement.makes_room=null", "run.steps=2")


@pytest.fixture
def mine(here: Path) -> Path:
    """A folder with a graph of one phase that is a function of the user's."""
    (here / "graphs").mkdir()
    (here / "graphs" / "mine.yaml").write_text(GRAPH)
    (here / "parts.py").write_text(PARTS)
    return here


def test_a_run_goes_into_a_directory_named_after_the_graph(mine: Path, stepgraph: Run) -> None:
    done = stepgraph("run", *MINE)
    (folder,) = (mine / "runs").iterdir()
    assert (done.code, done.err) == (0, "")
    assert folder.name.startswith("mine-")
    assert json.loads((folder / "plan.json").read_text())["run"] == {"first": 0, "steps": 2}
    assert "steps: 2" in (folder / "config.yaml").read_text()
    assert done.out.splitlines()[-1].startswith("completed: 2 of 2 steps")


def test_two_runs_started_in_one_second_have_directories_of_their_own(mine: Path, stepgraph: Run) -> None:
    assert [stepgraph("run", *MINE).code for _ in range(3)] == [0, 0, 0]
    assert len(list((mine / "runs").iterdir())) == 3


def test_a_sweep_gives_each_run_a_directory_of_its_own(mine: Path, stepgraph: Run) -> None:
    assert stepgraph("run", "-m", *MINE[:2], "run.steps=1,2").code == 0
    (sweep,) = (mine / "runs").iterdir()
    steps = [json.loads((sweep / job / "plan.json").read_text())["run"]["steps"] for job in ("0", "1")]
    assert sweep.name.startswith("sweep-")
    assert steps == [1, 2]


def test_a_run_of_no_steps_says_so_and_starts_nothing(mine: Path, stepgraph: Run) -> None:
    done = stepgraph("run", *MINE[:2], "run.steps=0")
    assert done.code == 0
    assert "nothing was started" in done.out
    assert not {"runs", "started"} & set(done.files)


def test_a_failed_run_names_the_phase_and_ends_with_1(mine: Path, stepgraph: Run) -> None:
    done = stepgraph("run", *MINE, "run.dir=out", "graph.step.note.use=./parts.py:fail")
    assert done.code == 1
    assert "note in step 1/2: ValueError: the disk is made of cheese" in done.out
    assert "Traceback" not in done.out + done.err


REFUSED = {
    "a directory that is a file": (["run.dir=parts.py"], "parts.py is a file; choose another run.dir"),
    "a directory under a file": (["run.dir=parts.py/out"], "parts.py is a file; choose another run.dir"),
    "going on from nowhere": (["resume=auto"], "resume=auto goes on from a run directory: say which, run.dir=FOLDER"),
    "a way to go on": (["resume=atuo"], "resume=atuo: say resume=auto, or leave it out, did you mean 'auto'?"),
    "negative steps": (["run.steps=-2"], "run.steps=-2 is less than 0"),
    "a function": (["graph.step.note.use=./parts.py:noet"], "has no 'noet', did you mean 'note'?"),
    "a file": (["graph.step.note.use=./part.py:note"], "no file 'part.py'"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_started(
    mine: Path, stepgraph: Run, words: list[str], message: str
) -> None:
    done = stepgraph("run", *MINE, *words)
    assert message in done.err
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert not {"runs", "started"} & set(done.files)


def test_a_directory_that_holds_a_finished_run_is_refused(mine: Path, stepgraph: Run) -> None:
    assert stepgraph("run", *MINE, "run.dir=out").code == 0
    done = stepgraph("run", *MINE, "run.dir=out")
    assert done.code == 2
    assert "out: holds a finished run" in done.err


def test_going_on_from_a_finished_run_starts_nothing(mine: Path, stepgraph: Run) -> None:
    assert stepgraph("run", *MINE, "run.dir=out").code == 0
    (mine / "started").unlink()
    done = stepgraph("run", *MINE, "run.dir=out", "resume=auto")
    assert done.code == 0
    assert done.out.startswith("already_complete")
    assert "started" not in done.files


def test_an_interrupt_is_130(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "read", interrupted)
    assert cli.main(["plan"]) == 130


def test_check_says_what_is_well_and_starts_nothing(stepgraph: Run) -> None:
    done = stepgraph("check", "experiment=demo")
    assert (done.code, done.err, done.files) == (0, "", ())
    found = [line.split()[:2] for line in done.out.splitlines()]
    for thing in ("graph", "placement", "run", "data", "engine", "trainer", "rewards"):
        assert ["ok", thing] in found
    assert done.out.splitlines()[-1] == "Nothing was started."


MISSING = {
    "a module": (["engine._target_=no.such.Engine"], 2, "engine._target_=no.such.Engine: there is no module 'no'"),
    "a file": (["engine._target_='./no.py:Engine'"], 2, "there is no file 'no.py'"),
    "a path": (["engine._target_=Engine"], 2, "is no dotted path: write package.module.Class"),
    "data": (["data.length=99"], 2, "data.length is 99"),
    "a run directory": (["run.dir=/proc/none"], 2, "choose another run.dir"),
}


@pytest.mark.parametrize(("words", "code", "message"), MISSING.values(), ids=MISSING)
def test_check_finds_what_is_missing(stepgraph: Run, words: list[str], code: int, message: str) -> None:
    done = stepgraph("check", *words)
    assert message in done.err
    assert (done.code, done.err.count("\n"), done.files) == (code, 1, ())


def test_a_component_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch, stepgraph: Run) -> None:
    monkeypatch.setattr(targets, "required", lambda extra: ["not-installed"] if extra == "torch" else [])
    done = stepgraph("run", "run.steps=1")
    assert (done.code, done.err, done.files) == (
        2,
        "stepgraph: engine needs not-installed: pip install 'stepgraph[torch]'\n",
        (),
    )


def test_what_an_extra_needs_is_read_from_our_own_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "PyYAML>=6",
        "torch>=2.6; extra == 'torch'",
        'safetensors>=0.5 ; extra == "torch"',
        "ray>=2; extra == 'ray'",
    ]
    monkeypatch.setattr(targets.metadata, "requires", lambda name: lines)
    assert targets.required("torch") == ["torch", "safetensors"]


def test_asking_a_directory_without_a_checkpoint_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask.main([str(here), "305="]) == 2
    assert (
        capsys.readouterr().err
        == f"stepgraph: {here} holds no checkpoint: name the directory of a run that saved one\n"
    )
