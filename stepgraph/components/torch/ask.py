"""Asks a saved checkpoint a question, with transformers alone: what a run leaves behind needs nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from stepgraph.components.torch.model import encode
from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import RunError


def answer(folder: str | Path, text: str, max_new_tokens: int = 16) -> str:
    """The likeliest answer of the model in ``folder`` to ``text``."""
    if not (Path(folder) / "config.json").is_file():
        raise RunError(f"no model to ask: '{folder}' has no config.json; name a folder that trainer.save wrote")
    set_threads()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    asked = tokenizer.pad({"input_ids": [encode(tokenizer, text, chat=True)]}, return_tensors="pt")
    made = model.generate(**asked, max_new_tokens=max_new_tokens, do_sample=False)
    return str(tokenizer.decode(made[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))
