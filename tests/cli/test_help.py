"""Help answers before Hydra is imported; a plan imports no framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepgraph import __version__

from .conftest import Run

FRAMEWORKS = ("torch", "ray", "vllm", "deepspeed", "transformers")


def imported_by(words: list[str], here: Path) -> set[str]:
    """The top-level modules that a command imports, from a process of its own."""
    code = f"import sys; from stepgraph.cli import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"], ["plan", "graph=grpo", "-h"], ["--version"], []])
def test_help_answers_without_hydra(words: list[str], here: Path) -> None:
    modules = imported_by(words, here)
    assert "stepgraph" in modules
    assert not {"hydra", "omegaconf", "rich", "networkx", *FRAMEWORKS} & modules


@pytest.mark.parametrize("words", [["plan"], ["plan", "format=json"], ["check"]])
def test_what_starts_nothing_imports_no_framework(words: list[str], here: Path) -> None:
    modules = imported_by(words, here)
    assert "hydra" in modules
    assert not {*FRAMEWORKS, "rich"} & modules


def test_help_lists_the_commands_and_the_choices(stepgraph: Run) -> None:
    done = stepgraph("--help")
    assert done.code == 0
    for line in ("  run      ", "  plan     ", "  check    ", "  placement  colocated, kv_only, split"):
        assert line in done.out


def test_help_lists_the_users_own_graphs(here: Path, stepgraph: Run) -> None:
    (here / "graphs").mkdir()
    (here / "graphs" / "mine.yaml").write_text("name: mine\n")
    assert "mine" in stepgraph("plan", "--help").out


def test_help_fits_eighty_columns_but_for_the_settings(stepgraph: Run) -> None:
    assert max(len(line) for line in stepgraph("run", "--help").out.splitlines()) <= 100


def test_the_version_is_the_packages(stepgraph: Run) -> None:
    assert stepgraph("--version").out == f"stepgraph {__version__}\n"
