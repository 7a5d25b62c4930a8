"""What a newcomer gets wrong, typed at the command line: one line each, that names who, what and the cure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Type

OWN = """
import time
from stepgraph import phase

def begin():
    return {"rollouts": [1, 2]}

def fine(rollouts, ctx): ...
def none(): ...
def asks(rollouts, cheese): ...
def much(rollouts): return {"report": 1, "reprot": 2}
def little(rollouts): return {}
def number(rollouts): return 3
def hangs(rollouts): time.sleep(1)
def endless(rollouts):
    yield 1
def one(b): return {"a": 1}
def two(a): return {"b": 1}
LAMBDA = 3

def raises(rollouts):
    json = __import__("json")
    json.loads("{")

@phase(reads=["rolouts"])
def misspelt(rolouts): ...
"""
GRAPH = "name: mine\nstep:\n  begin: {use: './own.py:begin', writes: [rollouts]}\n"
READS = "reads: [rollouts]"
MANY = f"{READS}, writes: [report]"


@pytest.fixture
def mine(tmp_path: Path, typed: Type) -> Path:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "mine.yaml").write_text(GRAPH)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("x = 1\nimport no_such_thing\ndef own(rollouts): ...\n")
    (tmp_path / "badword.py").write_text("from stepgraph import phase\n@phase(raeds=['a'], **{})\ndef own(a): ...\n")
    (tmp_path / "syntax.py").write_text("def oops(:\n")
    (tmp_path / "heavy.py").write_text(
        "import jax\nfrom stepgraph import phase\nR = ['rollouts']\n@phase(reads=R)\ndef own(rollouts): ...\n"
    )
    (tmp_path / "jax.py").write_text("")
    return tmp_path


PLANNED = {
    "a name that is not in its file": (
        f"use: ./own.py:fien, {READS}",
        "step.x: ./own.py has no 'fien', did you mean 'fine'? (from './own.py:fien')",
    ),
    "a file that is not there": ("use: ./won.py:fine", "step.x: no file 'won.py' (looked in "),
    "a file and no name": ("use: ./own.py", "step.x: './own.py' is a file and names nothing in it: write "),
    "a module that is not there": ("use: nopkg.mod.fine", "step.x: no module 'nopkg' for 'nopkg.mod.fine'; is it"),
    "a name that nobody offers": (
        "use: lenght_audit",
        "step.x: nothing is called 'lenght_audit'; write component.method,",
    ),
    "no Python": ("use: ./syntax.py:oops", "step.x: syntax.py, line 1: invalid syntax"),
    "a word that @phase has not": (
        "use: ./badword.py:own",
        "step.x: @phase has no word 'raeds', did you mean 'reads'?",
    ),
    "a word that a phase has not": (
        "use: ./own.py:fine, raeds: [a]",
        "step.x has an unknown key 'raeds', did you mean",
    ),
    "nothing to run": (READS, "step.x says nothing to run: give it use: component.method, or a target of your own"),
    "contents that nobody makes": (
        "use: ./own.py:misspelt",
        "step.x reads 'rolouts', which no phase writes, did you mean",
    ),
    "an update of nothing": (
        "use: ./own.py:fine, updates: [seen]",
        "updates seen, which no phase writes: what crosses steps is a state, graph.resources.seen=state",
    ),
    "what another one writes": (
        "use: ./own.py:much, reads: [rollouts], writes: [rollouts]",
        "writes rollouts, which begin writes too: a value has one writer a step",
    ),
    "a place that there is not": (
        "use: ./own.py:fine, needs: {rollouts: disk}",
        "'rollouts' is a value and has no place",
    ),
    "a phase to stand beside": (f"use: ./own.py:fine, {READS}, after: bgin", "no phase of step, did you mean 'begin'?"),
}


@pytest.mark.parametrize(("words", "message"), PLANNED.values(), ids=PLANNED)
def test_a_plan_refuses_it_in_one_line(mine: Path, typed: Type, words: str, message: str) -> None:
    done = typed("plan", "graph=mine", "placement=null", f"graph.step.x={{{words}}}")
    assert (done.code in (2, 3), done.err.count("\n"), message in done.err) == (True, 1, True), done.err
    assert done.err.startswith("stepgraph: ")


def test_a_need_that_nobody_meets_names_the_handoff_that_is_missing(mine: Path, typed: Type) -> None:
    state = ("graph.places=[disk]", "graph.resources.seen=state")
    done = typed(
        "plan", "graph=mine", "placement=null", *state, "graph.step.x={use: './own.py:fine', needs: {seen: disk}}"
    )
    assert done.err == (
        "stepgraph: x in step 0 needs seen at disk, but it is at host (it starts there): no phase moves seen there: "
        "add one with moves: {seen: disk}, or start with placement.at.seen=disk\n"
    )


def test_functions_that_wait_for_each_other_are_a_circle(mine: Path, typed: Type) -> None:
    one, two = (f"graph.step.{name}={{use: './own.py:{use}', {words}}}" for name, use, words in (
        ("a", "one", "reads: [b], writes: [a]"), ("b", "two", "reads: [a], writes: [b]")))  # fmt: skip
    done = typed("plan", "graph=mine", "placement=null", one, two)
    assert (done.code, "step.a -> step.b -> step.a: each reads what the one before it writes" in done.err) == (3, True)


def test_an_import_that_takes_long_is_told_with_its_cost(mine: Path, typed: Type) -> None:
    done = typed("plan", "graph=mine", "placement=null", "graph.step.x={use: './heavy.py:own'}", "run.steps=1")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert done.err.startswith("stepgraph: warning: step.x: reading ./heavy.py:own for the plan imported jax (0.")
    assert done.err.endswith(": write its @phase in plain literals, or import that inside the function\n")


REFUSED = {
    "no parameter for what it reads": (
        f"use: ./own.py:none, {READS}",
        "x: ./own.py:none() is given rollouts: got an unexpected keyword argument 'rollouts'; take it as a parameter, "
        "or out of the phase's words",
    ),
    "a parameter that nobody gives": (
        f"use: ./own.py:asks, {READS}",
        "x: ./own.py:asks(rollouts, cheese) is given rollouts: missing a required argument: 'cheese'; let the phase "
        "read it, set it in options, or give it a default",
    ),
    "what it does not read": (
        "use: ./own.py:fine",
        "x: ./own.py:fine takes 'rollouts', which the phase does not read: add it to its reads, "
        "or take the parameter out",
    ),
    "a generator": (
        f"use: ./own.py:endless, {READS}",
        "x: ./own.py:endless is a generator: a body returns {name: contents} once; take its yield out",
    ),
    "no function": (f"use: ./own.py:LAMBDA, {READS}", "x: ./own.py:LAMBDA is not callable but a int"),
    "a module that cannot be imported": (
        f"use: ./broken.py:own, {READS}",
        "x: './broken.py:own' cannot be imported: ModuleNotFoundError: No module named 'no_such_thing' "
        "(./broken.py, line 2)",
    ),
    "a component that there is not": (
        f"use: trainr.train, {READS}",
        "component 'trainr': the configuration has no section of that name, did you mean 'trainer'?; "
        "components.trainr._target_=pkg.mod.Class makes one",
    ),
}


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_a_run_refuses_it_before_anything_starts_and_a_check_finds_it(
    mine: Path, typed: Type, words: str, message: str, command: str
) -> None:
    done = typed(command, "graph=mine", "placement=null", f"graph.step.x={{{words}}}", "run.steps=1", "run.dir=out")
    assert (done.code, done.err) == (2, f"stepgraph: {message}\n")
    assert not (mine / "out").exists()


FAILS = {
    "too much": (
        f"use: ./own.py:much, {MANY}",
        "returned 'reprot', which it does not declare to write, did you mean 'report'?",
    ),
    "too little": (f"use: ./own.py:little, {MANY}", "declares that it writes report, but did not return it"),
    "no mapping": (f"use: ./own.py:number, {MANY}", "returned a int; a body returns a mapping {name: contents}"),
    "for ever": (
        f"use: ./own.py:hangs, {READS}, timeout_s: 0.05",
        "took longer than its timeout_s of 0.05 s; its call is left behind",
    ),
    "an error of its own": (
        f"use: ./own.py:raises, {READS}",
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
}


@pytest.mark.parametrize(("words", "message"), FAILS.values(), ids=FAILS)
def test_a_body_that_goes_wrong_is_told_in_one_line_under_its_phase(
    mine: Path, typed: Type, words: str, message: str
) -> None:
    done = typed("run", "graph=mine", "placement=null", f"graph.step.x={{{words}}}", "run.steps=1", "run.dir=out")
    lines = done.out.splitlines()
    assert done.code == 1
    assert f"FAILED  x in step 1/1: {message}" in lines
    at = next((line for line in lines if line.startswith("  at ")), "")
    assert at == ("  at       own.py, line 23, in raises" if "JSON" in message else "")
    assert json.loads((mine / "out" / "result.json").read_text())["status"] == "failed"


def test_a_group_of_phases_without_a_file_says_how_to_get_one(mine: Path, typed: Type) -> None:
    done = typed("plan", "+phase@graph.step.x=audit")
    assert (done.code, done.err) == (
        2,
        "stepgraph: there is no phase 'audit': no folder conf/phase has any file; "
        "stepgraph new phase NAME writes one\n",
    )
