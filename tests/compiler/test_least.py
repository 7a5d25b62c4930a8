"""Graphs in which two sweeps keep too much: needs that several places meet, copies in rings and chains, fused calls."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.compiler import Plan, least
from stepgraph.compiler.expand import expand
from stepgraph.compiler.least import plain

from .made import brief, graph, grpo, plan

ONE = {"a": {"kind": "weights", "at": "device"}}
AWAY = {
    "m1": {"moves": {"a": "host"}},
    "m2": {"moves": {"a": "disk"}},
    "use": {"needs": {"a": "!device"}},
    "m3": {"moves": {"a": "host"}},
    "see": {"needs": {"a": "host"}},
}


def phases(made: Plan) -> list[str]:
    return [one["phase"] for one in made.calls()]


def test_the_move_that_serves_both_a_loose_need_and_a_strict_one_is_the_one_that_stays() -> None:
    """Backwards, m2 is the last to meet "anywhere else", and then m3 must bring it to the host."""
    assert brief(plan(AWAY, ONE, places=["disk"]).calls()) == ["0 m1 a>host", "0 use", "0 see"]


def test_the_sweeps_alone_keep_more_of_it() -> None:
    assert phases(plan(AWAY, ONE, places=["disk"], passes=["dead"])) == ["m2", "use", "m3", "see"]


def test_it_is_found_in_every_step_of_a_long_run() -> None:
    step = {"back": {"moves": {"a": "device"}}, "work": {"needs": {"a": "device"}}, **AWAY}
    made = plan(step, ONE, places=["disk"], steps=1000)
    assert len(made.calls()) == 5 * 1000 - 1
    assert brief(made.calls()[-5:]) == ["999 back a>device", "999 work", "999 m1 a>host", "999 use", "999 see"]


RING = {"a": "weights", "b": "weights", "c": "weights"}


def test_contents_that_go_round_a_ring_are_copied_once() -> None:
    """b holds a's contents after the first copy; what comes back is there already."""
    step = {
        "fill": {"writes": ["a"]},
        "there": {"copies": {"b": "a"}},
        "back": {"copies": {"a": "b"}},
        "again": {"copies": {"b": "a"}},
        "use": {"reads": ["a", "b"]},
    }
    assert brief(plan(step, RING).calls()) == ["0 fill", "0 there b<a", "0 use"]


def test_of_a_chain_of_copies_the_links_that_nobody_reads_go() -> None:
    step = {
        "ab": {"copies": {"b": "a"}},
        "bc": {"copies": {"c": "b"}},
        "ac": {"copies": {"c": "a"}},
        "use": {"reads": ["c"]},
    }
    assert brief(plan(step, RING, keep={}).calls()) == ["0 ac c<a", "0 use"]


def test_where_every_link_is_read_two_of_three_copies_do() -> None:
    step = {
        "ab": {"copies": {"b": "a"}},
        "bc": {"copies": {"c": "b"}},
        "ac": {"copies": {"c": "a"}},
        "use": {"reads": ["b", "c"]},
    }
    assert sum(len(one.get("copies", {})) for one in plan(step, RING).calls()) == 2


TWO = {"a": {"kind": "weights", "at": "host"}, "b": {"kind": "weights", "at": "host"}}
FUSED = {"moves": {"a": "device", "b": "device"}, "whole": True}


def test_a_fused_call_is_kept_whole_where_one_part_is_wanted() -> None:
    step = {"both": FUSED, "use": {"needs": {"a": "device"}}}
    assert brief(plan(step, TWO).calls()) == ["0 both a>device b>device", "0 use"]


def test_a_fused_call_goes_whole_where_no_part_is_wanted() -> None:
    step = {"both": FUSED, "use": {"reads": ["a", "b"]}}
    assert brief(plan(step, TWO).calls()) == ["0 use"]


def test_a_fused_call_is_not_kept_for_what_a_later_single_one_gives_as_well() -> None:
    step = {
        "both": {"moves": {"a": "device", "b": "disk"}, "whole": True},
        "single": {"moves": {"a": "device"}},
        "work": {"needs": {"a": "device", "b": "!device"}},
        "home": {"moves": {"b": "host"}},
        "see": {"needs": {"b": "host"}},
    }
    assert brief(plan(step, TWO, places=["disk"]).calls()) == ["0 single a>device", "0 work", "0 see"]


def test_two_sweeps_are_known_to_be_exact_for_the_usual_loop() -> None:
    assert plain(grpo().layout)
    assert not plain(expand(graph(AWAY, ONE, places=["disk"]), 0, 1).layout)


@pytest.mark.parametrize(
    "step",
    [
        {"x": {"copies": {"b": "a"}}, "y": {"copies": {"c": "b"}}},
        {"x": {"copies": {"b": "a"}}, "y": {"copies": {"b": "c"}}},
        {"x": {"moves": {"a": "none"}}, "y": {"moves": {"a": "device"}}},
    ],
    ids=["copies in a chain", "two sources for one target", "three places for one thing"],
)
def test_what_two_sweeps_may_get_wrong_is_looked_at_exactly(step: dict[str, Any]) -> None:
    assert not plain(expand(graph(step, RING), 0, 1).layout)


