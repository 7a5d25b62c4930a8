"""From names to bits: what a phase does, as integers that the sweeps can combine in one operation.

Places of all resources share one integer, a field of one bit a place for each resource: a *need* is the set of places
it accepts, so that a conjunction of needs is ``&``, and a resource whose place is not known is a field with several
bits. Contents share another integer, one bit a *cell*: a weight, a state, a stream, or a value in the step it is made
for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
class Effect:
    """What a phase does when some of its parts remain, ready for the sweeps.

    The places after its moves are those of ``stays`` as they were, and ``goes``. ``lost`` are the cells that its moves
    free, also as numbers in ``freed``. ``entry`` must hold before it, ``holding`` once its moves are made; ``wish`` is
    what it wants before it, which of work that may free something is more than it can be sure of. Whatever is wanted
    after it of the places ``moved`` and the cells ``given`` is not wanted before it; the cells ``taken`` are.
    """

    stays: int
    goes: int
    lost: int
    freed: tuple[int, ...]
    entry: int
    wish: int
    holding: int
    copies: tuple[Copy, ...]
    moved: int
    given: int
    taken: int

    def put(self, places: int) -> int:
        """The places after its moves; of a phase that may not run, both the old and the new."""
        return places & self.stays | self.goes


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A phase in one scope; one object each, so that sweeps compare them by identity.

    ``needs``, ``room`` and ``held`` are packed place sets, all ones where anything goes. ``needs`` must hold whenever
    the phase runs; of work it includes what the placement adds. ``room`` is what the placement adds to a handoff, and
    holds wherever the declared list meets it. ``held`` must hold after the moves. Of ``simple`` work only the reads,
    the writes and ``stands`` (needs and held) count: the sweeps make short work of it.
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
    simple: bool
    changes: bool
    taken: tuple[int, ...]
    lasting: tuple[int, ...]
    stands: int
    _effects: dict[int, Effect] = field(init=False, default_factory=dict)

    def effect(self, keep: int) -> Effect:
        """What it does with the parts ``keep`` (their bits)."""
        found = self._effects.get(keep)
        if found is None:
            found = self._effects[keep] = effect(self, keep)
        return found


def effect(op: Op, keep: int) -> Effect:
    """Put together what remains of a phase."""
    moves = [move for move in op.moves if keep & move.part]
    copies = tuple([copy for copy in op.copies if keep & copy.part])
    moved, lost, sources, targets = 0, 0, op.reads, op.kills
    entry, holding = op.needs & op.room, op.held
    for move in moves:
        moved |= move.field
        lost |= move.cell if move.frees else 0
        entry, holding = entry & move.room, holding & move.swap
    for copy in copies:
        sources, targets = sources | copy.source, targets | copy.target
        holding &= copy.held
    return Effect(
        stays=-1 if op.may else ~moved,
        goes=sum(move.bit for move in moves),
        lost=lost,
        freed=bits_of(lost),
        entry=entry,
        wish=entry & ~sum(move.none for move in moves if move.frees) if op.may and not op.handoff else entry,
        holding=holding,
        copies=copies,
        moved=0 if op.may else moved,
        given=0 if op.may else targets | lost,
        taken=sources,
    )


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
        self.lasting_names = tuple(name for name, _ in self.cells)
        scopes: tuple[Scope, ...] = ("start", "end", *range(self.ahead + 1))
        values = [r.name for r in graph.resources.values() if r.kind == "value"]
        for scope in scopes:
            for name in values:
                self.cells[name, scope] = len(self.cells)
        self.slots = [sum(1 << self.cells[name, a] for name in values) for a in range(self.ahead + 1)]
        self.stride = len(values)
        self.sinks = frozenset(r.name for r in graph.resources.values() if r.kind == "sink")
        # Contents live somewhere: whoever touches them needs their place to be any but ``none``.
        self.alive = {name: self.want(name, "!none") if r.placed else self.ones for name, r in graph.resources.items()}
        self._bits: dict[Scope, dict[str, int]] = {}
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

    def bits(self, scope: Scope) -> dict[str, int]:
        """The cell that each name means in a scope, as a bit; scratch and sinks have none."""
        found = self._bits.get(scope)
        if found is None:
            cells = self.cells
            kinds = {name: scope if r.kind == "value" else "" for name, r in self.graph.resources.items()}
            masks = {name: cells.get((name, where)) for name, where in kinds.items()}
            found = {name: 0 if cell is None else 1 << cell for name, cell in masks.items()}
            self._bits[scope] = found
        return found

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
    handoff, ones, alive = phase.handoff, layout.ones, layout.alive
    taken, given = phase.reads + phase.updates, phase.writes + phase.updates
    room = making_room(layout, [name for name, word in phase.needs if word == "device"], own)
    freed = [] if handoff or may else [name for name, place in phase.moves if place == "none"]
    needs = meet(alive, (*taken, *freed))
    for name, word in phase.needs:
        needs &= layout.want(name, word)
    moves = tuple([lower_move(layout, phase, i, own) for i in range(len(phase.moves))])
    copies = tuple([lower_copy(layout, pair, len(moves) + i) for i, pair in enumerate(phase.copies)])
    needs, held = needs if handoff else needs & room, meet(alive, given)
    bits = layout.bits(scope)
    made, written, reads = union(bits, given), union(bits, phase.writes), union(bits, taken)
    return Op(
        name=phase.name,
        phase=phase,
        scope=scope,
        may=may,
        handoff=handoff,
        removable=handoff or phase.pure,
        reads=reads,
        makes=made,
        kills=0 if may else written,
        values=written & ~layout.lasting,
        sinks=not layout.sinks.isdisjoint(phase.writes),
        needs=needs,
        held=held,
        room=room if handoff else ones,
        moves=moves,
        copies=copies,
        parts=(1 << len(moves) + len(copies)) - 1,
        simple=not (handoff or phase.pure or may or moves or copies),
        changes=bool(copies or made & layout.lasting or any(move.frees and move.cell for move in moves)),
        taken=bits_of(reads & layout.lasting),
        lasting=bits_of(made & layout.lasting),
        stands=needs & held,
        asks=(handoff and room != ones) or any(move.room & move.swap != ones for move in moves),
    )


def union(masks: dict[str, int], names: Iterable[str]) -> int:
    found = 0
    for name in names:
        found |= masks[name]
    return found


def meet(masks: dict[str, int], names: Iterable[str]) -> int:
    found = -1
    for name in names:
        found &= masks[name]
    return found


def making_room(layout: Layout, names: Iterable[str], own: Iterable[str]) -> int:
    """What the placement wants off the device for these; what the phase itself asks for wins."""
    mask = layout.ones
    for name in names:
        mask &= layout.room[name]
    if mask != layout.ones:
        for name in own:
            mask |= layout.fields[name]
    return mask


def bits_of(mask: int) -> tuple[int, ...]:
    """The numbers of the bits of a mask."""
    found = []
    while mask:
        found.append(mask.bit_length() - 1)
        mask ^= 1 << found[-1]
    return tuple(found)


def lower_move(layout: Layout, phase: Phase, i: int, own: Iterable[str]) -> Move:
    name, place = phase.moves[i]
    cell = layout.cells.get((name, ""))
    puts = place == "device"
    return Move(
        at=layout.index[name],
        field=layout.fields[name],
        bit=layout.bit(name, place),
        none=layout.bit(name, "none"),
        part=1 << i,
        room=making_room(layout, (name,), own) if puts else layout.ones,
        swap=swapping(layout, phase, name) if puts and len(phase.moves) > 1 else layout.ones,
        frees=place == "none",
        cell=0 if cell is None else 1 << cell,
        puts=puts,
    )


def swapping(layout: Layout, phase: Phase, name: str) -> int:
    """What must be off the device, of the things that a phase moves, once it has put one of them there."""
    mask = layout.room[name]
    moved = dict(phase.moves)
    for other in layout.placed:
        if other not in moved:
            mask |= layout.fields[other]
    return mask


def lower_copy(layout: Layout, pair: tuple[str, str], part: int) -> Copy:
    target, source = layout.cells[pair[0], ""], layout.cells[pair[1], ""]
    return Copy(target, source, 1 << target, 1 << source, 1 << part, meet(layout.alive, pair))
