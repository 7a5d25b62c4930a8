"""When phases are due: gates against a function written from their words, and the schedule against the gates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.compiler.expand import expand
from stepgraph.compiler.seq import Index, labels

from .made import graph, plan

Phases = dict[str, dict[str, Any]]


def due(name: str, k: int, phases: Phases, run: dict[str, Any]) -> bool:
    """The words of docs/language.md, one after the other."""
    phase = phases[name]
    when = phase.get("when") or {}
    if phase.get("enabled") is False:
        return False
    if not when.get("from", 0) <= k < (when.get("until") if when.get("until") is not None else run["steps"]):
        return False
    triggers = set(when) - {"from", "until"}
    return not triggers or any(
        [
            bool(when.get("every")) and (k + 1) % when["every"] == 0,
            k in (when.get("steps") or ()),
            bool(when.get("first")) and k == run["first"],
            bool(when.get("last")) and k == run["steps"] - 1,
            bool(when.get("epoch_end")) and (k + 1) % run["steps_per_epoch"] == 0,
            bool(when.get("with")) and due(when["with"], k, phases, run),
        ]
    )


@st.composite
def gates(draw: st.DrawFn, others: list[str], most: int) -> dict[str, Any]:
    within = st.integers(0, most)
    words: dict[str, st.SearchStrategy[Any]] = {
        "every": st.one_of(st.integers(1, 12), st.sampled_from([71, 73, 97]), st.none()),
        "steps": st.one_of(st.lists(within, max_size=6), st.none()),
        "first": st.booleans(),
        "last": st.booleans(),
        "epoch_end": st.booleans(),
        "from": within,
        "until": st.one_of(within, st.none()),
        **({"with": st.sampled_from(others)} if others else {}),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=3, unique=True))
    return {word: draw(words[word]) for word in chosen}


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Phases, dict[str, Any]]:
    steps = draw(st.sampled_from([0, 1, 2, 7, 64, 65, 200, 500]))
    run = {"steps": steps, "first": draw(st.integers(0, steps)), "steps_per_epoch": draw(st.integers(1, 9))}
    phases: Phases = {}
    for name in ["a", "b", "c", "d"][: draw(st.integers(1, 4))]:
        phases[name] = {"when": draw(gates(list(phases), steps))}
        phases[name] |= {"ahead": draw(st.integers(1, 2))} if draw(st.integers(0, 4)) == 4 else {}
        phases[name] |= {"enabled": False} if draw(st.integers(0, 9)) == 9 else {}
    return phases, run


@given(schedules())
def test_a_gate_fires_in_the_steps_that_its_words_say(drawn: tuple[Phases, dict[str, Any]]) -> None:
    phases, run = drawn
    expanded = expand(graph(phases, run=run), run["first"], run["steps"])
    for name in phases:
        fires = [k for k in range(run["first"], run["steps"]) if expanded.gates[name].fires(k)]
        assert fires == [k for k in range(run["first"], run["steps"]) if due(name, k, phases, run)], name


@given(schedules())
def test_the_schedule_has_each_phase_in_the_step_before_the_one_it_works_for(
    drawn: tuple[Phases, dict[str, Any]],
) -> None:
    phases, run = drawn
    first, steps = run["first"], run["steps"]
    expanded = expand(graph(phases, run=run), first, steps)
    index = Index(expanded.seq)
    assert index.length == steps - first + 2
    assert [expanded.kinds[index[at]].title for at in (0, index.length - 1)] == ["start", "end"]
    for k in range(first, steps):
        kind = expanded.kinds[index[k - first + 1]]
        slots = {name: k + phase.get("ahead", 0) for name, phase in phases.items()}
        wanted = [name for name, slot in slots.items() if slot < steps and due(name, slot, phases, run)]
        assert (kind.title, [op.name for op in kind.ops], kind.due) == ("step", wanted, frozenset(wanted))


@given(schedules())
def test_what_no_step_can_run_early_enough_runs_after_start(drawn: tuple[Phases, dict[str, Any]]) -> None:
    phases, run = drawn
    first, steps = run["first"], run["steps"]
    expanded = expand(graph(phases, run=run), first, steps)
    found = sorted((op.name, op.scope) for op in expanded.kinds[0].ops)
    early = [(name, slot) for name, phase in phases.items() for slot in range(phase.get("ahead", 0))]
    wanted = [(name, slot) for name, slot in early if first + slot < steps and due(name, first + slot, phases, run)]
    assert found == sorted(wanted)


@pytest.mark.parametrize("every", [3, 5039, 5040, 5041, 9973])
def test_long_periods_beside_each_other_are_due_in_the_right_steps(every: int) -> None:
    expanded = expand(graph({"a": {"when": {"every": every}}, "b": {"when": {"every": 2}}}), 0, 20_000)
    index = Index(expanded.seq)
    found = [k for k in range(20_000) if "a" in expanded.kinds[index[k + 1]].due]
    assert found == list(range(every - 1, 20_000, every))
    assert sum("b" in expanded.kinds[index[k + 1]].due for k in range(20_000)) == 10_000


def test_a_run_of_no_steps_is_its_start_and_its_end() -> None:
    expanded = expand(graph({"a": {"when": {"first": True, "last": True}}}), 0, 0)
    assert [expanded.kinds[label].title for label in labels(expanded.seq)] == ["start", "end"]


def test_a_phase_that_only_the_run_can_fire_may_run_in_its_window_and_is_never_due() -> None:
    words = {"a": {"when": {"file": "go", "from": 2, "until": 4}}, "b": {"when": {"with": "a"}}}
    expanded = expand(graph(words), 0, 6)
    index = Index(expanded.seq)
    for name in words:
        gate = expanded.gates[name]
        assert [gate.fires(k) for k in range(6)] == [False] * 6
        assert [gate.may_fire(k) for k in range(6)] == [k in (2, 3) for k in range(6)]
    ops = {k: [(op.name, op.may) for op in expanded.kinds[index[k + 1]].ops] for k in range(6)}
    assert ops == {k: [("a", True), ("b", True)] if k in (2, 3) else [] for k in range(6)}


def test_what_is_due_anyway_is_not_said_to_be_uncertain() -> None:
    expanded = expand(graph({"a": {"when": {"file": "go", "every": 2}}}), 0, 4)
    index = Index(expanded.seq)
    assert [expanded.kinds[index[k]].ops[0].may for k in range(1, 5)] == [True, False, True, False]


def test_the_first_step_of_a_resumed_run_is_where_it_goes_on() -> None:
    made = plan({"a": {"when": {"first": True}}, "b": {"when": {"steps": [1]}}}, first=3, steps=6)
    assert [(one["step"], one["phase"]) for one in made.calls()] == [(3, "a")]


def test_an_epoch_cut_short_has_no_end() -> None:
    made = plan({"a": {"when": {"epoch_end": True}}}, run={"steps_per_epoch": 4}, steps=10)
    assert [one["step"] for one in made.calls()] == [3, 7]


def test_entries_of_start_take_the_phase_without_its_gate() -> None:
    made = plan({"a": {"when": {"steps": [2]}}}, start={"a": None}, steps=3)
    assert [one["step"] for one in made.calls()] == [None, 2]


def test_a_phase_that_runs_with_a_disabled_one_is_never_due() -> None:
    made = plan({"a": {"enabled": False}, "b": {"when": {"with": "a"}}}, steps=3)
    assert made.calls() == []


def test_a_phase_that_runs_with_another_has_its_own_triggers_too() -> None:
    made = plan({"a": {"when": {"steps": [1]}}, "b": {"when": {"with": "a", "steps": [3]}}}, steps=5)
    assert [one["step"] for one in made.calls() if one["phase"] == "b"] == [1, 3]


def test_a_phase_that_may_run_with_another_does_so_inside_its_own_window() -> None:
    expanded = expand(graph({"a": {"when": {"file": "go"}}, "b": {"when": {"with": "a", "from": 1, "until": 3}}}), 0, 4)
    assert [expanded.gates["b"].may_fire(k) for k in range(4)] == [False, True, True, False]


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_a_beat_of_what_runs_ahead_is_that_of_the_step_it_works_for(ahead: int) -> None:
    made = plan({"a": {"when": {"every": 4}, "ahead": ahead}}, steps=12)
    assert [one["step"] for one in made.calls()] == [3, 7, 11]
    assert [k for k in range(12) if made.step(k).phases] == [3 - ahead, 7 - ahead, 11 - ahead]


@pytest.mark.parametrize("steps", [[0, 1], [63], [64], [65], [3, 70, 200], [66, 131, 260], [299]])
def test_single_steps_far_from_each_other_are_found_where_they_are(steps: list[int]) -> None:
    expanded = expand(graph({"a": {"when": {"steps": steps}}, "b": {}}), 0, 300)
    index = Index(expanded.seq)
    assert [k for k in range(300) if "a" in expanded.kinds[index[k + 1]].due] == steps
    assert index.length == 302
