"""A function with state: what it gives back it is given again, in later steps and after a resume."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stepgraph import phase
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.checkpoint import find_checkpoint
from stepgraph.runtime.held import read
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run
from stepgraph.testing import plan_of, rollouts, run_graph, run_phase

FOLLOW = """
def follow(rewards, mean, ctx):
    total, count = mean or (0, 0)
    total, count = total + sum(rewards), count + len(rewards)
    ctx.log(total=total)
    return {"mean": (total, count)}

def tell(mean, ctx):
    ctx.log(mean=mean[0] / mean[1])
"""
GRAPH: dict[str, Any] = {
    "name": "means",
    "resources": {"mean": "state", "policy": {"kind": "weights", "of": "trainer", "at": "device"}, "ckpt": "sink"},
    "step": {
        "score": {"use": "scorer.score", "writes": ["rewards"]},
        "save": {"use": "trainer.save", "reads": ["policy"], "writes": ["ckpt"]},
        "follow": {"use": "./own.py:follow", "reads": ["rewards"], "updates": ["mean"]},
        "tell": {"use": "./own.py:tell", "reads": ["mean"]},
    },
}


class Scorer:
    """Scores step k with k + 1."""

    def score(self, ctx: Any) -> dict[str, Any]:
        return {"rewards": [ctx.step + 1]}


class Trainer:
    """Its save waits for ``hold``."""

    def __init__(self, hold: Callable[[Any], Any] = lambda ctx: None) -> None:
        self._hold = hold

    def save(self, ctx: Any) -> dict[str, str]:
        with ctx.checkpoint() as folder:
            self._hold(ctx)
        return {"ckpt": str(folder)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FOLLOW)
    return tmp_path


def went(
    folder: str, *words: str, steps: int = 3, first: int = 0, hold: Callable[[Any], Any] | None = None, **parts: Any
) -> Result:
    plan = plan_of(GRAPH, f"run.first={first}", *words, steps=steps)
    parts = {"scorer": Scorer(), "trainer": Trainer(hold or (lambda ctx: None)), **parts}
    return run(plan, parts, run_dir=folder, out=io.StringIO(), signals=False, resume=first > 0)


def logged(folder: str, name: str) -> list[Any]:
    import json

    rows = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [row.get(name) for row in rows]


def saved(folder: str, step: int) -> Mapping[str, Any]:
    return read(Path(folder) / "checkpoints" / f"step_{step:06d}")


def test_what_a_function_gives_back_it_is_given_in_the_next_step() -> None:
    assert went("run").status == "completed"
    assert logged("run", "total") == [1, 3, 6]
    assert logged("run", "mean") == [1.0, 1.5, 2.0]


def test_a_resumed_run_goes_on_with_the_state_of_the_steps_that_are_done() -> None:
    went("through", steps=4)
    went("parts", steps=2)
    assert went("parts", steps=4, first=2).status == "completed"
    assert logged("parts", "total") == logged("through", "total") == [1, 3, 6, 10]
    assert [saved("through", step)["mean"] for step in range(4)] == [(1, 1), (3, 2), (6, 3), (10, 4)]


def test_a_checkpoint_has_the_state_of_its_own_step_however_long_its_save_takes() -> None:
    later = threading.Event()

    def hold(ctx: Any) -> None:
        if ctx.step == 0:
            assert later.wait(10)

    class Ear:
        def hear(self, ctx: Any, mean: Any) -> None:
            if ctx.step == 1:
                later.set()

    hear = "graph.step.hear={use: ear.hear, reads: [mean]}"
    assert went("run", hear, hold=hold, ear=Ear()).status == "completed"
    assert [saved("run", step)["mean"] for step in range(3)] == [(1, 1), (3, 2), (6, 3)]


def test_a_state_that_is_changed_ahead_is_saved_as_of_the_steps_that_are_done() -> None:
    ahead = ("graph.step.score.ahead=1", "graph.step.follow.ahead=1", "~graph.step.tell")
    went("through", *ahead, steps=4)
    went("parts", *ahead, steps=2)
    assert went("parts", *ahead, steps=4, first=2).status == "completed"
    assert saved("through", 1)["mean"] == (3, 2)
    assert saved("parts", 3)["mean"] == saved("through", 3)["mean"] == (10, 4)


FAILS = FOLLOW.replace("    total, count = mean", "    assert ctx.step != 1, 'no cheese'\n    total, count = mean", 1)


def test_a_function_that_fails_leaves_the_state_as_it_was_and_the_checkpoint_whole() -> None:
    Path("own.py").write_text(FAILS)
    done = went("run", "graph.step.save.when={steps: [0, 1]}")
    assert (done.status, done.failure and done.failure.phase) == ("failed", "follow")
    assert done.failure is not None
    assert "run/checkpoints/step_000001 (" in done.failure.safe
    assert (saved("run", 0), saved("run", 1)) == ({"mean": (1, 1)}, {"mean": (1, 1)})


def test_a_function_that_may_fail_leaves_the_state_as_it_was() -> None:
    Path("own.py").write_text(FAILS)
    done = went("run", "graph.step.follow.on_error=warn")
    assert (done.status, logged("run", "mean")) == ("completed_with_warnings", [1.0, 1.0, 2.0])


def test_a_failed_attempt_changes_nothing_in_place() -> None:
    Path("own.py").write_text(
        "TRIED = []\n"
        "def follow(rewards, mean, ctx):\n"
        "    mean = mean or []\n"
        "    mean.append(ctx.step)\n"
        "    TRIED.append(ctx.step)\n"
        "    if TRIED.count(ctx.step) == 1:\n"
        "        raise OSError('again')\n"
        "    return {'mean': mean}\n"
    )
    assert went("run", "graph.step.follow.retries=1", "~graph.step.tell").status == "completed"
    assert [saved("run", step)["mean"] for step in range(3)] == [[0], [0, 1], [0, 1, 2]]


def test_a_state_that_cannot_be_saved_ends_the_run_in_one_line() -> None:
    Path("own.py").write_text("def follow(rewards, mean):\n    return {'mean': lambda: rewards}\n")
    done = went("run", "~graph.step.tell")
    assert done.failure is not None
    assert done.failure.message.startswith("the state 'mean' cannot be saved: ")
    assert done.failure.message.endswith("; keep in it what can be pickled")
    assert find_checkpoint("run") is None


def test_a_checkpoint_that_was_made_without_the_state_begins_it_anew() -> None:
    went("run", "~graph.step.follow", "~graph.step.tell", "~graph.resources.mean", steps=2)
    assert went("run", steps=3, first=2).status == "completed"
    assert logged("run", "total") == [None, None, 3]


def test_the_start_may_give_a_state_its_first_contents() -> None:
    with Path("own.py").open("a") as file:
        file.write("\ndef begin():\n    return {'mean': (10, 1)}\n")
    assert went("run", "graph.start.begin={use: './own.py:begin', writes: [mean]}").status == "completed"
    assert logged("run", "total") == [None, 11, 13, 16]


def test_a_state_is_no_update_of_what_made_the_rollouts() -> None:
    Path("own.py").write_text("def follow(rewards, mean):\n    return {'mean': 1}\n")
    scorer = Scorer()
    scorer.score = lambda ctx: {"rewards": rollouts(2)}  # type: ignore[method-assign]
    assert went("run", "~graph.step.tell", scorer=scorer).status == "completed"
    assert set(logged("run", "staleness")) == {None}


WRONG = {
    "gives nothing back": (
        "def follow(rewards, mean):\n    ...\n",
        RunError,
        "follow: declares that it writes mean, but did not return it",
    ),
    "does not take it": (
        "def follow(rewards):\n    ...\n",
        ConfigError,
        "follow: ./own.py:follow(rewards) is given rewards, mean: got an unexpected keyword argument 'mean'",
    ),
    "takes it without a word": (
        "def follow(rewards, mean):\n    ...\n\ndef tell(other, ctx):\n    ...\n",
        ConfigError,
        "tell: ./own.py:tell takes 'other', which the phase does not read: add it to its reads",
    ),
}


@pytest.mark.parametrize(("code", "kind", "message"), WRONG.values(), ids=WRONG)
def test_a_function_that_breaks_its_word_is_told_in_one_line(code: str, kind: type[Exception], message: str) -> None:
    Path("own.py").write_text(code if "tell" in code else f"{code}\ndef tell(mean):\n    ...\n")
    words = ["graph.resources.other=state"] if "other" in code else []
    words += ["graph.step.tell.reads=[rewards]"] if "other" in code else []
    with pytest.raises(kind) as caught:
        run_graph(GRAPH, words)
    assert str(caught.value).startswith(message)


def test_one_phase_with_state_is_run_by_itself() -> None:
    @phase(reads=["rewards"], updates=["mean"])
    def follow(rewards: list[float], mean: float | None) -> dict[str, float]:
        return {"mean": (mean or 0.0) + sum(rewards)}

    state = {"resources": {"mean": "state"}}
    assert run_phase(follow, {"rewards": [1, 2], "mean": None}, **state)["mean"] == 3
    assert run_phase(follow, {"rewards": [1, 2], "mean": 3}, **state)["mean"] == 6
