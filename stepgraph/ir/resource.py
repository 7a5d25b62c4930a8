"""Resources: what phases share, where it may be, and whether it holds anything worth keeping."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("value", "weights", "state", "scratch", "stream", "sink")
PLACES = ("device", "host", "none")
PLACED = frozenset({"weights", "state", "scratch"})
"""Kinds that have a place. The others are data that flows, or the outside world."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One shared thing. ``size`` is in GiB, ``None`` where nobody said; ``of`` names the component it belongs to."""

    name: str
    kind: str = "value"
    of: str = ""
    at: str = "host"
    size: float | None = None
    doc: str = ""

    @property
    def placed(self) -> bool:
        """Whether it is somewhere: on the device, on the host, freed."""
        return self.kind in PLACED

    @property
    def carried(self) -> bool:
        """Whether it has contents that live from step to step and can be lost."""
        return self.kind in ("weights", "state")
