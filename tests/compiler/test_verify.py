"""The check after the passes: a plan that was broken by hand does not get through."""

from __future__ import annotations

from typing import Any

import pytest

from stepgraph.compiler.compile import PASSES, Passes
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.expand import expand
from stepgraph.compiler.verify import UnsoundError, verify
from stepgraph.errors import StepgraphError

from .made import graph

A = {"a": "weights", "b": "weights"}
STEP: dict[str, Any] = {
    "learn": {"updates": ["a"]},
    "on": {"moves": {"b": "device", "a": "device"}},
    "sync": {"copies": {"b": "a"}},
    "use": {"reads": ["b"], "needs": {"b": "device"}},
    "off": {"moves": {"b": "host"}},
}
"""Every part but ``a: device`` is wanted: the need, the contents, and ``keep`` at the end."""


def broken(name: str, keep: int, step: Any = None, kept_at_end: Any = None) -> None:
    """Compile, change what is kept of one phase, and verify."""
    made = graph(step or STEP, A, keep=kept_at_end or {"b": "host"})
    passes = Passes(expand(made, 0, 2), frozenset(PASSES))
    plan = passes.run()

    def step_of(label: int) -> Any:
        shape, kept = passes.compiled(label)
        new = [keep if op.name == name else one for op, one in zip(shape.ops, kept, strict=True)]
        return shape, tuple(new)

    verify(plan.seq, step_of, passes.facts[passes.begin], passes.wants[passes.goal])


def test_the_plan_as_it_was_made_is_sound() -> None:
    broken("nobody", 0)


def test_a_missing_move_is_noticed_by_who_needs_the_place() -> None:
    with pytest.raises(UnsoundError) as wrong:
        broken("on", GONE)
    assert str(wrong.value) == (
        "the pruned plan is wrong at use: a place that it needs is not there; passes=[] runs the list as declared"
    )


def test_a_missing_part_of_a_move_is_noticed_too() -> None:
    with pytest.raises(UnsoundError, match="wrong at use: a place that it needs is not there"):
        broken("on", 2)


def test_a_missing_copy_is_noticed_by_who_reads() -> None:
    with pytest.raises(UnsoundError, match="wrong at use: it reads other contents"):
        broken("sync", GONE)


def test_missing_work_is_noticed_by_who_reads_what_it_made() -> None:
    step = {**STEP, "learn": {"updates": ["a"], "pure": True}}
    with pytest.raises(UnsoundError, match="wrong at use: it reads other contents"):
        broken("learn", GONE, step)


@pytest.mark.parametrize("name", ["learn", "log"])
def test_missing_work_is_noticed_though_nobody_reads_it(name: str) -> None:
    with pytest.raises(UnsoundError):
        broken(name, GONE, {**STEP, "log": {}})


def test_a_missing_last_move_is_noticed_by_what_is_kept() -> None:
    with pytest.raises(AssertionError, match="does not keep what the graph keeps"):
        broken("off", GONE)


def test_missing_contents_at_the_end_are_noticed_by_what_is_kept() -> None:
    step = {"learn": {"updates": ["a"]}, "sync": {"copies": {"b": "a"}}}
    with pytest.raises(AssertionError, match="does not keep what the graph keeps"):
        broken("sync", GONE, step, {"b": "any"})


def test_contents_given_to_what_is_freed_are_noticed() -> None:
    step = {"away": {"moves": {"b": "none"}, "reads": ["a"]}, "on": {"moves": {"b": "host"}}, "sync": STEP["sync"]}
    step["use"] = {"reads": ["b"]}
    broken("nobody", 0, step)
    with pytest.raises(UnsoundError, match="wrong at sync: it gives contents to what is freed"):
        broken("on", GONE, step)


def test_it_is_the_programs_fault_and_no_error_of_the_user() -> None:
    assert not issubclass(UnsoundError, StepgraphError)
