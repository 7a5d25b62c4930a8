"""From names to bits: what a phase does, as integers that the sweeps can combine in one operation.

Places of all resources share one integer, a field of one bit a place for each resource: a *need* is the set of places
it accepts, so that a conjunction of needs is ``&``, and a resource whose place is not known is a field with several
bits. Contents share another integer, one bit a *cell*: a weight, a state, a stream, or a value in the step it is made
for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase

Scope = int | str
"""Whose values a phase speaks of: ``start``, ``end``, or how many steps ahead of the running one."""

Apart = frozenset[tuple[str, str]]
"""Pairs of resources that must not be on the device together."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One part of a phase: resource ``at`` goes to place ``bit``.

    ``room`` is what the placement asks for at entry; ``swap``, what it asks for of the things that the same phase
    moves, once they are moved: who takes one thing off the device to put another there must not do the second alone.
    """

    at: int
    field: int
    bit: int
    none: int
    part: int
    room: int
    swap: int
    frees: bool
    cell: int
    puts: bool


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """One part of a phase: cell ``to`` takes the contents of cell ``of``; neither may be freed (``held``)."""

    to: int
    of: int
    target: int
    source: int
    part: int
    held: int


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A phase in one scope; one object each, so that sweeps compare them by identity.

    ``needs``, ``room`` and ``held`` are packed place sets, all ones where anything goes. ``keep`` in the methods is the
    bits of the parts that remain.

    ``needs`` must hold whenever the phase runs; of work it includes what the placement adds. ``room`` is what the
    placement adds to a handoff, and holds wherever the declared list meets it. ``held`` must hold after the moves.
    """

    name: str
    phase: Phase
    scope: Scope
    may: bool
    handoff: bool
    removable: bool
    reads: int
    makes: int
    kills: int
    values: int
    sinks: bool
    needs: int
    held: int
    room: int
    moves: tuple[Move, ...]
    copies: tuple[Copy, ...]
    parts: int
    asks: bool
    lasting: tuple[int, ...]

    def put(self, places: int, keep: int) -> int:
        """The places after its moves; of a phase that may not run, both the old and the new."""
        for move in self.moves:
            if keep & move.part:
                places = places | move.bit if self.may else places & ~move.field | move.bit
        return places

    def frees(self, keep: int) -> int:
        """The cells whose contents its moves lose."""
        cells = 0
        for move in self.moves:
            if move.frees and keep & move.part:
                cells |= move.cell
        return cells

    def entry(self, keep: int) -> int:
        """The places it asks for at entry: its own needs, and room for itself and for what it puts on the device."""
        asked = self.needs & self.room
        for move in self.moves:
            if keep & move.part:
                asked &= move.room
        return asked

    def holding(self, keep: int) -> int:
        """The places it asks for once its moves are made: nothing that it writes or copies may be freed."""
        asked = self.held
        for move in self.moves:
            if keep & move.part:
                asked &= move.swap
        for copy in self.copies:
            if keep & copy.part:
                asked &= copy.held
        return asked


class Layout:
    """The bits of a graph's places and cells."""

    def __init__(self, graph: Graph, apart: Apart = frozenset()) -> None:
        self.graph = graph
        self._wants: dict[tuple[str, str], int] = {}
        self.width = len(graph.places)
        self.placed = tuple(r.name for r in graph.resources.values() if r.placed)
        self.index = {name: i for i, name in enumerate(self.placed)}
        self.ones = (1 << self.width * len(self.placed)) - 1
        self.fields = {name: ((1 << self.width) - 1) << self.width * i for name, i in self.index.items()}
        self.none = sum(self.bit(name, "none") for name in self.placed)
        self.on_device = sum(self.bit(name, "device") for name in self.placed)
        self.ahead = max((phase.ahead for phase in graph.step), default=0)
        self.cells: dict[tuple[str, Scope], int] = {}
        for r in graph.resources.values():
            if r.carried or r.kind == "stream":
                self.cells[r.name, ""] = len(self.cells)
        self.lasting = (1 << len(self.cells)) - 1
        self.carried = tuple(r.name for r in graph.resources.values() if r.carried)
        scopes: tuple[Scope, ...] = ("start", "end", *range(self.ahead + 1))
        values = [r.name for r in graph.resources.values() if r.kind == "value"]
        for scope in scopes:
            for name in values:
                self.cells[name, scope] = len(self.cells)
        self.slots = [sum(1 << self.cells[name, a] for name in values) for a in range(self.ahead + 1)]
        self.stride = len(values)
        self.room = self._room(apart)

    def bit(self, name: str, place: str) -> int:
        """The bit of one resource at one place."""
        return 1 << self.width * self.index[name] + self.graph.places.index(place)

    def want(self, name: str, word: str) -> int:
        """The packed set that a need stands for: ``device``, ``!device`` or ``any``."""
        found = self._wants.get((name, word))
        if found is None:
            found = self._wants[name, word] = self._want(name, word)
        return found

    def _want(self, name: str, word: str) -> int:
        field = self.fields[name]
        if word == "any":
            return self.ones
        if word.startswith("!"):
            return self.ones & ~self.bit(name, word[1:])
        return self.ones & ~field | self.bit(name, word)

    def word(self, name: str, mask: int) -> str:
        """The places of one resource in a packed set, in words."""
        held = [place for place in self.graph.places if mask & self.bit(name, place)]
        return " or ".join(held)

    def cell(self, name: str, scope: Scope) -> int | None:
        """The cell that a name means in a scope; scratch and sinks have none."""
        kind = self.graph.resources[name].kind
        if kind == "value":
            return self.cells[name, scope]
        return self.cells.get((name, ""))

    def cell_name(self, mask: int) -> str:
        """The resource of the first cell in a mask."""
        return next(name for (name, _), at in self.cells.items() if mask >> at & 1)

    def at(self, places: int) -> str:
        """The first resource with a bit in a packed set."""
        return next(name for name in self.placed if places & self.fields[name])

    def members(self, name: str) -> tuple[str, ...]:
        """The placed resources that a placement means by a component or a resource."""
        resources = self.graph.resources.values()
        if any(r.of == name for r in resources):
            return tuple(r.name for r in resources if r.of == name and r.placed)
        return (name,)

    def _room(self, apart: Apart) -> dict[str, int]:
        """For each resource: what must be off the device while somebody works with it there."""
        room = dict.fromkeys(self.placed, self.ones)
        for x, y in apart:
            room[x] &= self.want(y, "!device")
            room[y] &= self.want(x, "!device")
        for x, ys in self.graph.placement.makes_room:
            leave = self.ones
            for name in self.members(x):
                leave &= self.want(name, "!device")
            for y in ys:
                for name in self.members(y):
                    # A thing does not leave the device for itself.
                    room[name] &= leave | self.fields[name]
        return room

    def shift(self, cells: int) -> int:
        """The cells at the end of a step as the next step names them: a value made ahead comes one step closer."""
        found = cells & self.lasting
        for ahead in range(1, self.ahead + 1):
            found |= (cells & self.slots[ahead]) >> self.stride
        return found

    def unshift(self, cells: int) -> int:
        """The inverse of ``shift``, for a sweep from the end."""
        found = cells & self.lasting
        for ahead in range(self.ahead):
            found |= (cells & self.slots[ahead]) << self.stride
        return found


