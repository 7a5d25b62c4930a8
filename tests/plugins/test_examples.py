"""What stands under examples/: graphs that compile and run, and a package beside a wheel in a fresh environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stepgraph.testing import assert_never, assert_runs, assert_waits, plan_of, pruned, run_graph, steps_of

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPHS = EXAMPLES / "graphs"
REFERENCE = ("reload_reference", "ref_logprobs", "offload_reference")
WITH_KL = {"reference": "graph.step.train.reads.ref_logprobs=true"}


@pytest.mark.parametrize("name", sorted(path.stem for path in GRAPHS.glob("*.yaml")))
@pytest.mark.parametrize("placement", ["colocated", "split", "kv_only"])
def test_an_example_runs_under_every_placement(name: str, placement: str, tmp_path: Path) -> None:
    words = [f"placement={placement}", "graph.step.eval.when.last=true", "graph.step.save.when.every=2"]
    words += [WITH_KL[name]] if name in WITH_KL else []
    done = run_graph(GRAPHS / f"{name}.yaml", words, steps=3, run_dir=tmp_path / "run")
    assert done.result.status == "completed"
    assert done.plan.warnings == () or all("placement." in warning for warning in done.plan.warnings)


def test_a_reference_model_comes_and_goes_in_its_own_handoffs() -> None:
    words = ("placement=colocated", "placement.makes_room.reference=[engine]", WITH_KL["reference"])
    plan = plan_of(GRAPHS / "reference.yaml", *words, steps=4)
    for name in REFERENCE[:2]:
        assert_runs(plan, name, range(4))
    assert_waits(plan, "ref_logprobs", ["reload_reference"], 1)
    assert "ref_logprobs" in next(one for one in plan.step(1).phases if one.name == "train").after


def test_without_a_kl_weight_the_reference_model_is_never_touched() -> None:
    plan = plan_of(GRAPHS / "reference.yaml", "placement=colocated", "graph.step.train.reads.ref_logprobs=0")
    for name in REFERENCE:
        assert_never(plan, name)
    gone = pruned(plan, "reload_reference", 0)
    assert gone is not None
    assert gone.code == "only_feeds_pruned"


def test_an_eval_fleet_lets_the_sync_of_the_last_step_die() -> None:
    words = ("placement=colocated", "graph.step.eval.when.last=true")
    here, fleet = (plan_of(graph, *words, steps=20) for graph in ("grpo", GRAPHS / "eval_fleet.yaml"))
    assert (steps_of(here, "sync_weights")[-1], steps_of(fleet, "sync_weights")[-1]) == (19, 18)
    assert_runs(fleet, "eval", [9, 19])
    assert_runs(fleet, "export", [9, 19])
    assert_waits(fleet, "eval", ["export"], 19)


def test_a_moving_average_follows_every_update() -> None:
    done = run_graph(GRAPHS / "ema.yaml", ["placement=colocated"], steps=3)
    assert [step for step, name in done.calls if name == "update_ema"] == [0, 1, 2]


# ---- a package, installed ------------------------------------------------------------------------------------------


OFFLINE = ("graph=offline", "engine=echo", "placement=null", "run.steps=4")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with stepgraph's wheel and the plug-in's, and nothing that either does not ask for."""
    folder = tmp_path_factory.mktemp("fresh")
    wheels = [str(EXAMPLES.parent), str(EXAMPLES / "plugin")]
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "dist")]
    subprocess.run([*build, *wheels], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    made = sorted(map(str, (folder / "dist").glob("*.whl")))
    assert len(made) == 2
    subprocess.run([str(folder / "env/bin/python"), "-m", "pip", "install", "--quiet", *made], check=True)
    shutil.copytree(EXAMPLES / "plugin" / "user", folder / "user")
    return folder


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def typed(environment: Path, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STEPGRAPH"))}
    done = subprocess.run(
        [str(environment / "env/bin/stepgraph"), *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=environment / "user",
        env=kept,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@pytest.mark.slow
def test_an_installed_plugin_is_listed_planned_drawn_and_run_beside_the_wheel(environment: Path) -> None:
    listed = typed(environment, "show", "plugins")
    assert [line.split()[:3] for line in listed.splitlines() if line.startswith("  ")] == [
        ["echo", "stepgraph-length-audit", "0.3.0"],
        ["length_audit", "stepgraph-length-audit", "0.3.0"],
        ["length_audit", "stepgraph-length-audit", "0.3.0"],
    ]
    assert "BROKEN" not in listed
    for words in (["graph=audited"], ["+phase@graph.step.audit=length_audit"]):
        plan = json.loads(typed(environment, "plan", *words, "run.steps=4", "format=json"))
        audited = [v for v in plan["variants"] if "audit" in [phase["name"] for phase in v["phases"]]]
        assert {span["from"] % 2 for v in audited for span in v["steps"]} == {1}
    typed(environment, "show", "graph=audited", "run.steps=4", "-o", "audited.svg")
    assert "audit" in (environment / "user" / "audited.svg").read_text()
    typed(environment, "run", *OFFLINE, "run.dir=out")
    rows = metrics(environment / "user" / "out")
    assert [row.get("audit/longest") for row in rows] == [None, 3, None, 3]
    assert {row["reward/mean"] for row in rows} == {1.0}


@pytest.mark.slow
def test_the_fresh_environment_has_no_framework(environment: Path) -> None:
    code = "import importlib.util as u; print([n for n in ('torch', 'ray', 'transformers') if u.find_spec(n)])"
    done = subprocess.run(
        [str(environment / "env/bin/python"), "-c", code], check=True, capture_output=True, text=True, cwd=environment
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_newcomer_has_a_phase_in_the_picture_and_in_a_run_after_four_commands(environment: Path) -> None:
    """The first one, pip install, made the environment. Each of the others is typed as it is printed or documented."""
    said = typed(environment, "new", "phase", "token_count")
    (word,) = (line.split()[-1] for line in said.splitlines() if line.startswith("see it:"))
    typed(environment, "show", "-o", "picture.svg", word, *OFFLINE)
    typed(environment, "run", word, *OFFLINE, "run.dir=counted")
    assert "token_count" in (environment / "user" / "picture.svg").read_text()
    assert [row["token_count/tokens"] for row in metrics(environment / "user" / "counted")] == [96] * 4
    assert "From nothing to a phase of your own in the picture and in a run takes four commands" in " ".join(
        (EXAMPLES.parent / "docs" / "write-a-phase.md").read_text(encoding="utf-8").split()
    )


def installed(environment: Path, *what: str) -> None:
    """Install more into the environment, in versions that are known to work together; by uv, where there is one."""
    by = [[str(environment / "env/bin/python"), "-m", "pip", "install", "--quiet"]]
    if find_spec("uv") is not None:
        by.insert(0, [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", by[0][0]])
    words = ["-c", str(EXAMPLES.parent / "constraints.txt"), *what]
    links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    assert any(subprocess.run([*one, *words], check=False, env={**links, **os.environ}).returncode == 0 for one in by)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'stepgraph[ray]'")
def test_an_installed_plugin_runs_on_ray_as_it_does_here(environment: Path) -> None:
    (wheel,) = (environment / "dist").glob("stepgraph-[0-9]*.whl")
    installed(environment, f"{wheel}[ray]")
    dotted = "graph.step.again={use: stepgraph_length_audit.phases.length_audit, when: {steps: [0]}}"
    state = ("graph.resources.count=state", "graph.step.count={use: './mean.py:count', updates: [count]}")
    with (environment / "user" / "mean.py").open("a") as file:
        file.write(
            "\n\ndef count(count, ctx):\n    ctx.log(count=count or 0)\n    return {'count': (count or 0) + 1}\n"
        )
    typed(environment, "run", *OFFLINE, dotted, *state, "run.dir=here")
    typed(environment, "run", *OFFLINE, dotted, *state, "run.dir=there", "executor=ray")
    names = ("step", "reward/mean", "audit/longest", "count")
    here, there = (
        [[row.get(name) for name in names] for row in metrics(environment / "user" / run)] for run in ("here", "there")
    )
    assert there == here == [[0, 1.0, 3, 0], [1, 1.0, 3, 1], [2, 1.0, None, 2], [3, 1.0, 3, 3]]
