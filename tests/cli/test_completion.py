"""What the shell offers when the key is pressed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepgraph.cli import main
from stepgraph.cli.completion import complete


def test_commands_come_first() -> None:
    assert {"plan ", "run ", "explain "}.issubset(complete("stepgraph "))
    assert complete("stepgraph pl") == ["plan "]


def test_groups_and_their_options_are_offered() -> None:
    assert "placement=" in complete("stepgraph plan placem")
    assert complete("stepgraph plan graph=miles_") == ["miles_async ", "miles_sync "]


def test_phases_of_the_graph_at_hand_are_offered() -> None:
    assert complete("stepgraph explain graph=miles_sync train_") == ["train_actor ", "train_critic "]
    assert complete("stepgraph plan ~graph.step.ev") == ["~graph.step.eval "]
    assert complete("stepgraph plan graph.step.eval.when.la") == ["graph.step.eval.when.last="]


def test_a_graph_that_is_not_there_offers_no_phases_and_no_traceback() -> None:
    assert complete("stepgraph explain graph=nope sy") == []


def test_completion_needs_neither_hydra_nor_a_framework() -> None:
    code = (
        "import sys; from stepgraph.cli import main; main(['--complete', 'stepgraph plan graph=g']);"
        "assert not {'hydra', 'torch', 'ray'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "grpo "


def test_bash_loads_the_script_and_completes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert main(["--completion"]) == 0
    tool = tmp_path / "stepgraph"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m stepgraph "$@"\n')
    tool.chmod(0o755)
    line = "stepgraph plan placement=sp"
    ask = f"PATH={tmp_path}:$PATH; COMP_LINE='{line}'; COMP_POINT={len(line)}; _stepgraph; echo \"[${{COMPREPLY[0]}}]\""
    script = capsys.readouterr().out + ask
    assert subprocess.run([bash, "-c", script], check=True, capture_output=True, text=True).stdout == "[split ]\n"
