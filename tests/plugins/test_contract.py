"""What a function of one's own is given, what it must give back, and what is said when it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepgraph import phase
from stepgraph.errors import ConfigError, RunError, StepgraphError
from stepgraph.testing import Ran, rollouts, run_graph, run_phase

GRAPH = {
    "name": "tiny",
    "resources": {
        "prompts": "stream",
        "policy": {"kind": "weights", "of": "trainer", "at": "device"},
        "engine": {"kind": "weights", "of": "engine", "at": "device"},
    },
    "keep": {"policy": "any"},
    "start": {"sync": None},
    "step": {
        "generate": {"use": "engine.generate", "reads": ["engine"], "updates": ["prompts"], "writes": ["rollouts"]},
        "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"]},
        "sync": {"use": "engine.sync", "copies": {"engine": "policy"}},
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(here: Path, code: str, words: str, **given: Any) -> Any:
    """Run a graph with one function of one's own in it."""
    (here / "own.py").write_text(code)
    return run_graph(GRAPH, [f"graph.step.own={{use: ./own.py:own, {words}}}"], **given)


def test_a_function_gets_what_it_declares_by_name_and_no_more(here: Path) -> None:
    code = "def own(rollouts):\n    return {'report': len(rollouts)}\n"
    found = ran(here, code, "reads: [rollouts], writes: [report]", contents={"rollouts": [1, 2, 3]})
    assert found.result.status == "completed"
    assert [sorted(found.phases(k)) for k in (0, 1)] == [
        ["generate", "own", "sync", "train"],
        ["generate", "own", "train"],
    ]


def test_rollouts_that_a_test_gives_are_of_the_version_that_is_read(here: Path) -> None:
    code = "def own(rollouts, ctx):\n    ctx.log(version=rollouts[0].version)\n"
    found = ran(here, code, "reads: [rollouts]", contents={"rollouts": rollouts(3)})
    assert [row["version"] for row in found.metrics if "version" in row] == [0, 1]


def test_the_context_tells_step_phase_version_seed_and_takes_metrics(here: Path) -> None:
    code = (
        "def own(rollouts, ctx):\n"
        "    assert ctx.phase == 'own' and ctx.run_dir.is_dir() and ctx.rng.random() == ctx.rng.random()\n"
        "    ctx.log(**{'own/step': ctx.step, 'own/policy': ctx.versions['policy']})\n"
    )
    found = ran(here, code, "reads: [rollouts, policy], after: train", steps=3)
    rows = [row for row in found.metrics if "own/step" in row]
    assert [(row["own/step"], row["own/policy"] - row["own/step"]) for row in rows] == [(0, 1), (1, 1), (2, 1)]


def test_an_async_body_is_awaited(here: Path) -> None:
    code = "import asyncio\nasync def own(ctx):\n    await asyncio.sleep(0.001)\n    ctx.log(slept=1)\n"
    assert [row["slept"] for row in ran(here, code, "reads: []").metrics if "slept" in row] == [1, 1]


def test_a_component_is_given_by_name_where_the_phase_declares_something_of_it(here: Path) -> None:
    code = "def own(trainer, ctx):\n    ctx.log(version=trainer.version('policy'))\n"
    rows = ran(here, code, "reads: [policy], after: train").metrics
    assert [row["version"] for row in rows if "version" in row] == [1, 2]


def test_options_of_the_phase_are_given_by_name(here: Path) -> None:
    code = "def own(rollouts, most, ctx):\n    ctx.log(most=most)\n"
    rows = ran(here, code, "reads: [rollouts], options: {most: 7}").metrics
    assert [row["most"] for row in rows if "most" in row] == [7, 7]


def test_a_handoff_of_one_s_own_is_told_what_remains_of_it(here: Path) -> None:
    code = "def own(moves, trainer):\n    assert moves == {'policy': 'host'}\n    return {'policy': 4}\n"
    found = ran(here, code, "moves: {policy: host}, after: train", contents={})
    assert found.phases(0).count("own") == 0  # nobody wants it there: it is pruned
    kept = run_graph(GRAPH, ["graph.step.own={use: ./own.py:own, moves: {policy: host}}", "graph.keep.policy=host"])
    assert [step for step, name in kept.calls if name == "own"] == [1]


