"""What the documentation shows is what happens: every fenced block of README.md and docs/ is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepgraph
from stepgraph.cli import main
from stepgraph.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "bash", "console", "sh")
ONLY_NAMED = ("run", "ask")
"""Commands that start something: looked up, not run."""


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language, its text."""

    where: str
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{page.relative_to(ROOT)}:{line}", found[1], found[2])


ONE_FOLDER = "write-a-phase.md"
"""A page whose blocks build on each other: tests/plugins runs it, in one folder."""
ALL = [block for page in PAGES if page.name != ONE_FOLDER for block in blocks(page)]


def of(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in ALL if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[block.where for block in chosen])


@dataclass(frozen=True)
class Command:
    """One line that somebody would type, and what is shown below it."""

    words: tuple[str, ...]
    shown: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block. Where lines begin with ``$``, the others are what was printed."""
    prompted = re.search(r"^\$ ", block.text, re.MULTILINE) is not None
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:] if prompted else block.text.splitlines()
    for part in parts:
        line, _, shown = part.partition("\n")
        if line.split(" ")[0] in ("stepgraph", "make"):
            yield Command(tuple(shlex.split(line, comments=True)), shown.rstrip("\n"))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Type a command in an empty folder; its exit code and all it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPGRAPH_PATH", raising=False)
    (tmp_path / "audit.py").write_text("def length_audit(ctx, rollouts):\n    return {'report': len(rollouts)}\n")

    def run(words: tuple[str, ...]) -> tuple[int, str, str]:
        code = main(words)
        out, err = capfd.readouterr()
        return code, out.rstrip("\n"), err.rstrip("\n")

    return run


def test_the_documentation_has_blocks_of_every_kind() -> None:
    assert {block.language for block in ALL} >= {"", "yaml", "python"}
    assert any(command.shown for block in ALL if block.language in SHELL for command in commands(block))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != ONE_FOLDER], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, block.where, "exec"), names)


@of("yaml")
def test_a_graph_that_is_shown_compiles(block: Block) -> None:
    content = yaml.safe_load(block.text)
    assert isinstance(content, dict), "yaml blocks are mappings"
    if "step" in content:
        made = stepgraph.compile(stepgraph.load(content, ["run.steps=3"]))
        assert made.totals["phase_runs"]


@of(*SHELL)
def test_a_command_that_is_shown_does_what_is_shown(block: Block, typed: Any) -> None:
    for command in commands(block):
        tool, *words = command.words
        if tool == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        elif tool == "stepgraph" and words[0] not in ONLY_NAMED:
            done(command, *typed(tuple(words)))
        elif tool == "stepgraph":
            assert words[0] in COMMANDS, command


def done(command: Command, code: int, out: str, err: str) -> None:
    """A command that shows an error fails with it; any other succeeds, with the output that is shown."""
    if command.shown.startswith("stepgraph: "):
        assert (code != 0, err) == (True, command.shown), command
        return
    assert code == 0, (command, err)
    assert out.startswith(command.shown.split("...")[0].rstrip()), command


@of(*SHELL)
def test_an_extra_that_is_installed_exists(block: Block) -> None:
    extras = {name for found in re.findall(r"'\.\[([\w,-]+)\]'", block.text) for name in found.split(",")}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [name for name in extras if not re.search(rf"^{name} = \[", project, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_path_that_is_named_in_code_quotes_exists(page: Path) -> None:
    named = re.findall(r"`((?:tests|stepgraph|compiler|docs|graphs|conf)/[\w/.]+)`", page.read_text(encoding="utf-8"))
    homes = (ROOT, ROOT / "stepgraph")
    assert [path for path in named if not any((home / path).exists() for home in homes)] == []