def lower(layout: Layout, phase: Phase, scope: Scope, *, may: bool = False) -> Op:
    """Give a phase its bits."""
    own = dict(phase.needs)
    resources = layout.graph.resources
    needs = conjunction(layout, phase.needs) & held(layout, (*phase.reads, *phase.updates))
    device = [name for name, word in phase.needs if word == "device"]
    room = making_room(layout, device, own)
    moves = tuple(lower_move(layout, phase, i, own) for i in range(len(phase.moves)))
    freed = () if phase.handoff or may else tuple(name for name, place in phase.moves if place == "none")
    copies = tuple(lower_copy(layout, pair, len(moves) + i) for i, pair in enumerate(phase.copies))
    taken = cells(layout, (*phase.reads, *phase.updates), scope)
    made = cells(layout, (*phase.writes, *phase.updates), scope)
    return Op(
        name=phase.name,
        phase=phase,
        scope=scope,
        may=may,
        handoff=phase.handoff,
        removable=phase.handoff or phase.pure,
        reads=taken,
        makes=made,
        kills=0 if may else cells(layout, phase.writes, scope),
        values=cells(layout, (name for name in phase.writes if resources[name].kind == "value"), scope),
        sinks=any(resources[name].kind == "sink" for name in phase.writes),
        needs=needs & held(layout, freed) & (layout.ones if phase.handoff else room),
        held=held(layout, (*phase.writes, *phase.updates)),
        room=room if phase.handoff else layout.ones,
        moves=moves,
        copies=copies,
        parts=(1 << len(moves) + len(copies)) - 1,
        lasting=bits_of(made & layout.lasting),
        asks=(phase.handoff and room != layout.ones) or any(move.room & move.swap != layout.ones for move in moves),
    )


def conjunction(layout: Layout, needs: Iterable[tuple[str, str]]) -> int:
    mask = layout.ones
    for name, word in needs:
        mask &= layout.want(name, word)
    return mask


def making_room(layout: Layout, names: Iterable[str], own: dict[str, str]) -> int:
    """What the placement wants off the device for these; what the phase itself asks for wins."""
    mask = layout.ones
    for name in names:
        mask &= layout.room[name]
    for name in own:
        mask |= layout.fields[name]
    return mask


def held(layout: Layout, names: Iterable[str]) -> int:
    """Contents live somewhere: whoever touches them needs their place to be any but ``none``."""
    mask = layout.ones
    for name in names:
        if name in layout.index:
            mask &= layout.want(name, "!none")
    return mask


def cells(layout: Layout, names: Iterable[str], scope: Scope) -> int:
    found = 0
    for name in names:
        cell = layout.cell(name, scope)
        if cell is not None:
            found |= 1 << cell
    return found


def bits_of(mask: int) -> tuple[int, ...]:
    """The numbers of the bits of a mask."""
    found = []
    while mask:
        found.append(mask.bit_length() - 1)
        mask ^= 1 << found[-1]
    return tuple(found)


def lower_move(layout: Layout, phase: Phase, i: int, own: dict[str, str]) -> Move:
    name, place = phase.moves[i]
    cell = layout.cells.get((name, ""))
    room = making_room(layout, (name,), own) if place == "device" else layout.ones
    swap = making_room(layout, (name,), {}) if place == "device" else layout.ones
    for other in layout.placed:
        if other not in dict(phase.moves):
            swap |= layout.fields[other]
    return Move(
        at=layout.index[name],
        field=layout.fields[name],
        bit=layout.bit(name, place),
        none=layout.bit(name, "none"),
        part=1 << i,
        room=room,
        swap=swap,
        frees=place == "none",
        cell=0 if cell is None else 1 << cell,
        puts=place == "device",
    )


def lower_copy(layout: Layout, pair: tuple[str, str], part: int) -> Copy:
    target, source = (layout.cells[name, ""] for name in pair)
    return Copy(target, source, 1 << target, 1 << source, 1 << part, held(layout, pair))
