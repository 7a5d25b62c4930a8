"""What is left of a run, compiled from where everything really is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from stepgraph.compiler import Plan
from stepgraph.errors import ConfigError, GraphError
from stepgraph.ir.plan import CompiledStep

from .made import brief, grpo, plan

PLACEMENTS = ["colocated", "split", "kv_only"]


class World:
    """Places and contents as the calls change them: a new number for all that is written."""

    def __init__(self, made: Plan) -> None:
        graph = made.graph
        self.places = {name: one.at for name, one in graph.resources.items() if one.placed}
        targets = {target for phase in (*graph.start, *graph.step) for target, _ in phase.copies}
        self.contents: dict[str, Hashable] = {
            name: f"{name} at first"
            for name, one in graph.resources.items()
            if one.carried and one.at != "none" and name not in targets
        }

    def run(self, step: CompiledStep) -> None:
        for one in step.phases:
            self.places |= one.moves
            self.contents = {name: held for name, held in self.contents.items() if one.moves.get(name) != "none"}
            self.contents |= {target: self.contents[source] for target, source in one.copies.items()}
            for name in (*one.updates, *one.writes):
                if name in self.places:
                    self.contents[name] = (one.name, step.step)


def before(made: Plan, k: int) -> tuple[Mapping[str, str], Mapping[str, Hashable]]:
    world = World(made)
    for step in (made.start, *(made.step(i) for i in range(made.first, k))):
        world.run(step)
    return world.places, world.contents


def suffix(made: Plan, k: int) -> list[Any]:
    """The calls of the steps from ``k`` on: those of the step that works ahead are those that run there."""
    steps = [made.step(i) for i in range(k, made.steps)]
    return [(step.step, *summary(step)) for step in steps] + [(None, *summary(made.end))]


def summary(step: CompiledStep) -> list[Any]:
    return [(one.name, one.for_step, dict(one.needs), dict(one.moves), dict(one.copies)) for one in step.phases]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("first", [0, 2])
def test_where_everything_is_as_planned_the_rest_is_the_rest_of_the_plan(placement: str, first: int) -> None:
    made = grpo(
        "graph.step.save.when.every=3", "graph.step.eval.when.every=4", placement=placement, steps=9, first=first
    )
    for k in range(first, 9):
        left = made.rest(k, *before(made, k))
        assert (left.first, left.steps, left.start.phases) == (k, 9, ())
        assert suffix(left, k) == suffix(made, k), k


def test_the_rest_of_a_run_that_generates_ahead_finds_what_was_made_for_it() -> None:
    made = grpo("graph.step.generate.ahead=1", placement="split", steps=5)
    for k in range(5):
        assert suffix(made.rest(k, *before(made, k)), k) == suffix(made, k), k


def test_nothing_of_start_comes_again_and_first_stays_the_first_of_the_run() -> None:
    made = plan({"a": {"when": {"first": True}}, "b": {}}, start={"c": {"use": "c.run"}}, steps=3)
    assert brief(made.rest(1, {}, {}).calls()) == ["1 b", "2 b"]
    assert brief(made.rest(0, {}, {}).calls()) == ["0 a", "0 b", "1 b", "2 b"]


def test_the_last_step_is_still_the_last() -> None:
    made = grpo("graph.step.eval.when.every=null", steps=4)
    assert [one.name for one in made.rest(3, *before(made, 3)).step(3).phases][-1] == "save"


def test_after_somebody_took_the_engine_away_the_rest_brings_nothing_back_that_the_list_does_not() -> None:
    made = grpo(steps=3)
    places, contents = before(made, 2)
    with pytest.raises(GraphError) as refused:
        made.rest(2, {**places, "engine": "host"}, contents)
    assert str(refused.value).startswith("generate in step 2 needs engine at device, but it is at host")


def test_from_another_place_other_handoffs_are_kept() -> None:
    step = {
        "load": {"moves": {"a": "device"}},
        "work": {"needs": {"a": "device"}},
        "off": {"moves": {"a": "host"}},
        "far": {"needs": {"a": "host"}, "when": {"last": True}},
    }
    made = plan(step, {"a": {"kind": "weights", "at": "host"}}, steps=2)
    assert brief(made.calls()) == ["0 load a>device", "0 work", "1 work", "1 off a>host", "1 far"]
    assert brief(made.rest(1, {"a": "device"}, {"a": 1}).calls()) == ["1 work", "1 off a>host", "1 far"]
    assert brief(made.rest(1, {"a": "host"}, {"a": 1}).calls())[0] == "1 load a>device"


def test_a_sync_of_what_is_there_already_goes_and_one_of_what_is_not_stays() -> None:
    step = {"sync": {"copies": {"b": "a"}}, "use": {"reads": ["b"]}}
    made = plan(step, {"a": "weights", "b": "weights"}, steps=3)
    places = {"a": "host", "b": "host"}
    assert brief(made.calls()) == ["0 sync b<a", "0 use", "1 use", "2 use"]
    assert brief(made.rest(1, places, {"a": "v1", "b": "v1"}).calls()) == ["1 use", "2 use"]
    assert brief(made.rest(1, places, {"a": "v2", "b": "v1"}).calls()) == ["1 sync b<a", "1 use", "2 use"]
    assert brief(made.rest(1, places, {"a": "v2"}).calls()) == ["1 sync b<a", "1 use", "2 use"]


def test_contents_that_are_lost_are_missed_before_anything_runs() -> None:
    made = plan({"use": {"reads": ["a"]}}, {"a": "weights"}, steps=3)
    with pytest.raises(GraphError) as refused:
        made.rest(1, {"a": "host"}, {})
    assert str(refused.value) == (
        "use in step 1 takes a, which nothing has given contents yet: add a phase that copies or writes a"
    )


def test_a_place_that_is_not_said_is_asked_for() -> None:
    with pytest.raises(ConfigError) as refused:
        grpo().rest(1, {"policy": "host"}, {})
    assert str(refused.value) == "places says nothing of 'engine': say where each of policy, engine, kv is"


def test_a_place_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        grpo().rest(1, {"policy": "hots", "engine": "host", "kv": "none"}, {})
    assert str(refused.value).startswith("there is no place 'hots' for policy, did you mean 'host'?")


@pytest.mark.parametrize("k", [-1, 3, 9])
def test_the_rest_from_a_step_outside_the_run_is_refused(k: int) -> None:
    with pytest.raises(ConfigError) as refused:
        plan({"a": {}}, steps=3).rest(k, {}, {})
    assert str(refused.value) == f"step={k} is not in this run: its steps are 0 to 2"
