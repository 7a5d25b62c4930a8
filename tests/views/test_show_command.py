"""``stepgraph show``: what it writes, what it says, and what it refuses in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepgraph.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPGRAPH_PATH", raising=False)
    return tmp_path


@pytest.mark.parametrize("ending", ["html", "svg", "mmd", "dot", "json"])
def test_it_writes_the_file_that_is_asked_for_and_nothing_else(
    here: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "-o", f"step.{ending}", "step=35", "run.steps=36"]) == 0
    assert [path.name for path in here.iterdir()] == [f"step.{ending}"]
    assert capsys.readouterr().out.startswith(f"step.{ending}: grpo, colocated, 36 steps; ")
    assert "sync_weights" in (here / f"step.{ending}").read_text(encoding="utf-8")


def test_the_json_has_every_box_with_its_place(here: Path) -> None:
    assert main(["show", "-o", "step.json", "run.steps=36"]) == 0
    scene = json.loads((here / "step.json").read_text(encoding="utf-8"))
    assert [box["name"] for box in scene["sheets"]["step"]["boxes"]][:2] == ["generate", "offload_engine"]
    assert len(scene["pictures"]) == 5


REFUSED = {
    "an unknown format": (["-o", "step.htm"], "there is no picture format '.htm', did you mean '.html'?"),
    "no format": (["-o", "step"], "(known: .html, .svg, .mmd, .dot, .json)"),
    "no folder": (["-o", "no/step.svg"], "there is no folder 'no'"),
    "a folder": (["-o", "."], "is a folder"),
    "no file": ([], "show wants a file to draw into"),
    "a step past the end": (["-o", "step.svg", "step=36", "run.steps=36"], "step=36 is not in this run"),
    "no run directory": (["-o", "step.svg", "nowhere"], "nowhere does not exist"),
    "a directory that is none": (["-o", "step.svg", "."], "is no run directory"),
    "two directories": (["-o", "step.svg", "a", "b"], "one run directory"),
    "one side": (["-o", "step.html", "--", "step=3"], "draws one plan or two"),
    "two plans as svg": (["-o", "step.svg", "--", "step=3", "--", "step=4"], "-o step.html"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_line(here: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, said = REFUSED[case]
    assert main(["show", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert list(here.iterdir()) == []


def test_two_plans_make_one_page(here: Path) -> None:
    assert main(["show", "-o", "two.html", "run.steps=36", "--", "placement=colocated", "--", "placement=split"]) == 0
    assert "not in B: already there" in (here / "two.html").read_text(encoding="utf-8")


def test_drawing_imports_no_framework(here: Path) -> None:
    code = "import sys; from stepgraph.cli import main; main(['show', '-o', 'a.html']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "ray", "transformers", "vllm", "deepspeed", "numpy"} & set(done.stdout.split())
