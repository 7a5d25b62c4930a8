"""Where a component's resources are, and the refusals when one is not where the work needs it.

Trainer and engine share this, so that a wrong move is refused with the same words by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from stepgraph.errors import RunError, did_you_mean


class Placed:
    """One resource and where it is: the moves and refusals that every stack has alike.

    ``lost`` says that the contents were dropped; who writes new ones calls ``filled``. A subclass says how it goes, how
    that is measured, and how much of it there is.
    """

    stack: str
    places: tuple[str, ...] = ("device", "host", "none")

    def __init__(self, resource: str) -> None:
        self.resource, self.place, self.lost = resource, "device", False

    def move(self, place: str) -> int:
        """Go to a place. Returns the bytes that the device really lost, or got back; 0 when already there."""
        if place not in self.places:
            hint, known = did_you_mean(place, self.places), ", ".join(self.places)
            raise RunError(
                f"{self.stack} cannot move '{self.resource}' to '{place}'{hint}; the places it has are {known}"
            )
        if place == self.place:
            return 0
        moved = self._measured(lambda: self._go(place))
        self.place, self.lost = place, self.lost or place == "none"
        return min(moved, self.nbytes)

    def filled(self) -> None:
        self.lost = False

    @property
    def nbytes(self) -> int:
        """The size of the contents, wherever they are."""
        raise NotImplementedError

    def _measured(self, act: Callable[[], None]) -> int:
        """Run ``act`` and return by how many bytes the device's memory changed."""
        raise NotImplementedError

    def _go(self, place: str) -> None:
        if self.place == "device":
            self._leave(place)
        elif place == "device":
            self._return()
        else:
            self._change(place)

    def _leave(self, place: str) -> None:
        raise NotImplementedError

    def _return(self) -> None:
        raise NotImplementedError

    def _change(self, place: str) -> None:
        """Go from one place off the device to another."""
        raise NotImplementedError


class Residency:
    """The parks of one component, by the name that the graph gives each resource."""

    def __init__(self, owner: str, parks: Mapping[str, Placed], places: Mapping[str, str] | None) -> None:
        self._owner, self._parks = owner, dict(parks)
        for name, place in (places or {}).items():
            self[name].move(place)

    def __getitem__(self, resource: str) -> Placed:
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
