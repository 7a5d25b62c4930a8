"""Small models for real engines, and what transformers itself would answer with a trainer's weights."""

from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

if find_spec("vllm") is None:
    collect_ignore = ["transfer_parts.py"]

DIGITS = {"task": "digits", "op": "copy", "length": 3, "batch": 4, "eval_size": 5}


def tiny(**changes):
    """A Qwen2 from nothing; wide enough that its greedy answers are no near-ties."""
    config = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 160,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
    }
    return {"name": "tiny", "config": config | changes, "tokenizer": "digits"}


class Context:
    """Stands for the runtime's: it logs into a dict and hands out folders."""

    def __init__(self, run_dir, components=(), seed=0, step=0):
        self.run_dir, self.components, self.seed, self.step, self.phase = run_dir, dict(components), seed, step, "phase"
        self.metrics = {}

    def log(self, **metrics):
        self.metrics |= metrics

    @contextmanager
    def checkpoint(self):
        folder = self.run_dir / f"checkpoint-{self.step}"
        folder.mkdir(parents=True)
        yield folder


@pytest.fixture
def shared(tmp_path):
    from stepgraph.runtime.contract import Shared

    def make(name="run", seed=0, **changes):
        return Shared(model=tiny(**changes), data=DIGITS, seed=seed, run_dir=tmp_path / name, devices="cpu")

    return make


@pytest.fixture
def ctx(tmp_path):
    def make(seed=0, step=0, **components):
        return Context(tmp_path, components, seed, step)

    return make


@pytest.fixture
def asked():
    """A stream of these texts."""
    from stepgraph.runtime.contract import Prompt

    def make(*texts):
        prompts = [Prompt(text, text.rstrip("="), index) for index, text in enumerate(texts)]
        return SimpleNamespace(take=lambda: prompts, cursor=0)

    return make


@pytest.fixture
def greedy():
    """The likeliest answer to each text, by transformers, with the weights that a trainer gives."""
    import torch

    from stepgraph.components.torch.model import build_config, build_model, build_tokenizer, encode, named_weights
    from stepgraph.components.torch.spec import ModelSpec

    def answer(weights, texts, model, count):
        spec = ModelSpec.of(model)
        assert build_config(spec)
        reference, tokenizer = build_model(spec, 99, torch.device("cpu")), build_tokenizer(spec)
        mine = named_weights(reference)
        with torch.no_grad():
            for name, tensor in weights.tensors():
                mine.pop(name).copy_(tensor)
        assert not mine
        ids = [torch.tensor([encode(tokenizer, text, chat=False)]) for text in texts]
        options = {"max_new_tokens": count, "do_sample": False, "pad_token_id": tokenizer.pad_token_id}
        return [tuple(reference.generate(one, **options)[0, one.shape[1] :].tolist()) for one in ids]

    return answer
