"""The backward sweep: a handoff that nobody will miss goes.

Going from the end of the run to its start, the sweep carries what a later phase, or ``keep``, still wants: contents (a
bit a cell) and places (the set of places each resource may be at until something moves it). A part of a handoff that
gives nothing wanted is dropped, and what it would itself have needed is not wanted any more.
"""

from __future__ import annotations

from typing import NamedTuple

from stepgraph.compiler.lower import Layout, Op

GONE = -1
"""What is kept of a phase that is dropped altogether. Otherwise: the bits of its parts that remain."""


class Wants(NamedTuple):
    """What the rest of the run wants: places (packed sets, all ones where anything goes) and contents; of these, the
    ``sure`` ones are wanted by somebody who does not wait for what only the run will tell."""

    places: int
    cells: int
    sure: int


class Aim(NamedTuple):
    """The result for one step: what is kept of each phase, the places wanted right after its moves, whether it is pure
    work whose contents nobody wants, and the contents wanted of one that stays or goes as a whole (of others all, as
    the sweep has dropped what nobody wants)."""

    kept: tuple[int, ...]
    wanted: tuple[int, ...]
    idle: tuple[bool, ...]
    live: tuple[int, ...]


def at_end(layout: Layout) -> Wants:
    """What ``keep`` wants."""
    places, cells = layout.ones, 0
    for name, word in layout.graph.keep:
        places &= layout.want(name, word)
        cell = layout.cells.get((name, ""))
        if cell is not None:
            cells |= 1 << cell
            places &= layout.want(name, "!none")
    return Wants(places, cells, cells)


def sweep(ops: tuple[Op, ...], kept: tuple[int, ...], after: Wants, drop: bool) -> tuple[Aim, Wants]:
    """Sweep one step; returns what is wanted before it, too. ``after`` is in its terms (see ``Layout.unshift``)."""
    places, cells, sure = after
    new, wanted, idle, live = list(kept), [places] * len(ops), [False] * len(ops), [-1] * len(ops)
    for i in range(len(ops) - 1, -1, -1):
        op = ops[i]
        if op.simple:
            wanted[i] = places & op.held
            places = wanted[i] & op.needs
            cells, sure = cells & ~op.kills | op.reads, sure & ~op.kills | op.reads
            continue
        if drop and op.removable and new[i] != GONE:
            new[i] = missed(op, new[i], places, cells, sure)
        live[i] = cells if op.phase.whole or op.phase.pure else -1
        idle[i] = op.removable and not op.handoff and not (op.makes & cells or op.sinks)
        wanted[i] = places
        if new[i] != GONE:
            # What it makes, copies or moves was not wanted before.
            effect = op.effect(new[i])
            wanted[i] = places & effect.holding
            places, cells = (wanted[i] | effect.moved) & effect.wish, cells & ~effect.given | effect.taken
            sure = sure if op.may else sure & ~effect.given | effect.taken
    return Aim(tuple(new), tuple(wanted), tuple(idle), tuple(live)), Wants(places, cells, sure)


def missed(op: Op, keep: int, places: int, cells: int, sure: int) -> int:
    """The parts of a removable phase that somebody would miss; of pure work and of a fused call, all or none."""
    made = 0 if op.handoff else op.makes & cells or op.sinks
    want = 0
    for copy in op.copies:
        if keep & copy.part and cells & copy.target:
            want |= copy.part
            places &= copy.held
            sure &= ~copy.target
    want |= wanted_moves(op, keep, places, sure & ~op.kills)
    if not op.handoff:
        return keep if want or made else GONE
    if not want:
        return GONE
    return keep if op.phase.whole else want


def wanted_moves(op: Op, keep: int, places: int, sure: int) -> int:
    """The moves that somebody would miss. What has contents that are surely wanted before as well as after the phase
    is not at ``none``, so that having to be anywhere but there is no reason to move it."""
    want = 0
    for move in (*op.moves, *op.moves):
        # Twice: a move that is wanted may want another of the same phase (see ``Move.swap``).
        anywhere = places | (move.none if sure & move.cell else 0)
        if keep & ~want & move.part and anywhere & move.field != move.field:
            want |= move.part
            places &= move.swap
    return want
