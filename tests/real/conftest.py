"""Small models for real engines, and what transformers itself would answer with a trainer's weights."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from small import DIGITS, Context, tiny

if find_spec("vllm") is None:
    collect_ignore = ["transfer_parts.py"]


def wide(**changes):
    """The small model; its greedy answers are no near-ties."""
    return tiny(max_position_embeddings=160, initializer_range=0.2, **changes)


@pytest.fixture
def shared(tmp_path):
    from stepgraph.runtime.contract import Shared

    def make(name="run", seed=0, **changes):
        return Shared(model=wide(**changes), data=DIGITS, seed=seed, run_dir=tmp_path / name, devices="cpu")

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
