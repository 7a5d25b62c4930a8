"""Configuration: the user's folders come first, graph keys need no ``+``, and Hydra's own flags work."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from stepgraph import paths
from stepgraph.cli.app import compose

from .conftest import Run

MINE = "name: mine\nresources: {log: sink}\nstep:\n  write: {use: mine.write, writes: [log]}\n"


def phases(text: str) -> set[str]:
    """The phases of every variant of a plan in JSON."""
    return {phase["name"] for variant in json.loads(text)["variants"] for phase in variant["phases"]}


def test_every_packaged_graph_is_a_choice(stepgraph: Run) -> None:
    names = [path.stem for path in (paths.home() / "graphs").glob("*.yaml")]
    assert "grpo" in names
    for name in names:
        done = stepgraph("plan", f"graph={name}", "placement=split", "run.steps=4", "format=json")
        assert (done.code, done.files) == (0, ())
        assert json.loads(done.out)["graph"] == name


def test_a_graph_of_the_users_is_found_and_shadows_a_packaged_one(here: Path, stepgraph: Run) -> None:
    (here / "graphs").mkdir()
    (here / "graphs" / "grpo.yaml").write_text(MINE)
    done = stepgraph("plan", "run.steps=2", "format=json", "placement.makes_room=null")
    assert done.err == ""
    assert phases(done.out) == {"write"}


def test_a_choice_in_the_users_conf_comes_before_a_packaged_one(here: Path, stepgraph: Run) -> None:
    (here / "conf" / "model").mkdir(parents=True)
    (here / "conf" / "model" / "tiny.yaml").write_text("mine: 1\n")
    assert "mine: 1" in stepgraph("plan", "--cfg", "job", "--package", "model").out


def test_folders_named_by_the_environment_are_searched(
    here: Path, monkeypatch: pytest.MonkeyPatch, stepgraph: Run
) -> None:
    (here / "elsewhere" / "graphs").mkdir(parents=True)
    (here / "elsewhere" / "graphs" / "mine.yaml").write_text(MINE)
    monkeypatch.setenv("STEPGRAPH_PATH", str(here / "elsewhere"))
    assert "name: mine" in stepgraph("plan", "graph=mine", "--cfg", "job").out


def test_folders_of_an_entry_point_are_searched(here: Path, monkeypatch: pytest.MonkeyPatch, stepgraph: Run) -> None:
    package = here / "lib" / "addon"
    (package / "graphs").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('not to be imported')")
    (package / "graphs" / "mine.yaml").write_text(MINE)
    monkeypatch.syspath_prepend(here / "lib")
    entry = metadata.EntryPoint("addon", "addon", paths.ENTRY_POINTS)
    monkeypatch.setattr(paths, "_plugins", paths._plugins.__wrapped__)
    monkeypatch.setattr(paths.metadata, "entry_points", lambda group: [entry] if group == paths.ENTRY_POINTS else [])
    assert "name: mine" in stepgraph("plan", "graph=mine", "--cfg", "job").out


def test_a_graph_key_needs_no_plus(stepgraph: Run) -> None:
    done = stepgraph("plan", "run.steps=4", "graph.step.eval.when.steps=[1]", "format=json")
    assert any("eval" in {p["name"] for p in v["phases"]} for v in json.loads(done.out)["variants"])


@pytest.mark.parametrize(
    "word", ["init={num_cpus: 7}", "init.num_cpus=7", "actors={trainer: {count: 7}}", "actors.trainer.count=7"]
)
def test_what_is_handed_on_to_ray_needs_no_plus(stepgraph: Run, word: str) -> None:
    done = stepgraph("plan", "executor=ray", f"executor.{word}", "--cfg", "job", "--package", "executor")
    assert (done.code, done.err) == (0, "")
    assert ": 7\n" in done.out


def test_a_phase_can_be_added_and_taken_out(stepgraph: Run) -> None:
    Path("audit.py").write_text("def audit(rollouts):\n    return {'report': len(rollouts)}\n")
    added = "graph.step.audit={use: ./audit.py:audit, reads: [rollouts], writes: [report]}"
    done = stepgraph("plan", "run.steps=20", added, "~graph.step.save", "~graph.start.eval", "format=json")
    assert done.err == ""
    assert "audit" in phases(done.out)
    assert "save" not in phases(done.out)


def test_an_empty_entry_of_start_can_be_taken_out(stepgraph: Run) -> None:
    done = stepgraph("plan", "run.steps=2", "placement=split", "~graph.start.reload_kv", "format=json")
    assert (done.code, done.err) == (0, "")


def test_a_group_can_be_taken_out(stepgraph: Run) -> None:
    assert stepgraph("plan", "tracker=null", "experiment=null").code == 0


def test_flags_may_stand_anywhere(stepgraph: Run) -> None:
    done = stepgraph("plan", "run.steps=7", "--cfg", "job", "graph.step.eval.when.every=3")
    assert done.code == 0
    assert "steps: 7" in done.out
    assert "every: 3" in done.out
    assert "hydra:" not in done.out


def test_a_sweep_runs_each_combination_and_leaves_no_files(stepgraph: Run) -> None:
    done = stepgraph("plan", "--multirun", "run.steps=2,3", "placement=split,colocated", "passes=[]", "format=calls")
    steps = [json.loads(line)["step"] for line in done.out.splitlines()]
    assert (done.code, done.files, steps.count(2)) == (0, (), 2 * 10)


def test_a_sweep_ends_with_the_worst_exit_code_of_its_jobs(stepgraph: Run) -> None:
    done = stepgraph("plan", "-m", "passes=[],[ded]", "run.steps=1", "format=calls")
    assert done.code == 2
    assert "passes names 'ded'" in done.err
    assert done.out.startswith('{"step"')


def test_the_default_configuration_has_no_dead_keys() -> None:
    config = compose(["experiment=demo"])
    assert config.run.steps > 0
    assert "hydra" not in config
