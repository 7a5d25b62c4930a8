"""Asks a saved checkpoint a question, with transformers alone: what a run leaves behind needs nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stepgraph.components.torch.model import build_model, build_tokenizer, encode
from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import RunError


@dataclass(frozen=True)
class Model:
    """A model that can be asked, and the tokenizer that it reads with."""

    model: Any
    tokenizer: Any
    chat: bool = True

    def answer(self, text: str, max_new_tokens: int = 16) -> str:
        """The likeliest answer to ``text``."""
        ids = encode(self.tokenizer, text, chat=self.chat)
        asked = self.tokenizer.pad({"input_ids": [ids]}, return_tensors="pt")
        made = self.model.generate(**asked, max_new_tokens=max_new_tokens, do_sample=False)
        return str(self.tokenizer.decode(made[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))


def saved(folder: str | Path, chat: bool = True) -> Model:
    """The model of a checkpoint."""
    if not (Path(folder) / "config.json").is_file():
        raise RunError(f"no model to ask: '{folder}' has no config.json; name a folder that trainer.save wrote")
    set_threads()
    return Model(AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), chat)


def untrained(model: Mapping[str, Any], seed: int) -> Model:
    """The model that a run with this section and seed starts from."""
    spec = ModelSpec.of(model)
    set_threads(spec.threads)
    return Model(build_model(spec, seed, torch.device("cpu")), build_tokenizer(spec), spec.chat)


def answer(folder: str | Path, text: str, max_new_tokens: int = 16) -> str:
    """The likeliest answer of the model in ``folder`` to ``text``."""
    return saved(folder).answer(text, max_new_tokens)
