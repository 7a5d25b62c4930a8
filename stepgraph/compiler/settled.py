"""The forward sweep: a handoff that changes nothing that matters goes.

Going from the start of the run, the sweep carries where everything is and which contents are equal. A move is dropped
where every need until the thing's next move is met by where it already is; a copy, where the contents are there.
"""

from __future__ import annotations

from typing import NamedTuple

from stepgraph.compiler.dead import GONE, Aim
from stepgraph.compiler.lower import Layout, Op

Tokens = tuple[int, ...]
"""The contents of each lasting cell: equal numbers are equal contents, 0 is none."""


class Facts(NamedTuple):
    """Where everything is (packed; several bits where it is not known), and which cells hold the same."""

    places: int
    tokens: Tokens


def at_start(layout: Layout, have: int, same: tuple[object, ...] = ()) -> Tokens:
    """Every thing with contents starts with its own; ``same`` tells, cell by cell, which ones are equal."""
    names: dict[object, int] = {None: 0}
    held = same or tuple(range(layout.lasting.bit_length()))
    return canonical([names.setdefault(one, len(names)) if have >> cell & 1 else 0 for cell, one in enumerate(held)])


def canonical(tokens: list[int]) -> Tokens:
    """Number contents by first appearance, so that equal situations are equal values."""
    names = {0: 0}
    return tuple([names.setdefault(token, len(names)) for token in tokens])


def sweep(ops: tuple[Op, ...], aim: Aim, facts: Facts, drop: bool) -> tuple[tuple[int, ...], Facts]:
    """Sweep one step."""
    places, tokens = facts.places, list(facts.tokens)
    fresh = len(tokens) + 1
    new = list(aim.kept)
    for i, op in enumerate(ops):
        if drop and (op.handoff or aim.idle[i]) and not op.may and new[i] != GONE:
            new[i] = useful(op, aim, i, places, tokens)
        if new[i] != GONE:
            places = op.effect(new[i]).put(places) if op.moves else places
            fresh = change(op, new[i], tokens, fresh) if op.changes else fresh
    return tuple(new), Facts(places, canonical(tokens))


def change(op: Op, keep: int, tokens: list[int], fresh: int) -> int:
    """Give the cells their contents after a phase. Returns the next number that no contents have."""
    effect = op.effect(keep)
    for cell in effect.freed:
        tokens[cell] = 0
    for copy in effect.copies:
        tokens[copy.to] = fresh if op.may else tokens[copy.of]
        fresh += op.may
    for cell in op.lasting:
        tokens[cell] = fresh
        fresh += 1
    return fresh


def useful(op: Op, aim: Aim, i: int, places: int, tokens: list[int]) -> int:
    """The parts of the phase at ``i`` that change something that matters; of a fused call, all or none."""
    use, keep = 0, aim.kept[i]
    for move in op.moves:
        if keep & move.part and places & move.field & ~aim.wanted[i]:
            use |= move.part
    for copy in op.copies:
        new = tokens[copy.of] != tokens[copy.to] or not tokens[copy.of]
        if keep & copy.part and aim.live[i] & copy.target and new:
            use |= copy.part
    if not use:
        return GONE
    return keep if op.phase.whole or not op.handoff else use
