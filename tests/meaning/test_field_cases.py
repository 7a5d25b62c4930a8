"""What real loops got wrong, as plans that must come out right."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from stepgraph.errors import GraphError

from . import against
from .declared import Setup, declared, world
from .least import least, weight
from .machine import Violation, run

HANDOVER = ["offload_policy", "reload_engine", "sync_weights", "reload_kv"]


def grpo(steps: int | None = 1, placement: str = "colocated", run: Any = None, **phases: Any) -> Setup:
    """The shipped loop; ``phases`` replaces words of its step's phases."""
    graph = deepcopy(against.shipped("grpo"))
    for name, words in phases.items():
        graph["step"][name] = {**graph["step"].get(name, {}), **words}
    return Setup(graph, against.SHARED[placement], run or {"steps": steps})


def calls(setup: Setup) -> list[dict[str, Any]]:
    return against.plan(setup).calls()


def names(setup: Setup, step: int | None) -> list[str]:
    return [one["phase"] for one in calls(setup) if one["step"] == step]


def steps_with(setup: Setup, phase: str) -> list[int]:
    return [one["step"] for one in calls(setup) if one["phase"] == phase and one["step"] is not None]


def refusal(setup: Setup) -> str:
    """The message of a refusal. The machine refuses the declared list too, unless only sizes speak against it."""
    with pytest.raises(GraphError) as refused:
        against.plan(setup)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def offends(setup: Setup) -> Violation:
    with pytest.raises(Violation) as wrong:
        run(world(setup), declared(setup))
    return wrong.value


def graph(resources: dict[str, Any], step: dict[str, Any], **more: Any) -> dict[str, Any]:
    for name, phase in step.items():
        phase.setdefault("use", f"some.{name}")
    return {"name": "made", "resources": resources, "step": step, **more}


def test_after_the_last_save_nothing_is_handed_back() -> None:
    setup = grpo(3, save={"when": {"every": 1}}, eval={"when": {"every": None}})
    for step in (0, 1):
        assert names(setup, step)[-4:] == HANDOVER
    assert names(setup, 2) == ["generate", "offload_engine", "reload_policy", "score", "train", "save"]
    assert [one["step"] for one in calls(setup) if one["phase"] == "sync_weights"] == [None, 0, 1]


def test_a_last_eval_keeps_the_handover_and_makes_no_other_difference() -> None:
    without = calls(grpo(3, save={"when": {"every": 1}}, eval={"when": {"every": None}}))
    with_it = calls(grpo(3, save={"when": {"every": 1}}, eval={"when": {"every": 3}}))
    assert [one for one in with_it if one in without] == without
    more = [(one["step"], one["phase"]) for one in with_it if one not in without]
    assert more == [(2, phase) for phase in [*HANDOVER, "eval"]]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("every", range(1, 7))
@pytest.mark.parametrize("steps", range(1, 13))
def test_an_eval_never_runs_in_a_step_whose_handover_is_missing(steps: int, every: int, last: bool) -> None:
    setup = grpo(steps, save={"when": {"every": 5}}, eval={"when": {"every": every, "last": last}})
    wanted = {k for k in range(steps) if (k + 1) % every == 0} | ({steps - 1} if last else set())
    assert set(steps_with(setup, "eval")) == wanted
    for phase in HANDOVER:
        assert set(steps_with(setup, phase)) == set(range(steps - 1)) | (wanted & {steps - 1})


@pytest.mark.parametrize(
    ("per_epoch", "cap", "when", "saves"),
    [
        (7, 100, {"every": 5, "last": True}, [4, 9, 13]),
        (7, 100, {"every": 7, "last": True}, [6, 13]),
        (7, 10, {"every": 5, "last": True}, [4, 9]),
        (7, 100, {"every": 5, "last": True, "epoch_end": True}, [4, 6, 9, 13]),
    ],
)
def test_the_last_step_is_where_epochs_or_the_cap_end(per_epoch: int, cap: int, when: Any, saves: list[int]) -> None:
    setup = grpo(run={"steps": cap, "epochs": 2, "steps_per_epoch": per_epoch}, save={"when": when})
    assert steps_with(setup, "save") == saves
    assert steps_with(setup, "train") == list(range(min(cap, 14)))


def test_a_run_of_no_steps_starts_nothing() -> None:
    assert calls(grpo(0)) == []


def test_a_run_of_no_steps_may_still_evaluate_and_then_no_trainer_moves() -> None:
    setup = grpo(0)
    setup.graph["start"]["eval"]["enabled"] = True
    assert names(setup, None) == ["reload_engine", "sync_weights", "reload_kv", "eval"]


