"""The configuration's shape: Hydra refuses what does not fit it, and the commands read it as plain typed objects.

Sections that belong to a component stay mappings: the component's own file in ``conf/`` says which keys there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

NAME = "stepgraph_schema"


@dataclass
class RunSection:
    """How long, from where, and where to."""

    steps: int | None = None
    first: int = 0
    epochs: int | None = None
    steps_per_epoch: int | None = None
    extend: int | None = None
    seed: int = 0
    dir: str | None = None


@dataclass
class Config:
    """Everything that can be set. Hydra wants a mutable dataclass; nobody changes one after it was composed."""

    graph: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    components: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    executor: dict[str, Any] = field(default_factory=dict)
    transport: dict[str, Any] = field(default_factory=dict)
    tracker: dict[str, Any] = field(default_factory=dict)
    run: RunSection = field(default_factory=RunSection)
    step: int | None = None
    format: str = "text"
    passes: list[str] = field(default_factory=lambda: ["dead", "settled"])
    resume: str | None = None
    max_staleness: int | None = None
    strict: bool = False


def register() -> None:
    """Make the shape known to Hydra, under the name that ``conf/config.yaml`` starts from."""
    ConfigStore.instance().store(name=NAME, node=Config)
