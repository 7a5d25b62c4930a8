"""Run commands in an empty folder, in this process, and keep what they print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepgraph.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code, its output, and the files of the folder it ran in."""

    code: int
    out: str
    err: str
    files: tuple[str, ...]


Run = Callable[..., Done]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with no other folder of configuration in sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPGRAPH_PATH", raising=False)
    return tmp_path


@pytest.fixture
def stepgraph(here: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run ``stepgraph`` with these words."""

    def run(*words: str) -> Done:
        code = main(words)
        out, err = capfd.readouterr()
        return Done(code, out, err, tuple(sorted(path.name for path in here.iterdir())))

    return run
