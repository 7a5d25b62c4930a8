"""The embedded components, on torch and transformers. Naming one imports them; importing this package does not."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "TorchAverage": "average",
    "TorchEngine": "engine",
    "TorchFleet": "fleet",
    "TorchReference": "reference",
    "TorchTrainer": "trainer",
}

__all__ = ["TorchAverage", "TorchEngine", "TorchFleet", "TorchReference", "TorchTrainer"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
