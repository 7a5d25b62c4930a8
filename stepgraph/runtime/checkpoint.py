"""Checkpoints that a crash cannot spoil: written beside, fsynced, marked, renamed, pointed to; then old ones go.

Whatever instant the machine dies at, ``find_checkpoint`` gives a whole one: the new one or the one before it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "checkpoints"
POINTER = "latest"
MARKER = "COMPLETE"
STATE = "state.json"


@dataclass(frozen=True, slots=True)
class RunState:
    """What the runtime itself must know to go on. ``cursors`` count batches consumed, not those taken ahead."""

    step: int
    completed: int
    cursors: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    graph: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint on disk, and the state that was saved with it."""

    path: Path
    state: RunState


def find_checkpoint(run_dir: str | os.PathLike[str]) -> Checkpoint | None:
    """The checkpoint that a run in this directory goes on from, or ``None``."""
    root = Path(run_dir) / FOLDER
    pointed = _pointed(root)
    if pointed is not None and _whole(pointed):
        return _read(pointed)
    found = [_read(folder) for folder in root.glob("*") if not folder.name.startswith(".") and _whole(folder)]
    return max(found, key=lambda one: (one.state.completed, one.path.name), default=None)


def name_of(step: int) -> str:
    """The folder's name for the checkpoint of a step; one made before the first step is called ``start``."""
    return f"step_{step:06d}" if step >= 0 else "start"


def commit(temporary: Path, root: Path, state: RunState, keep: int | None = None) -> Path:
    """Make a written folder the latest checkpoint, and return where it now is."""
    write_durably(temporary / STATE, json.dumps(asdict(state), indent=1))
    _sync_tree(temporary)
    write_durably(temporary / MARKER, "")
    sync_folder(temporary)
    final = _free_name(root, name_of(state.step))
    temporary.rename(final)
    sync_folder(root)
    replace_durably(root / POINTER, final.name + "\n")
    _retire(root, keep)
    return final


def clean(run_dir: Path) -> None:
    """Remove what an interrupted commit left behind."""
    for folder in (run_dir / FOLDER).glob(".*"):
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()


def write_durably(path: Path, text: str) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, text: str) -> None:
    """Replace a file in one move: a reader sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.new")
    write_durably(beside, text)
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for here, _, files in os.walk(folder):
        for name in files:
            _sync_file(Path(here) / name)
        sync_folder(Path(here))


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _free_name(root: Path, name: str) -> Path:
    """A name that is not taken. One that the pointer does not name was never committed: it makes way."""
    final, number = root / name, 1
    while final.exists() and final == _pointed(root):
        number += 1
        final = root / f"{name}-{number}"
    if final.exists():
        _remove(final)
    return final


def _retire(root: Path, keep: int | None) -> None:
    if keep is None:
        return
    latest = _pointed(root)
    old = [_read(one) for one in root.glob("*") if not one.name.startswith(".") and one != latest and _whole(one)]
    old.sort(key=lambda one: (one.state.completed, one.path.name))
    for one in old[: max(0, len(old) + 1 - max(keep, 1))]:
        _remove(one.path)


def _remove(folder: Path) -> None:
    """Hide it first: a folder that is half removed must not look whole."""
    hidden = folder.with_name(f".{folder.name}.old")
    if hidden.exists():
        shutil.rmtree(hidden)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def _pointed(root: Path) -> Path | None:
    pointer = root / POINTER
    return root / pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else None


def _whole(folder: Path) -> bool:
    return (folder / MARKER).is_file() and (folder / STATE).is_file()


def _read(folder: Path) -> Checkpoint:
    state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return Checkpoint(folder, RunState(**state))
