"""The backward sweep: a handoff that nobody will miss goes.

Going from the end of the run to its start, the sweep carries what a later phase, or ``keep``, still wants: contents (a
bit a cell) and places (the set of places each resource may be at until something moves it). A part of a handoff that
gives nothing wanted is dropped, and what it would itself have needed is not wanted any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepgraph.compiler.lower import Layout, Op

GONE = -1
"""What is kept of a phase that is dropped altogether. Otherwise: the bits of its parts that remain."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the rest of the run wants: places (packed sets, all ones where anything goes) and contents."""

    places: int
    cells: int


@dataclass(frozen=True, slots=True)
class Swept:
    """The result for one step: what is kept of each phase, what was wanted right after its moves, and before the step."""

    kept: tuple[int, ...]
    wanted: tuple[int, ...]
    before: Wants


def at_end(layout: Layout) -> Wants:
    """What ``keep`` wants."""
    places, cells = layout.ones, 0
    for name, word in layout.graph.keep:
        places &= layout.want(name, word)
        cell = layout.cells.get((name, ""))
        if cell is not None:
            cells |= 1 << cell
            places &= layout.want(name, "!none")
    return Wants(places, cells)


def sweep(ops: tuple[Op, ...], kept: tuple[int, ...], after: Wants, drop: bool) -> Swept:
    """Sweep one step. ``after`` is in the terms of this step (see ``Layout.unshift``)."""
    places, cells = after.places, after.cells
    new, wanted = list(kept), [places] * len(ops)
    for i in range(len(ops) - 1, -1, -1):
        op, keep = ops[i], kept[i]
        wanted[i] = places
        if keep == GONE:
            continue
        if op.removable and drop:
            keep = new[i] = missed(op, keep, places, cells)
            if keep == GONE:
                continue
        if not op.may:
            cells &= ~op.kills
        places &= op.held
        for copy in op.copies:
            if keep & copy.part:
                cells = (cells | copy.source) if op.may else (cells & ~copy.target | copy.source)
                places &= copy.held
        wanted[i] = places
        if op.moves:
            places, cells = unmove(op, keep, places, cells)
        places &= op.needs & op.room
        cells |= op.reads
    return Swept(tuple(new), tuple(wanted), Wants(places, cells))


def unmove(op: Op, keep: int, places: int, cells: int) -> tuple[int, int]:
    """Before a move, the moved thing may be anywhere; freeing it makes its contents unwanted."""
    room = -1
    for move in op.moves:
        if keep & move.part:
            room &= move.room
            if not op.may:
                places |= move.field
                if move.frees:
                    cells &= ~move.cell
    return places & room, cells


def missed(op: Op, keep: int, places: int, cells: int) -> int:
    """The parts of a removable phase that somebody would miss; of pure work and of a fused call, all or none."""
    want = 0
    for copy in op.copies:
        if keep & copy.part and cells & copy.target:
            want |= copy.part
            places &= copy.held
    for move in op.moves:
        if keep & move.part and places & move.field != move.field:
            want |= move.part
    if not op.handoff:
        return keep if want or op.makes & cells or op.sinks else GONE
    if not want:
        return GONE
    return keep if op.phase.whole else want
