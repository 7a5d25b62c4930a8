"""The graphs under examples/ with real parts: a reference model, a fleet that evaluates, an average of the policy."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import GraphError
from stepgraph.spec import parse
from stepgraph.testing import plan_of

from .conftest import Done, Type

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = ("reload_reference", "ref_logprobs", "offload_reference")
real = pytest.mark.skipif(find_spec("torch") is None, reason="the parts are built on torch")


@pytest.fixture
def there(tmp_path: Path, typed: Type) -> Path:
    """An empty folder with the graphs and experiments of examples/."""
    for folder in ("graphs", "conf"):
        shutil.copytree(EXAMPLES / folder, tmp_path / folder)
    return tmp_path


def ran(typed: Type, *words: str) -> None:
    done = typed("run", "data.batch=8", "data.eval_size=8", "engine.group=4", *words)
    assert (done.code, done.err) == (0, ""), done


def told(done: Done) -> Any:
    assert (done.code, done.err) == (0, ""), done
    return json.loads(done.out)


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["step"] is not None]


def calls(folder: Path, step: int) -> list[str]:
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [one["phase"] for one in events if one["event"] == "start" and one["step"] == step]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "model.safetensors")
    return found


# ---- contents that may be taken out --------------------------------------------------------------------------------


def test_an_entry_of_a_mapping_of_contents_is_taken_out_by_false_null_and_zero() -> None:
    def reads(said: Any) -> tuple[str, ...]:
        step = {"a": {"use": "x.a", "writes": ["one", "two"]}, "b": {"use": "x.b", "reads": {"one": True, "two": said}}}
        return parse({"step": step}).step[1].reads

    assert [reads(said) for said in (True, 0.5, False, 0, 0.0, None)] == [*[("one", "two")] * 2, *[("one",)] * 4]
    with pytest.raises(GraphError, match=r"step.b.reads.two is 'no': write true, false or a number"):
        reads("no")


def test_what_only_the_command_line_resolves_is_refused_from_python_with_its_cure() -> None:
    graph = EXAMPLES / "graphs" / "reference.yaml"
    with pytest.raises(GraphError, match=r"say step.train.reads.ref_logprobs=true or =false"):
        plan_of(graph)
    assert plan_of(graph, "graph.step.train.reads.ref_logprobs=true", steps=2).steps == 2


# ---- a reference model ---------------------------------------------------------------------------------------------


def test_a_kl_weight_of_0_takes_the_reference_model_out_of_every_step(there: Path, typed: Type) -> None:
    words = ("plan", "experiment=reference", "run.steps=3", "format=json")
    with_kl, without = told(typed(*words)), told(typed(*words, "trainer.kl=0"))
    assert all(set(REFERENCE) <= {phase["name"] for phase in one["phases"]} for one in with_kl["variants"])
    gone = [{phase["name"]: phase["code"] for phase in one["pruned"]} for one in without["variants"]]
    codes = {
        "reload_reference": "only_feeds_pruned",
        "ref_logprobs": "no_consumer",
        "offload_reference": "already_there",
    }
    assert all(codes.items() <= one.items() for one in gone)
    train = next(phase for phase in without["variants"][0]["phases"] if phase["name"] == "train")
    assert sorted(train["after"]) == ["reload_policy", "score"]


@real
@pytest.mark.torch
def test_a_reference_model_gives_the_distance_that_the_trainers_own_copy_gives(there: Path, typed: Type) -> None:
    ran(typed, "experiment=reference", "trainer.kl=0.5", "run.steps=3", "run.dir=apart")
    ran(typed, "experiment=demo", "trainer.kl=0.5", "run.steps=3", "run.dir=inside")
    ran(typed, "experiment=reference", "trainer.kl=0", "run.steps=3", "run.dir=without")
    apart, inside, without = (metrics(there / name) for name in ("apart", "inside", "without"))
    for mine, other in zip(apart, inside, strict=True):
        assert mine["policy/kl"] == pytest.approx(other["policy/kl"], abs=1e-6)
        assert mine["policy/loss"] == pytest.approx(other["policy/loss"], abs=1e-6)
    assert apart[2]["policy/kl"] > 1e-4
    assert [row["policy/kl"] for row in without] == [0, 0, 0]
    assert [set(REFERENCE) <= set(calls(there / "apart", step)) for step in range(3)] == [True] * 3
    assert not any(set(REFERENCE) & set(calls(there / "without", step)) for step in range(3))


@real
@pytest.mark.torch
def test_a_run_without_a_kl_weight_does_not_even_build_the_reference_model(there: Path, typed: Type) -> None:
    broken = "components.reference.temprature=1"
    ran(typed, "experiment=reference", "trainer.kl=0", broken, "run.steps=1", "run.dir=without")
    done = typed("run", "experiment=reference", broken, "run.steps=1", "run.dir=with")
    assert (done.code, "reference: TorchReference has no option 'temprature', did you mean" in done.err) == (2, True)


# ---- a fleet -------------------------------------------------------------------------------------------------------


@real
@pytest.mark.torch
def test_a_fleet_finds_what_the_engine_would_have_found_and_the_last_sync_is_gone(there: Path, typed: Type) -> None:
    own = ("graph.step.eval.when={every: 2, last: true}", "run.steps=3")
    ran(typed, "experiment=eval_fleet", *own, "run.dir=fleet")
    ran(typed, "experiment=demo", *own, "run.dir=engine")
    fleet, engine = (metrics(there / name) for name in ("fleet", "engine"))
    assert [row.get("eval/reward") for row in fleet] == [row.get("eval/reward") for row in engine]
    assert fleet[1]["eval/reward"] is not None
    assert [name in calls(there / "fleet", 2) for name in ("eval", "export", "sync_weights")] == [True, True, False]
    assert "sync_weights" in calls(there / "engine", 2)
    assert sorted(path.name for path in (there / "fleet" / "exports").iterdir()) == ["version_000002", "version_000003"]


# ---- an average ----------------------------------------------------------------------------------------------------


@real
@pytest.mark.torch
def test_an_average_follows_each_update_is_saved_and_gone_on_with(there: Path, typed: Type) -> None:
    import torch

    every = ("experiment=ema", "graph.step.save.when.every=1")
    ran(typed, *every, "run.steps=3", "run.dir=whole")
    ran(typed, *every, "run.steps=2", "run.dir=parts")
    ran(typed, *every, "run.steps=3", "run.dir=parts", "resume=auto")
    saved = [there / "whole" / "checkpoints" / f"step_{step:06d}" for step in range(3)]
    policies, averages = ([weights(folder / who) for folder in saved] for who in ("trainer", "ema"))
    for before, policy, after in zip(averages, policies[1:], averages[1:], strict=False):
        for name, tensor in after.items():
            torch.testing.assert_close(tensor, 0.9 * before[name] + 0.1 * policy[name])
    again = weights(there / "parts" / "checkpoints" / "step_000002" / "ema")
    assert all(torch.equal(again[name], tensor) for name, tensor in averages[2].items())
    assert any(not torch.equal(policies[2][name], tensor) for name, tensor in averages[2].items())


@real
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'stepgraph[ray]'")
def test_on_ray_a_component_of_ones_own_gets_the_weights_that_it_reads(there: Path, typed: Type) -> None:
    import torch

    ran(typed, "experiment=ema", "run.steps=2", "run.dir=here")
    ran(typed, "experiment=ema", "run.steps=2", "run.dir=there", "executor=ray")
    here, far = (weights(there / run / "checkpoints" / "step_000001" / "ema") for run in ("here", "there"))
    assert all(torch.equal(far[name], tensor) for name, tensor in here.items())


WRONG = {
    "a decay": ("components.ema.decay=1", "the average's decay is 1; it must be from 0 up to, not including, 1"),
    "a place": ("placement.at.ema=device", "ema starts at device, but the average stays in host memory: say at: host"),
}


@real
@pytest.mark.torch
@pytest.mark.parametrize(("word", "message"), WRONG.values(), ids=WRONG)
def test_an_average_that_cannot_be_is_refused_in_one_line(there: Path, typed: Type, word: str, message: str) -> None:
    done = typed("run", "experiment=ema", word, "run.steps=1", "run.dir=out")
    assert (done.code, done.err) == (2, f"stepgraph: {message}\n")
    assert not (there / "out" / "events.jsonl").exists()


# ---- weights that a body reads -------------------------------------------------------------------------------------

OWN = """
def norm(weights, ctx):
    (source,) = weights.values()
    ctx.log(norm=sum(float(tensor.norm()) for _, tensor in source.tensors()), version=source.version)
"""


@real
@pytest.mark.torch
def test_a_function_is_given_the_weights_that_it_reads(there: Path, typed: Type) -> None:
    (there / "own.py").write_text(OWN)
    ran(
        typed,
        "experiment=demo",
        "graph.step.norm={use: './own.py:norm', reads: [policy], after: train}",
        "run.steps=2",
        "run.dir=out",
    )
    rows = metrics(there / "out")
    assert [row["version"] for row in rows] == [1, 2]
    assert rows[0]["norm"] != rows[1]["norm"] > 0


def test_weights_that_nobody_gives_are_refused(there: Path, typed: Type) -> None:
    (there / "own.py").write_text(OWN)
    reads = "graph.step.norm={use: './own.py:norm', reads: [rollouts]}"
    done = typed("run", "experiment=demo", reads, "run.steps=1", "run.dir=out")
    assert (done.code, "norm: ./own.py:norm(weights, ctx) is given rollouts, ctx: " in done.err) == (2, True)
