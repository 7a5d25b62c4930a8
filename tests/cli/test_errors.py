"""Every mistake on the command line is one line that names it and the cure, has its exit code, and leaves no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

MISTAKES = {
    "a command": (["paln"], 2, "there is no command 'paln', did you mean 'plan'?"),
    "no command": (["graph=grpo"], 2, "stepgraph COMMAND graph=grpo"),
    "a name where none is taken": (
        ["plan", "grpo"],
        2,
        "plan takes no name, got 'grpo'; a setting is written key=value",
    ),
    "a flag": (["plan", "--multirn"], 2, "there is no flag '--multirn', did you mean '--multirun'?"),
    "a flag's value": (["plan", "--cfg", "jb"], 2, "--cfg wants one of job, hydra, all, got 'jb', did you mean 'job'?"),
    "a flag without its value": (["plan", "--cfg"], 2, "--cfg wants one of job, hydra, all"),
    "a key": (["plan", "run.stpes=3"], 2, "run.stpes: run has no 'stpes', did you mean 'steps'?"),
    "a key with +": (["plan", "+run.stpes=3"], 2, "run.stpes: run has no 'stpes', did you mean 'steps'?"),
    "a key with ++": (["plan", "++run.stpes=3"], 2, "run.stpes: run has no 'stpes', did you mean 'steps'?"),
    "a top-level key": (
        ["plan", "fromat=json"],
        2,
        "fromat: the configuration has no 'fromat', did you mean 'format'?",
    ),
    "a top-level key with +": (["plan", "+foo=1"], 2, "foo: the configuration has no 'foo' (known: graph, placement,"),
    "a component's key": (["plan", "trainer.lrr=1"], 2, "trainer.lrr: trainer has no 'lrr', did you mean 'lr'?"),
    "a component's key with +": (
        ["plan", "+trainer.lrr=1"],
        2,
        "trainer.lrr: trainer has no 'lrr', did you mean 'lr'?",
    ),
    "a group": (["plan", "grph=grpo"], 2, "grph: the configuration has no 'grph', did you mean 'graph'?"),
    "a graph": (["plan", "graph=grop"], 2, "graph=grop: there is no graph 'grop', did you mean 'grpo'?"),
    "a placement": (["plan", "placement=spilt"], 2, "there is no placement 'spilt', did you mean 'split'?"),
    "an experiment": (["plan", "experiment=dmo"], 2, "there is no experiment 'dmo', did you mean 'demo'?"),
    "a deletion": (["plan", "~graph.step.evall"], 2, "graph.step has no 'evall', did you mean 'eval'?"),
    "a deletion of what is null": (["plan", "~run.steps"], 2, "~run.steps: run.steps is null already"),
    "syntax": (["plan", "run.steps=[1"], 2, "'run.steps=[1' is not a setting"),
    "a key without a name": (["plan", "=3"], 2, "must be a string"),
    "a type": (
        ["plan", "run.steps=many"],
        2,
        "run.steps=many: Value 'many' of type 'str' could not be converted to Integer",
    ),
    "a fraction of a step": (["plan", "run.steps=1.5"], 2, "run.steps=1.5: Value '1.5' of type 'float' could not be"),
    "negative steps": (["plan", "run.steps=-1"], 2, "run.steps=-1 is less than 0"),
    "epochs of no length": (["plan", "run.epochs=2"], 2, "run.epochs is given without run.steps_per_epoch"),
    "a list of values": (["plan", "run.steps=1,2"], 2, "--multirun runs each value"),
    "a reference": (["plan", "run.steps=${foo}"], 2, "run.steps: Interpolation key 'foo' not found"),
    "a value that must be set": (["plan", "data=jsonl"], 2, "data.path must be set: data.path=VALUE"),
    "a section's type": (["plan", "run=3"], 2, "run=3: Invalid type assigned"),
    "a pass": (["plan", "passes=[ded]"], 2, "passes names 'ded', did you mean 'dead'?"),
    "a format": (["plan", "format=jsn"], 2, "format=jsn: there is no format 'jsn', did you mean 'json'?"),
    "a phase's key": (["plan", "graph.step.eval.wen.last=true"], 3, "unknown key 'wen', did you mean 'when'?"),
    "a place": (["plan", "placement.at.engine=devise"], 3, "'devise', did you mean 'device'?"),
}


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_files(stepgraph: Run, words: list[str], code: int, message: str) -> None:
    done = stepgraph(*words)
    assert message in done.err
    assert (done.code, done.out, done.err.count("\n"), done.files) == (code, "", 1, ())


def test_a_file_that_is_not_yaml_is_named_with_its_line(here: Path, stepgraph: Run) -> None:
    (here / "graphs").mkdir()
    (here / "graphs" / "mine.yaml").write_text("name: mine\nstep: [1,\n")
    done = stepgraph("plan", "graph=mine")
    assert done.code == 2
    assert "graphs/mine.yaml, line 3: not YAML: " in done.err
    assert done.err.count("\n") == 1


def test_a_dead_key_in_an_experiment_is_refused(here: Path, stepgraph: Run) -> None:
    folder = here / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\ntrainer: {learning_rate: 1}\n")
    done = stepgraph("plan", "experiment=mine")
    assert done.code == 2
    assert "trainer.learning_rate: trainer has no 'learning_rate'" in done.err


def test_an_error_of_a_plan_is_told_from_one_of_the_input(stepgraph: Run) -> None:
    done = stepgraph("plan", "~graph.step.reload_kv", "~graph.start.reload_kv")
    assert (done.code, done.err.count("\n")) == (3, 1)
