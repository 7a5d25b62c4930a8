"""Reads the model section of a configuration, without a tensor library: a slip is refused before anything loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean

DTYPES = ("float32", "bfloat16", "float16")
TOKENIZERS = ("digits",)
PATHS = ("/", ".", "~")
"""What a folder may begin with, and a hub name may not."""


@dataclass(frozen=True)
class ModelSpec:
    """Where the first weights come from: a hub name or a folder (``source``), or nowhere (``config``)."""

    name: str = "model"
    source: str | None = None
    package: str | None = None
    revision: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
    dtype: str = "float32"
    chat: bool = True
    threads: int | None = None

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> ModelSpec:
        known = [f.name for f in fields(cls)]
        for key in model:
            if key not in known:
                hint = did_you_mean(str(key), known)
                raise ConfigError(f"a model has no option '{key}'{hint}; it has {', '.join(known)}")
        spec = cls(**model)
        _check(spec)
        return spec


def check_model(model: Mapping[str, Any]) -> None:
    """Refuse a model section that cannot be built: ConfigError with the option that is wrong."""
    ModelSpec.of(model)


def _check(spec: ModelSpec) -> None:
    if bool(spec.source) == bool(spec.config):
        raise ConfigError("a model has either model.source (a hub name or a folder) or model.config (random weights)")
    if spec.source and spec.source.startswith(PATHS) and not Path(spec.source).expanduser().is_dir():
        raise ConfigError(f"model.source={spec.source}: there is no such folder; name one with a model, or a hub name")
    if spec.dtype not in DTYPES:
        raise ConfigError(
            f"model.dtype is {spec.dtype!r}{did_you_mean(str(spec.dtype), DTYPES)}; it may be {_list(DTYPES)}"
        )
    if spec.config and "model_type" not in spec.config:
        raise ConfigError("model.config needs a model_type, a name that transformers knows, such as qwen2 or llama")
    if spec.config and spec.tokenizer is None:
        raise ConfigError(
            f"a model with random weights needs model.tokenizer: {_list(TOKENIZERS)}, a hub name or a folder"
        )


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(words)