@pytest.mark.parametrize("placement", against.SHARED)
@pytest.mark.parametrize("first", range(13))
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(first: int, placement: str) -> None:
    length = {"epochs": 2, "steps_per_epoch": 6}
    whole = calls(grpo(placement=placement, run=length))
    rest = calls(grpo(placement=placement, run={**length, "first": first}))
    steps = [one for one in whole if one["step"] is not None]
    assert [one for one in rest if one["step"] is not None] == [one for one in steps if one["step"] >= first]


def releasing(save_needs: dict[str, str]) -> Setup:
    """A trainer that leaves the device by itself after training, and an explicit release besides."""
    return grpo(2, train={"moves": {"policy": "host"}}, save={"needs": save_needs, "when": {"every": 1}})


def test_a_save_of_a_released_trainer_is_refused_with_the_cure() -> None:
    setup = releasing({"policy": "device"})
    assert (offends(setup).phase, offends(setup).resource, offends(setup).step) == ("save", "policy", 0)
    message = refusal(setup)
    for word in ("save", "policy", "train", "step 0", "device"):
        assert word in message


def test_a_second_release_is_removed() -> None:
    setup = releasing({})
    assert steps_with(setup, "offload_policy") == []
    assert steps_with(setup, "train") == [0, 1]


def test_a_partial_wake_is_refused_and_the_missing_thing_named() -> None:
    setup = grpo(2)
    del setup.graph["start"]["reload_kv"]
    assert offends(setup).resource == "kv"
    message = refusal(setup)
    for word in ("generate", "kv", "step 0", "reload_kv"):
        assert word in message


def test_a_second_wake_is_removed() -> None:
    again = {"use": "engine.reload", "moves": {"engine": "device"}}
    setup = grpo(3, eval={"when": {"every": 1}}, wake_again=again)
    assert len(steps_with(setup, "reload_engine") + steps_with(setup, "wake_again")) == 3


def with_teacher(place: str) -> Setup:
    """A frozen teacher engine leaves and returns with the actor's engine; it starts awake."""
    setup = grpo(
        3,
        offload_engine={"moves": {"engine": "host", "kv": "none", "teacher": place, "teacher_kv": "none"}},
        reload_engine={"moves": {"engine": "device", "teacher": "device"}},
        reload_kv={"moves": {"kv": "device", "teacher_kv": "device"}},
        generate={"reads": ["engine", "teacher"]},
    )
    setup.graph["step"]["generate"]["needs"] |= {"teacher": "device", "teacher_kv": "device"}
    setup.graph["resources"].update(
        teacher={"kind": "weights", "of": "engine", "at": "host"},
        teacher_kv={"kind": "scratch", "of": "engine", "at": "none"},
    )
    return setup


def test_what_was_released_together_is_restored_together() -> None:
    setup = with_teacher("host")
    for step in (0, 1):
        mine = [one.get("moves", {}) for one in calls(setup) if one["step"] == step]
        moved = {thing: place for moves in mine for thing, place in moves.items()}
        assert moved == {**dict.fromkeys(("engine", "kv", "teacher", "teacher_kv"), "device"), "policy": "host"}
    assert {tuple(one["copies"]) for one in calls(setup) if "copies" in one} == {("engine",)}


def test_a_discarded_teacher_that_nothing_refills_is_refused() -> None:
    setup = with_teacher("none")
    assert (offends(setup).phase, offends(setup).resource, offends(setup).step) == ("generate", "teacher", 1)
    message = refusal(setup)
    for word in ("generate", "teacher", "step 1", "offload_engine"):
        assert word in message


def test_of_a_ring_of_copies_the_one_that_is_kept_remains() -> None:
    things = {name: {"kind": "weights", "of": "some", "at": "host"} for name in "abc"}
    pairs = [("c", "b"), ("a", "b"), ("a", "c"), ("c", "b")]
    step = {f"copy{i}": {"copies": {target: source}} for i, (target, source) in enumerate(pairs)}
    setup = Setup(graph(things, step, keep={"a": "any"}), {}, {"steps": 1})
    assert least(world(setup), declared(setup)) == 1
    assert [list(one["copies"]) for one in calls(setup)] == [["a"]]


