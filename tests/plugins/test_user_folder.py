"""A folder of one's own: a group of phases, graphs that extend others, components, and what `new phase` writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stepgraph
from stepgraph.errors import ConfigError, GraphError
from stepgraph.ir.graph import Graph

from .conftest import Type

AUDIT = """
from stepgraph import phase

@phase(reads=["rollouts"], writes=["report"], when={"every": 2})
def length_audit(rollouts):
    return {"report": max(len(r.tokens) for r in rollouts)}
"""
MINE = """
extends: grpo
name: mine
step:
  audit: {use: ./audit.py:length_audit, when: {every: 3}}
  score: {use: ./audit.py:score}
  eval: null
keep: {engine: device}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("conf/phase", "graphs"):
        (tmp_path / folder).mkdir(parents=True)
    score = "\ndef score(rollouts):\n    return {'rewards': [0.0 for _ in rollouts]}\n"
    (tmp_path / "audit.py").write_text(AUDIT + score)
    (tmp_path / "conf" / "phase" / "length_audit.yaml").write_text("use: ./audit.py:length_audit\non_error: warn\n")
    (tmp_path / "graphs" / "mine.yaml").write_text(MINE)
    return tmp_path


def document(text: str) -> dict[str, list[str]]:
    """The phases of each variant of a plan in JSON, by its first step."""
    variants = json.loads(text)["variants"]
    return {str(v["steps"][0]["from"]): [phase["name"] for phase in v["phases"]] for v in variants}


def test_a_phase_from_a_config_group_is_put_under_a_name(here: Path, typed: Type) -> None:
    done = typed("plan", "+phase@graph.step.audit=length_audit", "run.steps=2", "format=json")
    assert (done.code, done.err) == (0, "")
    found = document(done.out)
    assert ("audit" in found["0"], "audit" in found["1"]) == (False, True)


def test_a_phase_from_a_group_that_is_not_there_is_one_line(here: Path, typed: Type) -> None:
    done = typed("plan", "+phase@graph.step.audit=lenght_audit")
    assert done.code == 2
    assert "there is no phase 'lenght_audit', did you mean 'length_audit'?" in done.err


def named(graph: Graph) -> list[str]:
    return [phase.name for phase in graph.step]


def test_a_graph_extends_another_adds_replaces_and_takes_out(here: Path) -> None:
    base, mine = stepgraph.load("grpo"), stepgraph.load("mine", ["run.steps=6"])
    assert mine.name == "mine"
    assert named(mine) == [*(name for name in named(base) if name != "eval"), "audit"]
    phases = {phase.name: phase for phase in mine.step}
    assert (phases["score"].use, phases["score"].reads) == ("./audit.py:score", ("rollouts",))
    assert phases["audit"].when.every == 3
    assert dict(mine.keep) == {"policy": "any", "engine": "device"}


def test_the_command_line_and_python_read_the_same_extension(here: Path, typed: Type) -> None:
    done = typed("plan", "graph=mine", "placement=colocated", "run.steps=6", "format=json")
    assert done.err == ""
    plan = stepgraph.compile(stepgraph.load("mine", ["placement=colocated"]), steps=6)
    assert json.loads(done.out) == plan.to_dict()


def test_a_graph_may_extend_the_one_that_it_shadows_and_chains_are_followed(here: Path, typed: Type) -> None:
    (here / "graphs" / "grpo.yaml").write_text("extends: grpo\nstep:\n  save: {when: {every: 2}}\n")
    save = next(phase for phase in stepgraph.load("mine").step if phase.name == "save")
    assert save.when.every == 2
    assert "every: 2" in typed("plan", "graph=mine", "--cfg", "job").out


EXTENDS = {
    "a name": ("extends: grop\n", "graphs/mine.yaml extends 'grop', and there is no such graph, did you mean 'grpo'?"),
    "a circle": ("extends: other\n", "extends itself: mine -> other -> mine"),
    "defaults": (
        "defaults: [grpo]\n",
        "graphs/mine.yaml has a defaults list, which only the command line reads: write extends: NAME",
    ),
}


