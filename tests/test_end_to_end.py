"""The main job, with the real components: a tiny model is trained for a few steps by the command line's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepgraph.cli import main

HANDOVER = {"offload_policy", "reload_engine", "sync_weights", "reload_kv"}


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the demo's experiment for three steps; returns its directory."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str) -> Path:
        words = ["run", "experiment=demo", "run.steps=3", "run.dir=out", "data.batch=4", "data.eval_size=4", *overrides]
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main(words))
        assert ended.value.code == 0
        return tmp_path / "out"

    return run


def events(run_dir: Path, step: int | None) -> dict[str, dict[str, Any]]:
    """What ended in a step, by phase."""
    lines = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    return {one["phase"]: one for one in lines if one["event"] == "end" and one["step"] == step}


def test_after_the_last_step_nothing_is_handed_back(train: Any) -> None:
    run_dir = train()
    assert HANDOVER.issubset(events(run_dir, 1))
    assert events(run_dir, 2).keys() == {"generate", "offload_engine", "reload_policy", "score", "train", "save"}
    plan = json.loads((run_dir / "plan.json").read_text())
    assert HANDOVER.issubset({one["name"] for one in plan["variants"][-1]["pruned"]})


def test_a_last_eval_brings_the_handover_back_and_reads_the_last_version(train: Any) -> None:
    last = events(train("graph.step.eval.when.last=true"), 2)
    assert HANDOVER.issubset(last)
    assert last["train"]["versions_written"] == {"policy": 3}
    assert last["eval"]["versions_read"] == {"engine": 3}
    assert last["eval"]["sinks"]["scores"]["version"] == 3


def test_every_rollout_is_made_by_the_version_that_the_step_trains(train: Any) -> None:
    run_dir = train()
    assert [events(run_dir, k)["generate"]["versions_read"] for k in range(3)] == [{"engine": k} for k in range(3)]
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["staleness"] for line in lines if line["step"] is not None] == [0, 0, 0]


def test_where_everything_has_its_own_device_nothing_is_offloaded_or_reloaded(train: Any) -> None:
    run_dir = train("placement=split")
    names = {name for step in (None, 0, 1, 2) for name in events(run_dir, step)}
    assert names == {"generate", "score", "train", "sync_weights", "save"}


def test_both_placements_train_the_same_model(train: Any, tmp_path: Path) -> None:
    colocated = (train() / "checkpoints" / "step_000002" / "model.safetensors").read_bytes()
    split = train("placement=split", "run.dir=other").parent / "other" / "checkpoints" / "step_000002"
    assert colocated == (split / "model.safetensors").read_bytes()


def test_a_saved_model_is_loaded_by_transformers_and_answers(train: Any) -> None:
    transformers = pytest.importorskip("transformers")
    folder = train() / "checkpoints" / "step_000002"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)("123=", return_tensors="pt")
    assert model.generate(words["input_ids"], max_new_tokens=3).shape[1] == words["input_ids"].shape[1] + 3


def test_a_run_of_no_steps_evaluates_once_where_asked_and_trains_nothing(train: Any) -> None:
    run_dir = train("run.steps=0", "graph.start.eval.enabled=true")
    assert events(run_dir, None)["eval"]["sinks"]["scores"]["version"] == 0
    assert "train" not in events(run_dir, None)
    assert not (run_dir / "checkpoints" / "latest").exists()
