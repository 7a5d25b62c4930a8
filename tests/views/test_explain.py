"""``explain``: whole answers as they are printed, and that what they say is so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stepgraph
from stepgraph.compiler import Plan
from stepgraph.errors import ConfigError, StepgraphError
from stepgraph.views import ways
from stepgraph.views.edges import calls
from stepgraph.views.explain import explain_text
from stepgraph.views.waits import waits_text

from .questions import PLACEMENTS, SECONDS, asked, golden, made, run_of, shipped

LAST = ("run.steps=36",)
CRITIC = {
    "warm_up": {"use": "critic.train", "reads": ["rollouts"], "updates": ["critic"]},
    "generate": {"use": "engine.generate", "reads": ["engine"], "writes": ["rollouts"], "before": "warm_up"},
    "train": {"use": "trainer.train", "reads": ["rollouts"], "updates": ["policy"], "when": {"from": 2}},
    "sync": {"use": "engine.sync", "copies": {"engine": "policy"}},
}
WEIGHTS = {name: {"kind": "weights", "of": name, "at": "device"} for name in ("policy", "critic", "engine")}


def warm_up() -> Plan:
    """The policy does not change in the first two steps, so that syncs of it find the same contents."""
    return made(CRITIC, WEIGHTS, 5, start={"sync": {}}, keep={"policy": "any", "critic": "any"})


def judged() -> Plan:
    """A phase with a line that says what it is, whose reader is in a later step."""
    step = {
        "look": {
            "use": "judge.look",
            "reads": ["seen"],
            "writes": ["log"],
            "doc": "Looks at what the step before left.",
        },
        "leave": {"use": "judge.leave", "updates": ["seen"]},
    }
    return made(step, {"seen": "state", "log": "sink"}, 4, keep={"seen": "any"})


ANSWERS: dict[str, Callable[[], str]] = {
    "pruned_at_the_end": lambda: explain_text(shipped(*LAST), "sync_weights", None, asked(*LAST)),
    "only_feeds_pruned": lambda: explain_text(shipped(*LAST), "offload_policy", 35, asked(*LAST)),
    "already_there": lambda: explain_text(
        shipped(*LAST, "placement=split"), "reload_policy", None, asked(*LAST, "placement=split")
    ),
    "no_room_wanted": lambda: explain_text(
        shipped(*LAST, "placement=split"), "offload_engine", 3, asked(*LAST, "placement=split")
    ),
    "kept_in_part": lambda: explain_text(
        shipped(*LAST, "placement=kv_only"), "offload_engine", None, asked(*LAST, "placement=kv_only")
    ),
    "same_contents": lambda: explain_text(warm_up(), "sync", 1),
    "kept_handoff": lambda: explain_text(shipped(*LAST), "reload_kv", 3, asked(*LAST)),
    "kept_at_end": lambda: explain_text(
        shipped(*LAST, "graph.keep.engine=device"), "sync_weights", 35, asked(*LAST, "graph.keep.engine=device")
    ),
    "work": lambda: explain_text(shipped(*LAST), "train", None, asked(*LAST)),
    "gated_work": lambda: explain_text(shipped(*LAST), "eval", None, asked(*LAST)),
    "not_due": lambda: explain_text(shipped(*LAST), "save", 3, asked(*LAST)),
    "disabled": lambda: explain_text(
        shipped("run.steps=0"), "eval", None, asked("run.steps=0")
    ),
    "start": lambda: explain_text(
        shipped("run.steps=0", "graph.start.eval.enabled=true"), "reload_kv", None,
        asked("run.steps=0", "graph.start.eval.enabled=true"),
    ),
    "doc": lambda: explain_text(judged(), "look"),
    "last_runs_ahead": lambda: explain_text(
        shipped(*LAST, "placement=split", "graph.step.generate.ahead=1"), "generate", None,
        asked(*LAST, "placement=split", "graph.step.generate.ahead=1"),
    ),
    "waits_1": lambda: waits_text(shipped(*LAST), "generate", "train"),
    "waits_for_the_step_before": lambda: waits_text(shipped(*LAST), "train", "generate", 4),
    "waits_for_room": lambda: waits_text(shipped(*LAST), "generate", "reload_policy"),
    "waits_for_start": lambda: waits_text(shipped(*LAST), "reload_kv", "generate", 0),
    "waits_ahead": lambda: waits_text(
        shipped(*LAST, "placement=split", "graph.step.generate.ahead=1"), "generate", "train", 5
    ),
    "waits_not": lambda: waits_text(shipped(*LAST), "reload_policy", "score", 0),
    "waits_long": lambda: waits_text(shipped(*LAST), "eval", "train", 10),
    "waits_pruned": lambda: waits_text(shipped(*LAST), "train", "sync_weights", 35),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_told_as_it_is_written_down(name: str) -> None:
    text = ANSWERS[name]()
    assert text == golden(f"explain_{name}", text)


MEASURED = {"measured": 36, "measured_so_far": 3}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_answer_is_told_as_it_is_written_down(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of(Path("runs/grpo"), *LAST, ran=MEASURED[name])
    text = explain_text(shipped(*LAST), "sync_weights", None, asked(*LAST, run=run))
    assert text == golden(f"explain_{name}", text)


@pytest.mark.parametrize("name", ANSWERS)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    """But for the one that is to be pasted."""
    lines = ANSWERS[name]().splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith("Compare: ")] == []
    assert [line for line in lines if line != line.rstrip()] == []


# ---- kept if -------------------------------------------------------------------------------------------------------


def again(words: tuple[str, ...]) -> Callable[[str], Plan]:
    return lambda override: shipped(*words, override)


def ran(plan: Plan, at: int) -> set[str]:
    return {call.name for call in calls(plan, at)}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_applying_what_is_offered_does_what_is_said(placement: str) -> None:
    words = ("run.steps=12", f"placement={placement}")
    plan = shipped(*words)
    offered = 0
    for step in (0, 9, 11):
        for phase in plan.graph.step:
            runs = phase.name in ran(plan, step + 1)
            find = ways.pruners if runs else ways.keepers
            for way in find(plan, step + 1, phase, again(words), PLACEMENTS):
                there = ran(stepgraph.compile(stepgraph.load("grpo", [*words, way.override])), step + 1)
                assert there == ran(plan, step + 1) - set(way.out) | set(way.back)
                assert (phase.name in there) is not runs
                offered += 1
    assert offered > 30


def test_what_is_refused_is_not_offered() -> None:
    plan = shipped("run.steps=3")
    generate = plan.graph.step[0]

    def refuse(override: str) -> Plan:
        raise StepgraphError(override)

    assert ways.pruners(plan, 1, generate, refuse, PLACEMENTS) == []
    assert "no single setting: the rest of the graph needs it" in explain_text(
        plan, "generate", 0, asked("run.steps=3")
    )


def test_a_way_to_keep_a_sync_lists_what_comes_back_with_it() -> None:
    plan = shipped("run.steps=36")
    sync = next(phase for phase in plan.graph.step if phase.name == "sync_weights")
    found = {way.override: way.back for way in ways.keepers(plan, 36, sync, again(LAST))}
    assert found["graph.keep.engine=any"] == ("offload_policy", "reload_engine", "sync_weights")
    assert found["graph.step.eval.when.last=true"][-1] == "eval"


# ---- edges ---------------------------------------------------------------------------------------------------------

LOOPS = [("grpo", placement) for placement in PLACEMENTS] + [("miles_async", "split"), ("slime_sync", "split")]


@pytest.mark.parametrize(("graph", "placement"), LOOPS)
def test_what_the_plan_says_a_phase_waits_for_is_one_hop_away(graph: str, placement: str) -> None:
    plan = stepgraph.compile(stepgraph.load(graph, [f"placement={placement}"]), steps=12)
    for variant in plan.variants:
        for phase in plan.step(variant.first).phases:
            for other in (name for name in phase.after if "@" not in name):
                assert "1 hop" in waits_text(plan, other, phase.name, variant.first).splitlines()[0]


def test_an_edge_of_every_step_reaches_back_over_hundreds_of_steps() -> None:
    plan = shipped("run.steps=400", "graph.step.eval.when.every=200")
    assert "train in step 300 waits for eval (step 199)" in waits_text(plan, "eval", "train", 300)


def test_what_never_ran_before_is_not_waited_for() -> None:
    said = waits_text(shipped("run.steps=12"), "save", "train", 5)
    assert said == "train does not wait for save: save does not run before it in step 5."


# ---- which step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("sync_weights", "sync_weights  PRUNED in step 35 (runs in the 35 steps before it)"),
        ("train", "train  RUNS in step 0, as in all 36 steps"),
        ("eval", "eval  RUNS in step 29 (not due in 33, as well in 2)"),
        ("save", "save  RUNS in step 35 (not due in 34, as well in 1)"),
    ],
)
def test_the_step_is_the_last_one_that_is_unlike_most(name: str, head: str) -> None:
    assert explain_text(shipped(*LAST), name).splitlines()[0].startswith(head)


def test_a_run_of_a_million_steps_is_explained_by_look_ups() -> None:
    text = explain_text(shipped("run.steps=1000001"), "sync_weights")
    assert "PRUNED in step 1000000 (runs in the 1,000,000 steps before it)" in text


# ---- mistakes ------------------------------------------------------------------------------------------------------


def one(name: str, step: int | None = None, *words: str) -> str:
    return explain_text(shipped(*(words or LAST)), name, step)


def two(first: str, second: str, step: int | None = None) -> str:
    return waits_text(shipped(*LAST), first, second, step)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: one("sync_weight"), "there is no phase 'sync_weight' in graph grpo, did you mean 'sync_weights'?"),
        (lambda: one("xyz"), r"there is no phase 'xyz' in graph grpo \(known: generate"),
        (lambda: one("train", 36), "step=36 is not in this run: its steps are 0 to 35"),
        (lambda: one("train", -1), "step=-1 is not in this run"),
        (lambda: one("train", None, "run.steps=0"), "train is a phase of the step, and this run has no steps"),
        (lambda: one("train", None, "run.steps=3", "run.first=3"), "no phase runs: the run's 3 steps are done"),
        (lambda: two("trian", "save"), "there is no phase 'trian' in graph grpo, did you mean 'train'"),
        (lambda: two("train", "train"), "train is named twice"),
        (lambda: two("train", "save", 99), "step=99 is not in this run"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(ask: Callable[[], str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        ask()
    assert "\n" not in str(error.value)


def test_the_time_of_a_step_told_twice_is_that_of_the_later_telling(tmp_path: Path) -> None:
    run = run_of(tmp_path, *LAST, ran=2)
    assert run.median("train") == SECONDS["train"]
    with (tmp_path / "events.jsonl").open("a", encoding="utf-8") as events:
        line = '\n{"event": "end", "t": 90, "phase": "train", "kind": "work", "section": "step", "step": 1, '
        events.write(line + '"outcome": "ok", "seconds": 40.0}\n')
    from stepgraph.views.rundir import read_run

    assert read_run(tmp_path).seconds("train") == [SECONDS["train"], 40.0]
