"""State that belongs to no component: the run holds it, hands it to whoever reads it, and saves it with a checkpoint.

What a phase changes for a later step may be changed before an earlier step is saved. So the latest contents are kept by
the step that they are for, and a checkpoint takes those of the steps that it says are done.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stepgraph.errors import RunError
from stepgraph.ir.graph import Graph
from stepgraph.runtime.plans import held

FILE = "held.pickle"
STEPS = 8
"""Contents of so many steps are remembered: saves are not older."""


class Held:
    """The contents of a graph's states without a component; ``None`` where nothing has given them any yet."""

    def __init__(self, graph: Graph) -> None:
        self.names = held(graph, tuple(graph.resources))
        self._latest: dict[str, Any] = dict.fromkeys(self.names)
        self._by_step: dict[str, dict[int, Any]] = {name: {} for name in self.names}

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """What a phase gets that reads or updates these."""
        return {name: self._latest[name] for name in names if name in self.names}

    def put(self, name: str, step: int, contents: Any) -> None:
        """Take what a phase gave back, for a step."""
        self._latest[name] = self._by_step[name][step] = contents
        while len(self._by_step[name]) > STEPS:
            del self._by_step[name][min(self._by_step[name])]

    def upto(self, step: int) -> dict[str, Any]:
        """The contents when a step is done, whatever was given for later ones."""
        found: dict[str, Any] = {}
        for name, known in self._by_step.items():
            upto = [one for one in known if one <= step]
            found |= {name: known[max(upto)]} if upto else {}
        return found

    def load(self, folder: Path, step: int) -> None:
        """Go on with what a checkpoint has."""
        saved = read(folder)
        for name in self.names:
            if name in saved:
                self.put(name, step, saved[name])


def write(folder: Path, contents: Mapping[str, Any]) -> None:
    """Save contents in a checkpoint."""
    packed = {name: _packed(name, one) for name, one in contents.items()}
    if packed:
        (folder / FILE).write_bytes(pickle.dumps(packed))


def read(folder: Path) -> dict[str, Any]:
    """What ``write`` saved; nothing where it saved nothing."""
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        return {name: pickle.loads(packed) for name, packed in pickle.loads(file.read_bytes()).items()}
    except Exception as error:  # a file cut short, or classes that are gone
        raise RunError(f"'{file}' cannot be read ({type(error).__name__}: {error}); was its code moved?") from error


def _packed(name: str, contents: Any) -> bytes:
    try:
        return pickle.dumps(contents)
    except Exception as error:  # whatever the contents are made of
        said = " ".join(str(error).split())
        raise RunError(f"the state {name!r} cannot be saved: {said}; keep in it what can be pickled") from error
