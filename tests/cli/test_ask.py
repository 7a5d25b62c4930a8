"""``python -m stepgraph.cli.ask``: what a saved model answers, and what it answered before the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepgraph.cli import ask

from .conftest import Run

SMALL = ("experiment=demo", "run.steps=1", "run.dir=out", "data.batch=2", "data.eval_size=2")


@pytest.mark.torch
def test_a_saved_model_is_asked_beside_the_one_that_the_run_began_with(
    here: Path, stepgraph: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    assert stepgraph("run", *SMALL, "trainer.lr=0.5").code == 0
    assert ask.main(["--before", "out", "305=", "718="]) == 0
    both = capfd.readouterr().out.splitlines()
    assert ask.main(["out", "305=", "718="]) == 0
    after = capfd.readouterr().out.splitlines()
    assert [line.partition("   (before the run: ")[0] for line in both] == after
    assert [line.partition(" -> ")[0] for line in after] == ["305=", "718="]
    first = [line.partition("   (before the run: ")[2].removesuffix(")") for line in both]
    assert first != [line.partition(" -> ")[2] for line in after]


@pytest.mark.parametrize("words", [[], ["out"], ["--before"], ["--before", "out"]])
def test_a_question_without_its_parts_says_how_to_ask(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert ask.main(words) == 2
    said = (
        "stepgraph: ask wants a run directory and prompts: python -m stepgraph.cli.ask [--before] RUN_DIR PROMPT...\n"
    )
    assert capfd.readouterr().err == said
