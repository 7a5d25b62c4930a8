"""Gates are due exactly where their words say, and a resumed run declares ``start`` and the same suffix."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from . import against
from .declared import Setup, declared, due, printed, world
from .loops import loops
from .machine import Violation, run

NAMES = ("p0", "p1", "p2", "p3")


@st.composite
def schedules(draw: st.DrawFn) -> Setup:
    """Phases that only log, with every word a gate has; ``with`` points at one before or after, never in a ring."""
    step: dict[str, Any] = {
        name: {"use": f"log.{name}", "when": draw(gate(NAMES[:index]))} for index, name in enumerate(NAMES)
    }
    step = dict(draw(st.permutations(list(step.items()))))
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=2)):
        step[name] = {**step[name], "ahead": draw(st.integers(0, 2))}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=1)):
        step[name] = {**step[name], "enabled": False}
    return Setup({"name": "log", "resources": {}, "step": step}, {}, draw(lengths()))


@st.composite
def gate(draw: st.DrawFn, others: tuple[str, ...]) -> dict[str, Any]:
    off = st.sampled_from([None, False])
    words: dict[str, st.SearchStrategy[Any]] = {
        "every": st.one_of(st.integers(1, 7), off),
        "steps": st.one_of(st.lists(st.integers(0, 30), max_size=5, unique=True), off),
        "first": st.one_of(st.booleans(), off),
        "last": st.one_of(st.booleans(), off),
        "epoch_end": st.one_of(st.booleans(), off),
        "from": st.one_of(st.integers(0, 20), st.none()),
        "until": st.one_of(st.integers(0, 30), st.none()),
        **({"with": st.sampled_from(others)} if others else {}),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True))
    return {word: draw(words[word]) for word in chosen}


@st.composite
def lengths(draw: st.DrawFn) -> dict[str, Any]:
    per, epochs = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    steps = draw(st.one_of(st.none(), st.integers(0, 25)))
    total = min(per * epochs, 25 if steps is None else steps)
    return {"steps": steps, "epochs": epochs, "steps_per_epoch": per, "first": draw(st.integers(0, total))}


@given(schedules())
def test_a_phase_runs_in_the_steps_its_gate_says(setup: Setup) -> None:
    found = [(one["step"], one["phase"]) for one in against.plan(setup).calls()]
    wanted = [(step, name) for step in range(setup.first, setup.steps) for name in NAMES if due(setup, name, step)]
    assert sorted(found) == sorted(wanted)
    assert [printed(one) for one in against.plan(setup).calls()] == [printed(one) for one in declared(setup)]


@given(loops(), st.integers(0, 5))
def test_a_resumed_run_declares_its_start_and_the_same_suffix(setup: Setup, first: int) -> None:
    """Needs are left out: those that the placement adds to handoffs follow from where start leaves things."""
    later = Setup(setup.graph, setup.placement, {**setup.run, "first": min(first, setup.steps)})
    whole = Setup(setup.graph, setup.placement, {**setup.run, "first": 0})
    assume(legal(later) and legal(whole) and not later.complete and not says_first(setup))
    rest, calls = against.plan(later, ()).calls(), against.plan(whole, ()).calls()
    kept = [one for one in calls if one["step"] is None or one["step"] >= later.first]
    assert [bare(one) for one in rest] == [bare(one) for one in kept]


def says_first(setup: Setup) -> bool:
    ahead = any(phase.get("ahead") for phase in setup.graph["step"].values())
    return ahead or any("first" in (phase.get("when") or {}) for phase in setup.graph["step"].values())


def bare(one: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in printed(one).items() if word != "needs"}


def legal(setup: Setup) -> bool:
    try:
        run(world(setup), declared(setup))
    except Violation:
        return False
    return True
