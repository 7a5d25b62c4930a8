"""The printed plan: golden calls, a document that tells each step once, and hints that are true."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from . import against
from .declared import Setup, declared
from .loops import loops
from .test_field_cases import grpo
from .test_meaning import graphs, seen

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["colocated", "split"])
def test_the_calls_of_grpo_are_those_written_down(name: str) -> None:
    """Four steps with a save in the second and the last and an eval in the third: each kind of step there is."""
    setup = grpo(4, name, save={"when": {"every": 2}}, eval={"when": {"every": 3}})
    lines = [json.dumps(one) for one in against.plan(setup).calls()]
    assert lines == (GOLDEN / f"grpo_{name}.txt").read_text().splitlines()


@given(graphs)
def test_the_document_tells_each_step_once_and_as_it_is(setup: Setup) -> None:
    seen(setup)
    compiled = against.plan(setup)
    told = json.loads(json.dumps(compiled.to_dict()))
    steps = {k: variant for variant in told["variants"] for span in variant["steps"] for k in covered(span)}
    assert sum(len(list(covered(span))) for variant in told["variants"] for span in variant["steps"]) == len(steps)
    assert set(steps) == (set() if setup.complete else set(range(setup.first, setup.steps)))
    for k, variant in steps.items():
        assert summary(variant["phases"]) == [
            (one.name, one.kind, list(one.after), one.why) for one in compiled.step(k).phases
        ]
        assert [one["name"] for one in variant["pruned"]] == [one.name for one in compiled.step(k).pruned]
    assert told["totals"]["phase_runs"] == sum(len(variant["phases"]) for variant in steps.values())
    assert told["totals"]["pruned_runs"] == sum(len(variant["pruned"]) for variant in steps.values())


def covered(span: dict[str, int]) -> range:
    return range(span["from"], span["to"] + 1, span["every"])


def summary(phases: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["name"], one["kind"], one["after"], one["why"]) for one in phases]


@given(graphs)
def test_every_handoff_is_kept_or_told_as_pruned(setup: Setup) -> None:
    seen(setup)
    compiled = against.plan(setup)
    kept = {(one["phase"], one["slot"]) for one in against.nodes(compiled).values()}
    gone = [one for one in declared(setup) if (one["phase"], one["slot"]) not in kept]
    told = [piece for stage in against.stages(compiled) for one in stage.pruned for piece in lost(one)]
    assert sorted(told) == sorted(pieces(gone))


def pieces(calls: Any) -> list[str]:
    return [
        f"{one['phase']} {word} {pair}"
        for one in calls
        for word in ("moves", "copies")
        for pair in one.get(word, {}).items()
    ]


def lost(one: Any) -> list[str]:
    if one.code in ("not_due", "disabled"):
        return []
    return [f"{one.name} {word} {pair}" for word in ("moves", "copies") for pair in getattr(one, word).items()]


HINTED = st.one_of(loops(), st.builds(grpo, st.integers(1, 6), st.sampled_from(sorted(against.SHARED))))


@given(HINTED)
def test_what_is_said_to_keep_a_phase_keeps_it(setup: Setup) -> None:
    seen(setup)
    compiled = against.plan(setup)
    for k in range(compiled.first, compiled.steps):
        for one in compiled.step(k).pruned:
            if one.kept_if.startswith("graph."):
                assert one.name in ran(told(setup, one.kept_if), compiled.step(k).variant, compiled), (k, one)


def ran(setup: Setup, variant: int, before: Any) -> set[str]:
    """The phases that run in the steps of a variant once a hint was followed."""
    after = against.plan(setup)
    alike = [k for k in range(before.first, before.steps) if before.step(k).variant == variant]
    return {one.name for k in alike for one in after.step(k).phases}


def told(setup: Setup, hint: str) -> Setup:
    """The configuration with one override, as the command line would read it."""
    path, _, value = hint.partition("=")
    graph = deepcopy(dict(setup.graph))
    *way, last = path.split(".")[1:]
    here: Any = graph
    for word in way:
        here[word] = dict(here.get(word) or {})
        here = here[word]
    here[last] = yaml.safe_load(value)
    return Setup(graph, setup.placement, setup.run)