def test_a_need_that_several_places_meet_keeps_one_move() -> None:
    away = {f"to_{place}": {"moves": {"x": place}} for place in ("host", "disk")}
    use, other = {"use_it": {"needs": {"x": "device"}}}, {"other": {"needs": {"x": "!device"}}}
    step = {**use, **away, **other, "back": {"moves": {"x": "device"}}}
    things = {"x": {"kind": "weights", "of": "some", "at": "device"}}
    setup = Setup(graph(things, step, places=["disk"], keep={"x": "any"}), {}, {"steps": 3})
    assert weight(calls(setup)) == least(world(setup), declared(setup)) == 5


@pytest.mark.parametrize(("kept", "left"), [({"b": "any"}, []), ({"b": "device"}, ["free_a", "wake_b"])])
def test_what_a_handoff_needs_stays_only_while_the_handoff_does(kept: dict[str, str], left: list[str]) -> None:
    things = {name: {"kind": "weights", "of": "some", "at": at} for name, at in (("a", "device"), ("b", "host"))}
    step = {"free_a": {"moves": {"a": "host"}}, "wake_b": {"moves": {"b": "device"}, "needs": {"a": "!device"}}}
    setup = Setup(graph(things, step, keep=kept), {}, {"steps": 1})
    assert names(setup, 0) == left


@pytest.mark.parametrize(("place", "synced"), [("host", [2, 3]), ("none", [0, 1, 2, 3])])
def test_in_a_warm_up_weights_are_synced_only_where_they_were_thrown_away(place: str, synced: list[int]) -> None:
    """A critic of the trainer learns in every step, the policy from the third on."""
    setup = grpo(
        5,
        offload_engine={"moves": {"engine": place, "kv": "none"}},
        reload_policy={"moves": {"policy": "device", "critic": "device"}},
        score={"updates": ["critic"], "needs": {"critic": "device"}},
        train={"when": {"from": 2}},
        offload_policy={"moves": {"policy": "host", "critic": "host"}},
    )
    setup.graph["resources"]["critic"] = {"kind": "weights", "of": "trainer", "at": "host"}
    assert steps_with(setup, "sync_weights") == synced


SIZES: dict[str, Any] = {"policy": 48, "engine": 16, "kv": 40}
SYNC: dict[str, Any] = {"copies": {"engine": "policy"}, "needs": {"engine": "device"}, "use": "engine.sync"}


def handing_over(order: str, device: int, host: int, asleep: str = "host") -> Setup:
    """One step that ends with the engine awake: the trainer leaves last (A) or first (B)."""
    known = deepcopy(against.shipped("grpo")["resources"])
    known["policy"]["at"], known["engine"]["at"] = "device", asleep
    leave = {"offload_policy": {"moves": {"policy": "host"}}}
    wake = {"reload_engine": {"moves": {"engine": "device"}}, "sync_weights": dict(SYNC)}
    both = [wake, leave] if order == "A" else [leave, wake]
    step = {"train": {"updates": ["policy"], "needs": {"policy": "device"}}, **both[0], **both[1]}
    step["reload_kv"] = {"moves": {"kv": "device"}}
    step["eval"] = {"reads": ["engine"], "needs": {"engine": "device", "kv": "device"}, "writes": ["scores"]}
    placement = {**against.SHARED["colocated"], "sizes": SIZES, "capacity": {"device": device, "host": host}}
    return Setup(graph(known, step, keep={"policy": "any"}), placement, {"steps": 1})


@pytest.mark.parametrize(("order", "device", "host"), [("A", 80, 60), ("A", 64, 48), ("B", 60, 80), ("B", 56, 64)])
def test_an_order_that_fits_is_planned_as_it_stands(order: str, device: int, host: int) -> None:
    setup = handing_over(order, device, host)
    assert names(setup, 0) == list(setup.graph["step"])


@pytest.mark.parametrize(
    ("order", "device", "host", "peak", "moved"),
    [("A", 60, 80, "64", "offload_policy"), ("B", 80, 60, "64", "offload_policy")],
)
def test_an_order_that_does_not_fit_is_refused_and_the_one_that_would_is_named(
    order: str, device: int, host: int, peak: str, moved: str
) -> None:
    message = refusal(handing_over(order, device, host))
    assert peak in message
    assert "60" in message
    assert moved in message
    assert "reload_engine" in message


@pytest.mark.parametrize("order", ["A", "B"])
def test_where_no_order_fits_the_refusal_gives_both_numbers(order: str) -> None:
    message = refusal(handing_over(order, 60, 60))
    assert "64" in message
    assert "60" in message


def test_weights_that_are_thrown_away_need_no_room_on_the_host() -> None:
    assert names(handing_over("B", 60, 60, asleep="none"), 0)[-1] == "eval"
