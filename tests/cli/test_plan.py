"""``stepgraph plan``: three formats, a pipe that closes early, and lengths at the edges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .conftest import Run


def test_calls_are_one_json_object_a_line_in_declared_order(stepgraph: Run) -> None:
    done = stepgraph("plan", "run.steps=3", "format=calls", "passes=[]")
    calls = [json.loads(line) for line in done.out.splitlines()]
    steps = [call["step"] for call in calls]
    assert steps == sorted(steps, key=lambda step: -1 if step is None else step)
    assert {"generate", "sync_weights"} <= {call["phase"] for call in calls if call["step"] == 2}


def test_the_json_says_which_run_it_is_of(stepgraph: Run) -> None:
    document = json.loads(stepgraph("plan", "run.steps=30", "run.first=10", "format=json").out)
    assert document["schema"] == 1
    assert document["run"] == {"first": 10, "steps": 30}
    assert (document["graph"], document["placement"]) == ("grpo", "colocated")


def test_a_plan_of_no_steps_has_no_variants(stepgraph: Run) -> None:
    document = json.loads(stepgraph("plan", "run.steps=0", "format=json").out)
    assert document["variants"] == []


def test_epochs_bound_a_run_that_says_no_steps(stepgraph: Run) -> None:
    document = json.loads(stepgraph("plan", "run.epochs=60", "run.steps_per_epoch=7", "format=json").out)
    assert document["run"]["steps"] == 420


def test_the_text_names_the_file_and_repeats_the_users_own_words(stepgraph: Run) -> None:
    done = stepgraph("plan", "run.steps=36", "placement=split")
    assert "graphs/grpo.yaml" in done.out
    assert "run.steps=36 placement=split" in done.out
    assert "Nothing was started." in done.out


def test_a_reader_that_leaves_early_is_no_error(here: Path) -> None:
    words = [sys.executable, "-m", "stepgraph", "plan", "run.steps=3000", "format=calls"]
    process = subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 0