@pytest.mark.parametrize(("text", "message"), EXTENDS.values(), ids=EXTENDS)
def test_an_extension_that_cannot_be_is_one_line(here: Path, text: str, message: str) -> None:
    (here / "graphs" / "mine.yaml").write_text(text)
    (here / "graphs" / "other.yaml").write_text("extends: mine\n")
    with pytest.raises(ConfigError) as caught:
        stepgraph.load("mine")
    assert message in str(caught.value)


def test_the_command_line_refuses_a_circle_too(here: Path, typed: Type) -> None:
    (here / "graphs" / "mine.yaml").write_text("extends: other\n")
    (here / "graphs" / "other.yaml").write_text("extends: mine\n")
    done = typed("plan", "graph=mine")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "extends itself" in done.err


def test_a_defaults_list_works_on_the_command_line(here: Path, typed: Type) -> None:
    (here / "graphs" / "mine.yaml").write_text("defaults: [grpo, _self_]\nname: mine\nkeep: {engine: device}\n")
    done = typed("plan", "graph=mine", "run.steps=2", "format=json")
    assert json.loads(done.out)["keep"] == {"policy": "any", "engine": "device"}


def test_an_empty_phase_that_nobody_declared_is_still_refused(here: Path) -> None:
    (here / "graphs" / "mine.yaml").write_text("extends: grpo\nstep: {audit: null}\n")
    with pytest.raises(GraphError, match="audit is empty"):
        stepgraph.load("mine")


# ---- a run of one's own parts, without any framework ---------------------------------------------------------------

ECHO = """
from stepgraph.runtime.contract import Rollout

class Echo:
    def __init__(self, shared, *, text="1"):
        self.text = text

    def generate(self, ctx, prompts):
        made = [Rollout(p, (1,), (2, 3), (0.0, 0.0), self.text, 0, p.index) for p in prompts.take()]
        return {"rollouts": made}

def note(rollouts, voice, ctx):
    ctx.log(**{"note/text": float(rollouts[0].text), "note/voice": float(voice.text)})

def quiet(rollouts, ctx):
    ctx.components["voice"]
"""
OWN = """
name: own
resources: {prompts: stream}
step:
  generate: {use: echo.generate, updates: [prompts], writes: [rollouts]}
  score: {use: rewards.score, reads: [rollouts], writes: [rewards]}
  note: {use: ./parts.py:note, reads: [rollouts]}
"""


@pytest.fixture
def parts(here: Path) -> Path:
    (here / "parts.py").write_text(ECHO)
    (here / "graphs" / "own.yaml").write_text(OWN)
    (here / "conf" / "component").mkdir()
    (here / "conf" / "component" / "echo.yaml").write_text("_target_: ./parts.py:Echo\ntext: '7'\n")
    return here


def test_components_of_one_s_own_run_beside_ours(parts: Path, typed: Type) -> None:
    own = ("graph=own", "placement=null", "run.steps=2", "run.dir=out")
    voice = "components.voice={_target_: ./parts.py:Echo, text: 5}"
    done = typed("run", *own, "+component@components.echo=echo", voice)
    assert (done.code, done.err) == (0, ""), done.out
    rows = [json.loads(line) for line in (parts / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["note/text"], row["note/voice"]) for row in rows] == [(7.0, 5.0), (7.0, 5.0)]


def test_a_function_that_cannot_be_called_is_refused_before_a_component_is_made(parts: Path, typed: Type) -> None:
    (parts / "loud.py").write_text("class Loud:\n    def __init__(self, shared):\n        raise SystemExit('made')\n")
    (parts / "wrong.py").write_text("def note(rollouts, cheese): ...\n")
    own = ("graph=own", "placement=null", "components.echo._target_=./loud.py:Loud")
    done = typed("run", *own, "graph.step.note.use=./wrong.py:note")
    assert (done.code, done.err) == (
        2,
        "stepgraph: note: ./wrong.py:note(rollouts, cheese) is given rollouts: missing a required argument: 'cheese'"
        "; let the phase read it, set it in options, or give it a default\n",
    )


def test_a_component_of_which_nothing_is_said_is_one_line(parts: Path, typed: Type) -> None:
    done = typed("run", "graph=own", "placement=null", "run.steps=2")
    assert done.code == 2
    assert done.err.startswith("stepgraph: component 'echo': the configuration has no section of that name; ")
    assert done.err.endswith("components.echo._target_=pkg.mod.Class makes one\n")


