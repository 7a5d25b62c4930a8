"""Where a component's resources are, and the refusals when one is not where the work needs it.

Trainer and engine share this, so that a wrong move is refused with the same words by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from stepgraph.errors import RunError, did_you_mean


class Movable(Protocol):
    """One resource that has a place. ``lost``: its contents were dropped; ``filled``: there are new ones."""

    place: str
    lost: bool

    def move(self, place: str) -> int: ...

    def filled(self) -> None: ...


class Residency:
    """The parks of one component, by the name that the graph gives each resource."""

    def __init__(self, owner: str, parks: Mapping[str, Movable], places: Mapping[str, str] | None) -> None:
        self._owner, self._parks = owner, dict(parks)
        for name, place in (places or {}).items():
            self[name].move(place)

    def __getitem__(self, resource: str) -> Movable:
        if resource in self._parks:
            return self._parks[resource]
        known, hint = ", ".join(self._parks), did_you_mean(resource, self._parks)
        raise RunError(f"{self._owner} has no resource '{resource}'{hint}; it has {known}")

    def move(self, moves: Mapping[str, str]) -> dict[str, int]:
        """Make the moves; the bytes that really went or came back, by resource."""
        return {resource: self[resource].move(place) for resource, place in moves.items()}

    def must_be_on_device(self, resource: str, call: str) -> None:
        place = self[resource].place
        if place != "device":
            raise RunError(
                f"{self._owner}.{call} needs '{resource}' on the device, but it is at '{place}'; reload it first"
            )

    def must_have_contents(self, resource: str, call: str) -> None:
        if self[resource].lost:
            raise RunError(
                f"{self._owner}.{call} needs '{resource}', but its contents were dropped; load or sync new ones first"
            )


def park_folder(run_dir: Path, wanted: str | None) -> Path:
    """Where parked tensors go on a machine without an accelerator: the run directory, unless a folder is named."""
    return run_dir / "park" if wanted is None else Path(wanted).expanduser()
