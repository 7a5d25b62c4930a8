"""The compiler does only what no observer can tell from running the declared list, and all of that."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import Phase, assume, given, seed, settings
from hypothesis import strategies as st

from stepgraph.compiler import Plan
from stepgraph.errors import GraphError

from . import against
from .declared import WORDS, Setup, declared, printed, world
from .least import least, removable, weight
from .loops import gated, loops
from .machine import Seen, Violation, run
from .schedules import gates
from .wild import wild

graphs = st.one_of(loops(), wild())


def seen(setup: Setup) -> Seen:
    """What observers see in the declared list; a graph that the machine refuses says nothing here."""
    try:
        return run(world(setup), declared(setup))
    except Violation:
        assume(False)
        raise


def pruned(setup: Setup, compiled: Plan) -> list[dict[str, Any]]:
    return against.known(compiled.calls(), declared(setup))


@given(graphs)
def test_a_graph_compiles_exactly_where_the_machine_accepts_its_declared_list(setup: Setup) -> None:
    try:
        run(world(setup), declared(setup))
        wrong = None
    except Violation as violation:
        wrong = violation
    if wrong is None:
        against.plan(setup)
        return
    with pytest.raises(GraphError) as refused:
        against.plan(setup)
    assert "\n" not in str(refused.value)
    assert wrong.phase in str(refused.value)
    assert any(name in str(refused.value) for name in touched(setup, wrong))


def touched(setup: Setup, wrong: Violation) -> set[str]:
    """Whatever may be at fault first: in one call, several things can be."""
    calls = [one for one in declared(setup) if (one["phase"], one["step"]) == (wrong.phase, wrong.step)]
    words = [
        word for one in calls for word in ("reads", "updates", "writes", "needs", "moves", "copies") if word in one
    ]
    return {wrong.resource, *(name for one in calls for word in words for name in one.get(word, ()))}


def test_most_drawn_graphs_are_legal() -> None:
    counts = {True: 0, False: 0}

    @seed(1)
    @settings(max_examples=300, phases=[Phase.generate], database=None)
    @given(graphs)
    def draw(setup: Setup) -> None:
        try:
            run(world(setup), declared(setup))
        except Violation:
            counts[False] += 1
            return
        counts[True] += 1

    draw()
    assert counts[True] >= 0.6 * sum(counts.values())


@given(graphs)
def test_without_passes_the_calls_are_the_declared_list(setup: Setup) -> None:
    seen(setup)
    assert [printed(one) for one in against.plan(setup, ()).calls()] == [printed(one) for one in declared(setup)]


@given(graphs, st.sampled_from([("dead", "settled"), ("dead",), ("settled",)]))
def test_observers_see_the_same_in_the_pruned_calls(setup: Setup, passes: tuple[str, ...]) -> None:
    theirs = seen(setup)
    calls = pruned(setup, against.plan(setup, passes))
    against.faithful(calls, declared(setup))
    agree(setup, run(world(setup), calls), theirs)


def agree(setup: Setup, mine: Seen, theirs: Seen) -> None:
    assert mine.work.items() <= theirs.work.items()
    assert mine.sinks == theirs.sinks
    assert mine.kept == theirs.kept
    fits = against.fits(setup, theirs)
    assert [sorted(here) for here in mine.together if not fits(here)] == []


@given(graphs, st.integers(0, 2**32))
def test_observers_see_the_same_in_every_legal_order(setup: Setup, seed: int) -> None:
    theirs, compiled = seen(setup), against.plan(setup)
    for calls in against.legal_orders(compiled, Random(seed)):
        agree(setup, run(world(setup), calls), theirs)


@given(graphs, st.integers(0, 2**32))
def test_observers_see_the_same_in_every_legal_order_of_the_declared_list(setup: Setup, seed: int) -> None:
    theirs, compiled = seen(setup), against.plan(setup, ())
    for calls in against.legal_orders(compiled, Random(seed)):
        agree(setup, run(world(setup), calls), theirs)


@given(graphs, st.sampled_from([("dead", "settled"), ()]))
def test_calls_and_compiled_steps_tell_the_same(setup: Setup, passes: tuple[str, ...]) -> None:
    seen(setup)
    compiled = against.plan(setup, passes)
    listed = [printed(one) for one in compiled.calls()]
    steps = [printed(one) for one in against.nodes(compiled).values()]
    assert [{**one, "use": ""} for one in listed] == [{**one, "use": ""} for one in steps]


@given(loops())
def test_no_cheaper_subset_of_the_parts_of_a_usual_loop_would_do(setup: Setup) -> None:
    fits = against.fits(setup, seen(setup))
    assert weight(pruned(setup, against.plan(setup))) == least(world(setup), declared(setup), fits)


@given(wild())
def test_no_single_part_of_a_wild_graph_can_go(setup: Setup) -> None:
    theirs = seen(setup)
    assert removable(world(setup), pruned(setup, against.plan(setup)), theirs, against.fits(setup, theirs)) == []


@pytest.mark.parametrize("way", ["colocated", "split", "kv_only"])
@pytest.mark.parametrize("name", sorted(path.stem for path in (against.ROOT / "graphs").glob("*.yaml")))
@settings(max_examples=settings().max_examples // 5)
@given(st.data(), st.integers(0, 9))
def test_every_shipped_graph_is_cut_to_the_least(name: str, way: str, data: st.DataObject, steps: int) -> None:
    graph = against.shipped(name)
    step = {phase: regated(data, given) for phase, given in graph["step"].items()}
    setup = Setup({**graph, "step": step}, against.ways(graph)[way], {"steps": steps})
    fits = against.fits(setup, seen(setup))
    assert weight(pruned(setup, against.plan(setup))) == least(world(setup), declared(setup), fits)


def regated(data: st.DataObject, phase: dict[str, Any]) -> dict[str, Any]:
    """A phase that the graph gates by the step gets another gate; one that follows another still does."""
    follows = "with" in (phase.get("when") or {"with": None})
    return phase if follows else gated(phase, data.draw(gates()))


@given(graphs)
def test_compiling_what_was_compiled_takes_nothing_away(setup: Setup) -> None:
    seen(setup)
    calls = pruned(setup, against.plan(setup))
    again = against.plan(unrolled(setup, calls)).calls()
    assert [nameless(one) for one in again] == [nameless(one) for one in calls]


def unrolled(setup: Setup, calls: list[dict[str, Any]]) -> Setup:
    """The calls as a graph of their own: each one a phase that is due once. All needs are its own now."""
    sections: dict[str, dict[str, Any]] = {"start": {}, "step": {}, "end": {}}
    for index, one in enumerate(calls):
        part = one["slot"] if one["slot"] in ("start", "end") else "step"
        words = {word: value for word, value in one.items() if word in ("use", *WORDS)}
        gate = once(setup, one) if part == "step" else {}
        sections[part][f"p{index}"] = {**words, **gate, "pure": one["pure"]}
    return Setup({**setup.graph, **sections}, {"at": world(setup).places}, {"steps": setup.steps, "first": setup.first})


def once(setup: Setup, one: dict[str, Any]) -> dict[str, Any]:
    ahead = setup.graph["step"][one["phase"]].get("ahead", 0)
    return {"when": {"steps": [one["slot"]]}, **({"ahead": ahead} if ahead else {})}


def nameless(one: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in printed(one).items() if word != "phase"}