REFUSED = {
    "a generator": (
        "def own(rollouts):\n    yield {'report': 1}\n",
        "own: ./own.py:own is a generator: a body returns {name: contents} once; take its yield out",
    ),
    "an async generator": ("async def own(rollouts):\n    yield 1\n", "own: ./own.py:own is a generator"),
    "no parameter for what it reads": (
        "def own():\n    return {'report': 1}\n",
        "own: ./own.py:own() is given rollouts: got an unexpected keyword argument 'rollouts'",
    ),
    "a parameter that nobody gives": (
        "def own(rollouts, cheese):\n    ...\n",
        "own: ./own.py:own(rollouts, cheese) is given rollouts: missing a required argument: 'cheese'",
    ),
    "a value that it does not read": (
        "def own(rollouts, grades):\n    ...\n",
        "own: ./own.py:own takes 'grades', which the phase does not read: add it to its reads",
    ),
    "weights": (
        "def own(rollouts, policy):\n    ...\n",
        "own: ./own.py:own takes 'policy', which is weights of a component: take 'trainer' instead",
    ),
    "a component of which nothing is declared": (
        "def own(rollouts, trainer):\n    ...\n",
        "own: ./own.py:own takes the component 'trainer', but its phase declares nothing of it: "
        "read, update or need policy",
    ),
    "no function": ("own = 3\n", "own: ./own.py:own is not callable but a int"),
}


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_cannot_be_called_is_refused_before_anything_starts(here: Path, code: str, message: str) -> None:
    (here / "own.py").write_text(code)
    grade = "graph.step.grade={use: g.g, reads: [rollouts], writes: [grades]}"
    own = "graph.step.own={use: ./own.py:own, reads: [rollouts], writes: [report]}"
    with pytest.raises(ConfigError) as caught:
        run_graph(GRAPH, [grade, own], run_dir=here / "run")
    assert message in str(caught.value)
    assert not (here / "run").exists()


FAILS = {
    "too little": ("def own(rollouts):\n    return {}\n", "own: declares that it writes report, but did not return it"),
    "too much": (
        "def own(rollouts):\n    return {'report': 1, 'reprot': 2}\n",
        "own: returned 'reprot', which it does not declare to write, did you mean 'report'?",
    ),
    "no mapping": (
        "def own(rollouts):\n    return 3\n",
        "own: returned a int; a body returns a mapping {name: contents}",
    ),
    "a component that it did not declare": (
        "def own(rollouts, ctx):\n    ctx.components['trainer']\n",
        "own: took the component 'trainer', but its phase declares nothing of it: read, update or need policy",
    ),
    "hanging": (
        "import time\ndef own(rollouts):\n    time.sleep(0.4)\n",
        "own: took longer than its timeout_s of 0.05 s; its call is left behind",
    ),
    "hanging in a coroutine": (
        "import asyncio\nasync def own(rollouts):\n    await asyncio.sleep(0.4)\n",
        "own: took longer than its timeout_s of 0.05 s",
    ),
}


@pytest.mark.parametrize(("code", "message"), FAILS.values(), ids=FAILS)
def test_a_body_that_breaks_its_word_is_told_in_one_line(here: Path, code: str, message: str) -> None:
    with pytest.raises(RunError) as caught:
        ran(here, code, "reads: [rollouts], writes: [report], timeout_s: 0.05")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_body_raises_is_kept_as_it_is(here: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        ran(here, "def own(rollouts):\n    1 / 0\n", "reads: [rollouts]")


# ---- one phase by itself -------------------------------------------------------------------------------------------


@phase(reads=["rollouts"], writes=["report"])
def longest(rollouts: list[Any], ctx: Any) -> dict[str, int]:
    ctx.log(count=len(rollouts))
    return {"report": max(len(one.tokens) for one in rollouts)}


def test_one_phase_is_run_by_itself() -> None:
    found = run_phase(longest, {"rollouts": rollouts(3, 8, 5)}, step=4)
    assert (found["report"], found.metrics) == (8, {"count": 3})


def test_one_phase_is_run_by_its_target(here: Path) -> None:
    (here / "own.py").write_text("def own(ctx):\n    return {'log': ctx.step}\n")
    found: Ran = run_phase("./own.py:own", writes=["log"], resources={"log": "sink"}, step=3)
    assert (found.values, found.sinks) == ({}, {"log": 3})


def test_one_phase_saves_where_it_is_told(here: Path) -> None:
    def save(ctx: Any) -> None:
        with ctx.checkpoint() as folder:
            (folder / "it").touch()

    run_phase(save, run_dir=here / "run")
    assert (here / "run" / "checkpoint" / "it").is_file()


def made(kind: str) -> Callable[..., Any]:
    def generator(rollouts: list[Any]) -> Iterator[int]:
        yield 1

    async def late(rollouts: list[Any]) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"report": 1}

    def short(rollouts: list[Any]) -> None: ...

    def slow(rollouts: list[Any]) -> None:
        time.sleep(0.3)

    return {"generator": generator, "late": late, "short": short, "slow": slow}[kind]


def test_one_phase_that_is_async_is_awaited() -> None:
    assert run_phase(made("late"), {"rollouts": []}, reads=["rollouts"], writes=["report"])["report"] == 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("generator", "is a generator"),
        ("short", "declares that it writes report"),
        ("slow", "took longer than its timeout_s of 0.05 s"),
    ],
)
def test_one_phase_is_held_to_the_same_rules_as_in_a_run(kind: str, message: str) -> None:
    with pytest.raises(StepgraphError, match=message):
        run_phase(made(kind), {"rollouts": []}, reads=["rollouts"], writes=["report"], timeout_s=0.05)
