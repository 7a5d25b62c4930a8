"""The run directory: refused before anything is built where it cannot hold the run, and never left half made."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError
from stepgraph.runtime.checkpoint import Checkpoint, find_checkpoint

RESULT = "result.json"
FINISHED = ("completed", "completed_with_warnings")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A directory to run in. ``checkpoint`` is what a resumed run goes on from; ``result`` is how it last ended."""

    path: Path
    checkpoint: Checkpoint | None = None
    result: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        return self.result is not None and self.result.get("status") in FINISHED


def prepare_run_dir(path: str | os.PathLike[str], resume: bool = False) -> Prepared:
    """Check that a run can be started, or gone on with, in this directory. Leaves nothing behind."""
    folder = Path(path).absolute()
    _writable(folder)
    prepared = Prepared(folder, find_checkpoint(folder), read_result(folder))
    if resume:
        return prepared
    if prepared.finished:
        raise ConfigError(f"{path}: holds a finished run; choose another run.dir, or resume=auto to go on from its end")
    if prepared.checkpoint is not None:
        done = prepared.checkpoint.state.completed
        raise ConfigError(
            f"{path}: holds a run saved after {done} steps; resume=auto goes on, or choose another run.dir"
        )
    return prepared


def read_result(folder: Path) -> dict[str, Any] | None:
    """How the last run in this directory ended, or ``None`` where none did."""
    file = folder / RESULT
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _writable(folder: Path) -> None:
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    if not existing.is_dir():
        raise ConfigError(f"run directory {folder}: {existing} is a file; choose another run.dir")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ConfigError(f"run directory {folder}: cannot write ({error.strerror}); choose another run.dir") from error
