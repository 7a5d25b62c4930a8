"""What a body is given: which step and phase it is, a seed of its own, and where numbers and checkpoints go."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True)
class RunContext:
    """The runtime's ``Context``. ``hooks`` are the phase's, resolved; ``attempt`` counts from 0; ``versions`` are those
    of weights and state when the phase begins.
    """

    step: int | None
    phase: str
    run_dir: Path
    seed: int
    components: Mapping[str, Any]
    record: Callable[[Mapping[str, float]], None]
    saver: Callable[[], AbstractContextManager[Path]]
    hooks: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def rng(self) -> Random:
        """A generator of random numbers that starts from the seed, anew each time it is asked for."""
        return Random(self.seed)

    def log(self, **metrics: float) -> None:
        """Add numbers to the metrics of the step."""
        self.record(metrics)

    def checkpoint(self) -> AbstractContextManager[Path]:
        """A fresh folder to write to; leaving it without an error commits the checkpoint."""
        return self.saver()


def seed_of(seed: int, phase: str, step: int | None) -> int:
    """A seed made of the run's seed, the phase and the step alone, so that a resumed run draws the same numbers."""
    digest = hashlib.blake2b(f"{seed}/{phase}/{step}".encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big")
