"""``explain`` and ``diff`` on the command line: words, sides, exit codes; nothing imported or left that need not be."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import stepgraph as package
from stepgraph.cli.arguments import read

from .conftest import Run
from .test_help import FRAMEWORKS, imported_by

QUESTIONS = [
    ["explain", "sync_weights", "run.steps=36"],
    ["explain", "generate", "train", "run.steps=36", "step=3"],
    ["diff", "run.steps=36", "--", "placement=colocated", "--", "placement=split"],
    ["diff", "run.steps=36", "--", "step=8", "--", "step=9"],
]


def run_dir(folder: Path, steps: int) -> Path:
    """A run directory with a plan and one phase that was measured."""
    folder.mkdir()
    plan = package.compile(package.load("grpo", ["placement=colocated"]), steps=steps)
    (folder / "plan.json").write_text(json.dumps(plan.to_dict()))
    event = {"event": "end", "t": 2.0, "phase": "sync_weights", "kind": "handoff", "section": "step", "step": 0}
    (folder / "events.jsonl").write_text(json.dumps({**event, "outcome": "ok", "seconds": 1.7}) + "\n")
    return folder


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_question_is_answered_without_a_framework_and_leaves_no_files(
    words: list[str], here: Path, stepgraph: Run
) -> None:
    assert not {*FRAMEWORKS, "rich", "networkx"} & imported_by(words, here)
    done = stepgraph(*words)
    assert (done.code, done.err, done.files) == (0, "", ())


def test_a_side_keeps_its_own_words() -> None:
    words = read(["diff", "graph=grpo", "--", "placement=split", "x=1", "--", "step=3", "--exit-code"])
    assert words.overrides == ("graph=grpo",)
    assert words.sides == (("placement=split", "x=1"), ("step=3",))
    assert dict(words.options) == {"--exit-code": ""}


@pytest.mark.parametrize("words", [["--analyze", "runs/a"], ["--analyze=runs/a"]])
def test_a_flag_of_a_commands_own_takes_its_value(words: list[str]) -> None:
    assert dict(read(["explain", "train", *words, "run.steps=3"]).options) == {"--analyze": "runs/a"}


def test_diff_says_in_its_exit_code_that_something_differs_where_it_is_asked_to(stepgraph: Run) -> None:
    words = ["diff", "run.steps=36", "--", "step=8", "--"]
    assert stepgraph(*words, "step=9").code == 0
    assert stepgraph(*words, "step=9", "--exit-code").code == 4
    assert stepgraph(*words, "step=7", "--exit-code").code == 0


def test_a_side_without_words_is_what_both_have_in_common(stepgraph: Run) -> None:
    done = stepgraph("diff", "run.steps=36", "--", "--", "placement=split")
    assert done.out.startswith("A: run.steps=36\nB: placement=split\n")
    assert "offload_engine" in done.out


def test_two_run_directories_are_compared_by_their_plans(here: Path, stepgraph: Run) -> None:
    run_dir(here / "a", 3)
    run_dir(here / "b", 4)
    for words in (["a", "b"], ["--", "a", "--", "b"]):
        done = stepgraph("diff", *words, "--exit-code")
        assert (done.code, done.err) == (4, "")
        assert done.out.startswith("A: a\nB: b\nSteps: 0-2 -> 0-3 (compared: 0-2)\n")
    assert stepgraph("diff", "a", "a", "--exit-code").code == 0


def test_a_run_directory_is_compared_with_settings(here: Path, stepgraph: Run) -> None:
    run_dir(here / "a", 3)
    assert "placement=split" in stepgraph("diff", "--", "a", "--", "placement=split", "run.steps=3").out
    assert stepgraph("diff", "--", "a", "--", "run.steps=3", "--exit-code").code == 0


def test_a_measured_answer_names_the_run_directory(here: Path, stepgraph: Run) -> None:
    run_dir(here / "a", 36)
    done = stepgraph("explain", "sync_weights", "run.steps=36", "--analyze", "a")
    assert "  measured  in a\n" in done.out
    assert "4 handoffs in step 35, 1.7 s (measured medians; 3 never ran and are not counted)" in done.out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sync_weights", ["run.steps=36"]),
        ("sync_weights", ["run.steps=36", "graph.keep.engine=device", "step=35"]),
        ("reload_policy", ["run.steps=6", "placement=split", "placement.at.kv=none"]),
        ("eval", ["run.steps=12", "graph.step.eval.enabled=false", "step=9"]),
        ("reload_kv", ["run.steps=6", "placement=kv_only", "step=2"]),
    ],
)
def test_the_hint_can_be_pasted_and_turns_the_phase_round(name: str, words: list[str], stepgraph: Run) -> None:
    said = stepgraph("explain", name, *words).out
    hint = shlex.split(said.splitlines()[-1].removeprefix("Compare: "))
    assert hint[:2] == ["stepgraph", "diff"]
    assert set(words) <= {*hint}
    done = stepgraph(*hint[1:], "--exit-code")
    assert (done.code, done.err) == (4, "")
    sign = "-" if f"{name}  RUNS" in said else "+"
    assert any(line.startswith(f"  {sign} {name} ") for line in done.out.splitlines())


def test_the_passes_that_were_asked_for_are_those_that_are_explained(stepgraph: Run) -> None:
    assert (
        "sync_weights  RUNS in step 0, as in all 36 steps"
        in stepgraph("explain", "sync_weights", "run.steps=36", "passes=[]").out
    )


MISTAKES = {
    "no phase": (["explain"], "explain takes one phase or two, got 0"),
    "three phases": (["explain", "train", "save", "eval"], "explain takes one phase or two, got 3"),
    "a slip": (
        ["explain", "sync_weight"],
        "there is no phase 'sync_weight' in graph grpo, did you mean 'sync_weights'?",
    ),
    "a slip in two": (["explain", "train", "sav"], "there is no phase 'sav' in graph grpo, did you mean 'save'?"),
    "a step past the end": (["explain", "train", "step=100"], "step=100 is not in this run: its steps are 0 to 99"),
    "a step before the first": (["explain", "train", "step=-1"], "step=-1 is not in this run"),
    "a format": (["explain", "train", "format=json"], "explain answers in text"),
    "a folder that is none": (["explain", "train", "--analyze", "nowhere"], "nowhere does not exist"),
    "a folder that holds no run": (["explain", "train", "--analyze", "."], ". is no run directory, as it has no plan"),
    "no folder": (["explain", "train", "--analyze"], "--analyze wants a value: --analyze RUN_DIR"),
    "a folder for two": (["explain", "train", "save", "--analyze", "."], "--analyze goes with one phase"),
    "a flag of another command": (["explain", "train", "--exit-code"], "there is no flag '--exit-code'"),
    "sides of a command that has none": (["explain", "train", "--", "step=3"], "explain takes no '--'"),
    "no side": (["diff", "run.steps=3"], "diff compares two sides, got 0: stepgraph diff [COMMON] -- A -- B"),
    "one side": (["diff", "--", "step=3"], "diff compares two sides, got 1"),
    "three sides": (["diff", "--", "--", "--"], "diff compares two sides, got 3"),
    "a step on one side": (["diff", "--", "step=3", "--", "run.steps=9"], "step=K stands on one side only"),
    "a step that is not": (["diff", "--", "step=3", "--", "step=100"], "step=100 is not in step=100: its steps are"),
    "a side's key": (["diff", "--", "run.stpes=3", "--", "step=3"], "run has no 'stpes', did you mean 'steps'?"),
    "a side's key with +": (["diff", "--", "+foo=3", "--", "step=3"], "foo: the configuration has no 'foo'"),
    "a side's placement": (["diff", "--", "placement=spilt", "--"], "no placement 'spilt', did you mean 'split'?"),
    "a side that is no folder": (["diff", "--", "split", "--", "step=3"], "split does not exist"),
    "a folder among settings": (["diff", "--", "a", "step=3", "--"], "a run directory stands alone"),
    "a format of diff": (["diff", "format=json", "--", "--"], "diff answers in text"),
    "a value for a switch": (["diff", "--exit-code=3", "--", "--"], "--exit-code takes no value, got '3'"),
}


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_files(stepgraph: Run, words: list[str], said: str) -> None:
    done = stepgraph(*words)
    assert said in done.err
    assert (done.code, done.out, done.err.count("\n"), done.files) == (2, "", 1, ())


def test_a_plan_that_is_refused_is_told_from_wrong_input(stepgraph: Run) -> None:
    done = stepgraph("diff", "--", "--", "~graph.step.reload_kv")
    assert (done.code, done.err.count("\n")) == (3, 1)


def test_help_shows_flags_of_a_commands_own_and_its_sides(stepgraph: Run) -> None:
    assert stepgraph("explain", "--help").out.startswith("stepgraph explain NAME [OTHER] [--analyze RUN_DIR] ")
    assert stepgraph("diff", "--help").out.splitlines()[0].endswith(" -- A -- B")
    assert "4 diff --exit-code" in stepgraph("diff", "--help").out
