"""docs/write-a-phase.md, from top to bottom in one empty folder: its files are written, its commands typed."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .conftest import Type

PAGE = Path(__file__).parents[2] / "docs" / "write-a-phase.md"
FENCE = re.compile(r"^```(\w*)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[list[str], str]]:
    """Each command of a block, with what is shown below it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    lines = [part.partition("\n") for part in parts]
    return [(shlex.split(line), shown.rstrip("\n")) for line, _, shown in lines]


def check(words: list[str], shown: str, typed: Type) -> None:
    """A command that shows an error fails with it; any other succeeds with what is shown."""
    done = typed(*words)
    if shown.startswith("stepgraph: "):
        assert (done.code > 0, done.err.rstrip("\n")) == (True, shown), words
    else:
        assert (done.code, done.err, done.out.startswith(shown)) == (0, "", True), (words, done)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="the page runs the embedded engine and trainer")
def test_the_page_is_true(tmp_path: Path, typed: Type) -> None:
    for language, file, text in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        elif language == "python":
            names: dict[str, Any] = {"__name__": "page"}
            exec(compile(text, str(PAGE), "exec"), names)
        for words, shown in commands(text) if not language else ():
            assert words[0] == "stepgraph"
            check(words[1:], shown, typed)
    drawn = ET.fromstring((tmp_path / "audit.svg").read_text())
    assert any("audit" in (node.text or "") for node in drawn.iter())
    for folder, name in (("out", "audit/longest"), ("counted", "token_count/tokens")):
        assert name in (tmp_path / folder / "metrics.jsonl").read_text()
    assert not (tmp_path / "none").exists()