def test_a_run_refuses_a_function_that_is_not_here_before_anything_starts(parts: Path, typed: Type) -> None:
    words = ("graph=own", "placement=null", "graph.step.note.use=./none.py:note")
    for command in ("run", "check"):
        done = typed(command, *words)
        assert (done.code, done.err.count("\n"), "no file 'none.py'" in done.err) == (2, 1, True)
    assert not (parts / "runs").exists()


# ---- a function that never runs ------------------------------------------------------------------------------------

NEVER = """
from stepgraph import phase

@phase(moves={"policy": "host"})
def park(moves):
    return {}

@phase(reads=["rollouts"], writes=["sketch"], pure=True)
def sketch(rollouts):
    return {"sketch": len(rollouts)}
"""


def test_a_function_that_is_pruned_from_every_step_is_warned_of_with_what_would_keep_it(here: Path) -> None:
    (here / "never.py").write_text(NEVER)
    words = ["placement=split", "graph.step.sketch={use: ./never.py:sketch}"]
    plan = stepgraph.compile(stepgraph.load("grpo", words), steps=3)
    (warning,) = plan.warnings
    assert warning.startswith("step.sketch is pruned from every step: no later phase reads sketch")
    assert warning.endswith("graph.step.sketch.pure=false keeps it, and so does a phase that reads what it writes")
    kept = stepgraph.compile(stepgraph.load("grpo", [*words, "graph.step.sketch.pure=false"]), steps=3)
    assert kept.warnings == ()
    read = [*words, "graph.step.audit={use: ./audit.py:length_audit, reads: [rollouts, sketch]}"]
    assert stepgraph.compile(stepgraph.load("grpo", read), steps=3).warnings == ()


def test_what_a_warning_says_would_keep_a_handoff_does(here: Path) -> None:
    (here / "never.py").write_text(NEVER)
    words = ["placement=split", "~graph.keep.policy", "graph.step.park={use: ./never.py:park}"]
    (warning,) = stepgraph.compile(stepgraph.load("grpo", words), steps=3).warnings
    cure = warning.rpartition("; ")[2].removesuffix(" keeps it")
    assert cure.startswith("graph.keep.policy=")
    assert stepgraph.compile(stepgraph.load("grpo", [*words, cure]), steps=3).warnings == ()


def test_a_gate_that_a_short_run_never_reaches_is_no_news(here: Path) -> None:
    (here / "never.py").write_text(NEVER)
    words = ["graph.step.sketch={use: ./never.py:sketch, when: {every: 50}}"]
    assert stepgraph.compile(stepgraph.load("grpo", words), steps=3).warnings == ()


# ---- new phase -----------------------------------------------------------------------------------------------------


def test_a_new_phase_is_in_the_plan_and_its_test_passes(tmp_path: Path, typed: Type) -> None:
    done = typed("new", "phase", "token_count")
    assert (done.code, done.err) == (0, "")
    command = next(line for line in done.out.splitlines() if line.startswith("see it:")).split("stepgraph ")[1]
    shown = typed(*command.split(), "run.steps=2", "format=json")
    assert (shown.code, shown.err) == (0, "")
    assert "token_count" in document(shown.out)["0"]
    made = tmp_path / "tests" / "test_token_count.py"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(made)]
    ran = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


NEW = {
    "no kind": (["new"], "new wants a kind and a name: stepgraph new phase NAME"),
    "another kind": (
        ["new", "phas", "x"],
        "new wants a kind and a name, did you mean 'phase'?: stepgraph new phase NAME",
    ),
    "a name": (["new", "phase", "Audit-2"], "'Audit-2' is no name: use lower-case letters, digits and _"),
    "twice": (["new", "phase", "twice"], "phases/twice.py is there already: choose another name, or move it away"),
}


@pytest.mark.parametrize(("words", "message"), NEW.values(), ids=NEW)
def test_a_new_phase_that_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, typed: Type, words: list[str], message: str
) -> None:
    (tmp_path / "phases").mkdir()
    (tmp_path / "phases" / "twice.py").touch()
    done = typed(*words)
    assert (done.code, message in done.err) == (2, True)
    assert not (tmp_path / "tests").exists()
