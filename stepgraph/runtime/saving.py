"""One checkpoint of a step, made by one phase or by several that write the same sink: all of their parts, or none.

A trainer and a critic that save in phases of their own belong to one state: half of it could not be resumed from.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from stepgraph.runtime import held
from stepgraph.runtime.checkpoint import FOLDER, RunState, commit, name_of

Committed = Callable[[Path, RunState], None]


class Saving:
    """Collects the parts of the phases in ``names`` and commits when the last of them is written.

    Where it ``holds`` something, the contents of the run's own state belong to it, too, and it waits for them.
    """

    def __init__(
        self, run_dir: Path, names: set[str], keep: int | None, committed: Committed, holds: bool = False
    ) -> None:
        self._root = run_dir / FOLDER
        self._waiting = set(names)
        self._several = len(names) > 1
        self._keep = keep
        self._committed = committed
        self._lock = Lock()
        self._state: RunState | None = None
        self._broken = False
        self._held: Mapping[str, Any] | None = None if holds else {}
        self.temporary: Path | None = None
        self.final: Path | None = None

    @contextmanager
    def part(self, phase: str, folder: str, state: RunState) -> Iterator[Path]:
        """A fresh folder for what one phase saves."""
        path = self._fresh(folder, state)
        try:
            yield path
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        self._written(phase)

    def place(self, folder: str, state: RunState) -> Path:
        """Where a part goes that is written elsewhere; ``fresh`` makes it there and ``arrived`` tells of it here."""
        with self._lock:
            return self._place(folder, state)

    def arrived(self, phase: str, state: RunState) -> None:
        """The phase's part lies in its place, whole."""
        with self._lock:
            self._state = state
        self._written(phase)

    def hold(self, contents: Mapping[str, Any]) -> None:
        """The run's own state, as it is when the step is done. Only the first word counts."""
        with self._lock:
            if self._held is None:
                self._held = contents
                self._finish()

    def lasting(self, sinks: Mapping[str, Any]) -> dict[str, Any]:
        """What a phase said of its sinks, with the folder's lasting name in place of the temporary one."""
        if self.temporary is None or self._state is None:
            return dict(sinks)
        old, new = str(self.temporary), str(self.final or self._root / name_of(self._state.step))
        return {name: said.replace(old, new) if isinstance(said, str) else said for name, said in sinks.items()}

    def leave(self, phase: str, failed: bool) -> None:
        """The phase is over: without its part, where it failed, there is no checkpoint."""
        with self._lock:
            self._broken = self._broken or failed
            self._waiting.discard(phase)
            self._finish()

    def _fresh(self, folder: str, state: RunState) -> Path:
        with self._lock:
            self._state = state
            return fresh(self._place(folder, state))

    def _place(self, folder: str, state: RunState) -> Path:
        self.temporary = self._root / f".{name_of(state.step)}.{os.getpid()}.new"
        return self.temporary / folder if self._several else self.temporary

    def _written(self, phase: str) -> None:
        with self._lock:
            self._waiting.discard(phase)
            self._finish()

    def _finish(self) -> None:
        if self._waiting or self.final or self.temporary is None or self._state is None or self._held is None:
            return
        if self._broken:
            shutil.rmtree(self.temporary, ignore_errors=True)
            return
        held.write(self.temporary, self._held)
        self.final = commit(self.temporary, self._root, self._state, self._keep)
        self._committed(self.final, self._state)


@dataclass(frozen=True, slots=True)
class Part:
    """What one phase saves: called, it gives the folder to write to."""

    saving: Saving
    phase: str
    folder: str
    state: RunState

    def __call__(self) -> AbstractContextManager[Path]:
        return self.saving.part(self.phase, self.folder, self.state)

    def place(self) -> Path:
        """Where the folder will be."""
        return self.saving.place(self.folder, self.state)


def fresh(path: Path) -> Path:
    """Make an empty folder, whatever was there before."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
