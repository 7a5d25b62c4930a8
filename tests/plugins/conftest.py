"""An empty folder to work in, commands typed there, and packages that look installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepgraph.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


Type = Callable[..., Done]
Install = Callable[..., Path]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Type:
    """Type a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPGRAPH_PATH", raising=False)

    def run(*words: str) -> Done:
        code = main(words)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package with entry points where packages are found."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(site)

    def add(name: str, version: str, points: str, **modules: str) -> Path:
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(points)
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text)
        return site

    return add
