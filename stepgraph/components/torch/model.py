"""Builds a model and its tokenizer from the model section; trainer and engine start from the same weights.

Weights that come packed (a GGUF inside a Python package) are unpacked once into a folder of the cache, because reading
them takes twenty seconds and reading the folder takes half of one; two processes that do so at once do no harm.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from stepgraph.components.torch.spec import ModelSpec
from stepgraph.components.torch.tokenizer import digits_tokenizer
from stepgraph.errors import ConfigError, RunError

logging.disable_progress_bar()


def pick_device(devices: str) -> torch.device:
    """The device that ``devices`` names; ``auto`` is the first accelerator, or the CPU."""
    if devices == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=devices).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"devices={devices} is not on this machine ({str(error).splitlines()[0]}); use auto or cpu"
        ) from error


def build_model(spec: ModelSpec, seed: int, device: torch.device) -> Any:
    """A causal language model with its first weights, in memory of its own on ``device``."""
    model = _load(spec) if spec.source else _new(spec, seed)
    for tensor in named_weights(model).values():
        tensor.data = tensor.data.to(device, copy=True)  # a loaded tensor may be a window on its file
    return model.to(device).eval()


def build_tokenizer(spec: ModelSpec) -> Any:
    """The model's tokenizer; it pads on the left, so that every answer of a batch starts in one column."""
    if spec.tokenizer == "digits":
        return digits_tokenizer()
    tokenizer = _pretrained(AutoTokenizer, spec.tokenizer or _where(spec), spec)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode(tokenizer: Any, text: str, chat: bool) -> list[int]:
    """A prompt's token ids, in the chat template where the tokenizer has one and ``chat`` is not off."""
    if chat and tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    else:
        ids = tokenizer(text)["input_ids"]
    return _readable(tokenizer, text, ids)


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint of the model holds, by name; of tied tensors only the first one."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not any(tensor is other for other in found.values()):
            found[name] = tensor
    return found


def _readable(tokenizer: Any, text: str, ids: list[int]) -> list[int]:
    unknown = tokenizer.unk_token_id
    if not ids or (unknown is not None and unknown in ids):
        raise RunError(
            f"the model's tokenizer cannot read the prompt {text[:40]!r}; choose a model with a larger vocabulary"
        )
    return ids


def build_config(spec: ModelSpec) -> Any:
    """The model's configuration alone: no weights are made or read."""
    return _pretrained(AutoConfig, _where(spec), spec) if spec.source else _new_config(spec)


def outline(config: Any) -> Any:
    """The model of a configuration with names and shapes, and no memory: what fits it can be known without it."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _new_config(spec: ModelSpec) -> Any:
    options = dict(spec.config)
    tokenizer = build_tokenizer(spec)
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    options = {"vocab_size": len(tokenizer), **special, **options}
    try:
        return AutoConfig.for_model(options.pop("model_type"), **options)
    except ValueError as error:
        raise ConfigError(f"model.config: {str(error).splitlines()[0][:200]}") from error


def _new(spec: ModelSpec, seed: int) -> Any:
    config = _new_config(spec)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, spec.dtype))


def _load(spec: ModelSpec) -> Any:
    return _pretrained(AutoModelForCausalLM, _where(spec), spec, dtype=getattr(torch, spec.dtype))


def _pretrained(cls: Any, where: str | Path, spec: ModelSpec, **options: Any) -> Any:
    if spec.revision is not None and not Path(where).is_dir():
        options["revision"] = spec.revision
    try:
        return cls.from_pretrained(where, **options)
    except (OSError, ValueError) as error:
        cause = str(error).strip().splitlines()[0]
        raise ConfigError(f"cannot load the model '{where}': {cause} (set model.source to a local folder?)") from error


def _where(spec: ModelSpec) -> str | Path:
    """The folder or the hub name to load: a folder as it is, the installed package before the hub."""
    source = str(spec.source)
    if Path(source).expanduser().is_dir():
        return Path(source).expanduser()
    packed = _packed(spec.package) if spec.package else None
    return source if packed is None else _unpacked(packed, spec)


def _packed(package: str) -> Path | None:
    """The GGUF file that an installed package carries. It is looked up, not imported: importing wants more."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def _unpacked(packed: Path, spec: ModelSpec) -> Path:
    stamp = packed.stat()
    folder = cache() / f"{packed.stem}-{spec.dtype}-{stamp.st_size:x}-{int(stamp.st_mtime):x}"
    if not folder.is_dir():
        _unpack(packed, folder, getattr(torch, spec.dtype))
    return folder


def _unpack(packed: Path, folder: Path, dtype: torch.dtype) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="unpacking-", dir=folder.parent))
    try:
        _as_plain(packed, dtype).save_pretrained(beside)
        AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name).save_pretrained(beside)
        beside.replace(folder)
    except ImportError as error:
        raise ConfigError(f"'{packed.name}' needs two packages: pip install gguf accelerate") from error
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster, and its folder is as good
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _as_plain(packed: Path, dtype: torch.dtype) -> Any:
    """The model without its quantization: transformers does not save one that was read from a GGUF."""
    read = AutoModelForCausalLM.from_pretrained(packed.parent, gguf_file=packed.name, dtype=dtype)
    config = read.config.__class__.from_dict(_without(read.config.to_dict(), "quantization_config"))
    plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    return plain


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def cache() -> Path:
    """Where unpacked models are kept: ``STEPGRAPH_CACHE``, or a folder of the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "stepgraph"
    return Path(os.environ.get("STEPGRAPH_CACHE", default)).expanduser()


def weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights by name, without their history."""
    for name, tensor in named_weights(model).items():
        yield name, tensor.detach()