def test_too_many_situations_leave_the_sweeps_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least, "LIMIT", 1)
    made = plan(AWAY, ONE, places=["disk"])
    assert phases(made) == ["m2", "use", "m3", "see"]


def test_a_handoff_that_only_the_run_can_fire_leaves_the_sweeps_answer() -> None:
    step = {**AWAY, "maybe": {"moves": {"b": "device"}, "when": {"file": "go"}}}
    made = plan(step, {**ONE, "b": "weights"}, places=["disk"], keep={"b": "!disk"})
    assert phases(made) == ["m2", "use", "m3", "see", "maybe"]


def test_a_handoff_that_only_the_run_can_fire_and_that_is_pruned_is_in_nobodys_way() -> None:
    made = plan({**AWAY, "maybe": {"moves": {"a": "host"}, "when": {"file": "go"}}}, ONE, places=["disk"])
    assert brief(made.calls()) == ["0 m1 a>host", "0 use", "0 see"]


THREE = {
    "c_disk": {"moves": {"c": "disk"}},
    "c_far": {"needs": {"c": "disk"}},
    "c_on": {"moves": {"c": "device"}},
    "c_use": {"needs": {"c": "device"}},
}
"""A thing with three places, so that the exact answer is looked for; nothing of it can go."""

ALL = {**TWO, "c": {"kind": "weights", "at": "host"}}


def exactly(step: dict[str, Any], **more: Any) -> list[str]:
    """What is kept beside ``THREE``."""
    calls = plan({**THREE, **step}, ALL, places=["disk"], **more).calls()
    return [line for line in brief(calls) if " c_" not in line]


def test_the_parts_are_counted_not_the_calls() -> None:
    step = {"single": {"moves": {"a": "device"}}, "both": FUSED, "use": {"needs": {"a": "device"}}}
    assert exactly(step) == ["0 single a>device", "0 use"]


def test_the_exact_answer_leaves_a_fused_call_whole() -> None:
    step = {"both": FUSED, "use": {"needs": {"a": "device"}}}
    assert exactly(step) == ["0 both a>device b>device", "0 use"]


def test_the_exact_answer_ends_with_the_contents_that_are_kept() -> None:
    step = {"sync": {"copies": {"b": "a"}}}
    assert exactly(step, keep={"b": "any"}) == ["0 sync b<a"]
    assert exactly(step) == []


def test_the_exact_answer_ends_in_the_places_that_are_kept() -> None:
    step = {"on": {"moves": {"a": "device"}}, "off": {"moves": {"a": "host"}}, "again": {"moves": {"a": "device"}}}
    assert len(exactly(step, keep={"a": "device"})) == 1
    assert exactly(step, keep={"a": "any"}) == []


# ---- against every subset ------------------------------------------------------------------------------------------

PLACES = ("device", "host", "disk")


def cost(start: str, moves: list[tuple[str, str]], end: str) -> int | None:
    """The fewest moves of one thing: ``("move", place)`` may go, ``("need", word)`` must hold."""
    some = [i for i, (kind, _) in enumerate(moves) if kind == "move"]
    best = None
    for chosen in product([False, True], repeat=len(some)):
        keep, at, good = dict(zip(some, chosen, strict=True)), start, True
        for i, (kind, word) in enumerate(moves):
            at = word if kind == "move" and keep[i] else at
            good &= kind == "move" or holds(word, at)
        if good and holds(end, at):
            best = min(sum(chosen), len(some) if best is None else best)
    return best


def holds(word: str, at: str) -> bool:
    return word in (at, "any") or (word.startswith("!") and word[1:] != at)


@st.composite
def walks(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """One thing that goes from place to place; each need is true where it stands."""
    start = at = draw(st.sampled_from(PLACES))
    out: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(1, 9))):
        if draw(st.booleans()):
            at = draw(st.sampled_from(PLACES))
            out.append(("move", at))
        else:
            others = [f"!{place}" for place in PLACES if place != at]
            out.append(("need", draw(st.sampled_from([at, *others]))))
    return start, out


@given(walks(), st.sampled_from(["any", "there"]))
def test_of_one_things_moves_no_cheaper_choice_would_do(drawn: tuple[str, list[tuple[str, str]]], end: str) -> None:
    start, moves = drawn
    last = next((word for kind, word in reversed(moves) if kind == "move"), start)
    word = "any" if end == "any" else last
    step = {f"p{i}": {"moves" if kind == "move" else "needs": {"a": word}} for i, (kind, word) in enumerate(moves)}
    made = plan(step, {"a": {"kind": "weights", "at": start}}, keep={"a": word}, places=["disk"])
    assert sum(len(one.get("moves", {})) for one in made.calls()) == cost(start, moves, word)
