"""A trainer on DeepSpeed. Naming it imports DeepSpeed; importing this package does not."""

from __future__ import annotations

from typing import Any

__all__ = ["DeepSpeedTrainer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stepgraph.components.deepspeed.trainer import DeepSpeedTrainer

    return DeepSpeedTrainer
