"""The check after the passes: the pruned list beside the declared one, observer by observer.

It shares nothing with the sweeps but the effects of a phase, so that an error in a sweep stops a plan instead of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stepgraph.compiler.check import Table
from stepgraph.compiler.dead import GONE, Wants
from stepgraph.compiler.expand import Shape
from stepgraph.compiler.lower import Op, bits_of
from stepgraph.compiler.seq import Seq, scan
from stepgraph.compiler.settled import Facts, Tokens, canonical, change


class Both(NamedTuple):
    """Places of the pruned list, and the contents of the declared one followed by those of the pruned one."""

    places: int
    tokens: Tokens


class UnsoundError(AssertionError):
    """The compiler contradicts itself. Never the user's mistake."""

    def __init__(self, op: Op, what: str) -> None:
        super().__init__(f"the pruned plan is wrong at {op.name}: {what}; passes=[] runs the list as declared")


def verify(seq: Seq, step_of: Callable[[int], tuple[Shape, tuple[int, ...]]], facts: Facts, wants: Wants) -> None:
    """Walk both lists; raise ``UnsoundError`` where an observer could tell them apart."""
    states: Table[Both] = Table()

    def transfer(label: int, number: int) -> tuple[int, int]:
        shape, kept = step_of(label)
        return label, states(walk(shape.ops, kept, states[number]))

    end = states[scan(seq, transfer, states(Both(facts.places, facts.tokens + facts.tokens)))[1]]
    declared, pruned = halves(end.tokens)
    same = all(declared[cell] == pruned[cell] for cell in bits_of(wants.cells))
    if end.places & ~wants.places or not same:
        raise AssertionError("the pruned plan does not keep what the graph keeps; passes=[] runs the list as declared")


def entered(op: Op, keep: int, places: int, declared: list[int], pruned: list[int]) -> int:
    """The places after a phase of the pruned list, if it finds all that it asks for."""
    if keep == GONE:
        if not op.removable:
            raise UnsoundError(op, "it is due and does not run")
        return places
    effect = op.effect(keep)
    if places & ~effect.entry:
        raise UnsoundError(op, "a place that it needs is not there")
    compare(op, declared, pruned)
    places = effect.put(places)
    if places & ~effect.holding:
        raise UnsoundError(op, "it gives contents to what is freed")
    return places


def watched(op: Op, places: int, declared: list[int], pruned: list[int], fresh: int) -> int:
    """Simple work of both lists."""
    if places & ~op.stands:
        raise UnsoundError(op, "a place that it needs is not there")
    compare(op, declared, pruned)
    for cell in op.lasting:
        declared[cell] = pruned[cell] = fresh
        fresh += 1
    return fresh


def compare(op: Op, declared: list[int], pruned: list[int]) -> None:
    for cell in op.taken:
        if declared[cell] != pruned[cell]:
            raise UnsoundError(op, "it reads other contents")


def halves(tokens: Tokens) -> tuple[list[int], list[int]]:
    count = len(tokens) // 2
    return list(tokens[:count]), list(tokens[count:])


def walk(ops: tuple[Op, ...], kept: tuple[int, ...], both: Both) -> Both:
    """One step of both lists."""
    places = both.places
    declared, pruned = halves(both.tokens)
    fresh = len(both.tokens) + 1
    for op, keep in zip(ops, kept, strict=True):
        if op.simple and keep != GONE:
            fresh = watched(op, places, declared, pruned, fresh)
            continue
        places = entered(op, keep, places, declared, pruned)
        if op.changes:
            # Removed work makes contents that nobody reads: only the declared list has them.
            if keep != GONE:
                change(op, keep, pruned, fresh)
            fresh = change(op, op.parts, declared, fresh)
    return Both(places, canonical(declared + pruned))
