"""The typestate walk: every read finds contents, every need finds its place, on the list as it is declared.

It runs before the passes and refuses what the declared list itself gets wrong. On the way it settles what only the
declared list can tell: where a handoff meets the room that the placement asks for, it must keep meeting it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from stepgraph.compiler.expand import Expanded, Shape
from stepgraph.compiler.lower import Layout, Op
from stepgraph.compiler.seq import Index, Seq, scan
from stepgraph.errors import GraphError, did_you_mean
from stepgraph.ir.phase import Phase

T = TypeVar("T", bound=Hashable)


class Table(Generic[T]):
    """Small numbers for values, so that sweeps compare and remember numbers."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._known: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = len(self.values)
            self.values.append(value)
        return found

    def __getitem__(self, number: int) -> T:
        return self.values[number]


class State(NamedTuple):
    """What the walk knows between two steps: ``places`` (packed), and the cells that surely or maybe hold contents."""

    places: int
    have: int
    maybe: int = 0


class RefusedError(Exception):
    """A phase that cannot run where it stands; ``refuse`` tells it with its step and a cure."""

    def __init__(self, op: Op, cause: str, resource: str, want: int = 0) -> None:
        super().__init__(cause)
        self.op, self.cause, self.resource, self.want = op, cause, resource, want


def initial(layout: Layout) -> State:
    """Everything where it starts. At ``none``, and as the target of a copy, a thing starts without contents."""
    graph = layout.graph
    targets = graph.sources
    have = 0
    for (name, _), cell in layout.cells.items():
        resource = graph.resources[name]
        full = resource.kind == "stream" or (resource.carried and resource.at != "none" and name not in targets)
        have |= full << cell
    return State(sum(layout.bit(name, graph.resources[name].at) for name in layout.placed), have)


def under_way(expanded: Expanded, contents: Mapping[str, Hashable]) -> int:
    """The cells that hold something between two steps of a run: lasting ones, and values that were made ahead."""
    layout, first = expanded.layout, expanded.first
    have = 0
    for (name, _), cell in layout.cells.items():
        kind = layout.graph.resources[name].kind
        have |= (kind == "stream" or (kind != "value" and contents.get(name) is not None)) << cell
    for phase in layout.graph.step:
        for slot in range(phase.ahead):
            if first + slot < expanded.total and expanded.gates[phase.name].fires(first + slot):
                bits = layout.bits(slot)
                have |= sum(bits[name] for name in phase.writes) & ~layout.lasting
    return have


def check(expanded: Expanded, state: State, label_of: Callable[[Shape], int]) -> Seq:
    """Walk the declared list. Returns the run as labels of shapes; raises ``GraphError`` where a phase cannot run."""
    layout = expanded.layout
    states: Table[State] = Table()
    rooms = Rooms(layout)

    def transfer(label: int, number: int) -> tuple[int, int]:
        shape, after = walk(layout, expanded.kinds[label], states[number], rooms)
        return label_of(shape), states(after)

    begin = states(state)
    try:
        seq, end = scan(expanded.seq, transfer, begin)
    except RefusedError:
        raise refusal(expanded, transfer, begin) from None
    check_keep(layout, states[end])
    return seq


def walk(layout: Layout, kind: Shape, state: State, rooms: Rooms) -> tuple[Shape, State]:
    """One step of the walk."""
    places, have, maybe = state
    ops = []
    for op in kind.ops:
        if op.simple and not (places & ~op.stands or op.reads & ~have or op.values & (have | maybe)):
            ops.append(op)
            have, maybe = have | op.makes, maybe & ~op.makes
            continue
        enter(layout, op, places, have, maybe)
        ops.append(rooms.bound(op, places) if op.asks else op)
        places, have, maybe = leave(layout, ops[-1], places, have, maybe)
    if kind.title == "step":
        have, maybe = layout.shift(have), layout.shift(maybe)
    return Shape(kind.title, tuple(ops)), State(places, have, maybe)


def enter(layout: Layout, op: Op, places: int, have: int, maybe: int) -> None:
    """Refuse a phase whose needs do not hold, or that takes what is not there."""
    wrong = places & ~op.needs
    if wrong:
        freed = 0 if op.handoff or op.may else sum(move.bit for move in op.moves if move.frees)
        raise RefusedError(op, "double" if wrong & freed else "place", layout.at(wrong & freed or wrong), op.needs)
    missing = op.reads & ~(have | maybe if op.may else have)
    if missing:
        raise RefusedError(op, "empty", layout.cell_name(missing))


def leave(layout: Layout, op: Op, places: int, have: int, maybe: int) -> tuple[int, int, int]:
    """What is after a phase, unless it copies what is not there, or gives contents to what is freed."""
    effect = op.effect(op.parts)
    places, have, maybe = effect.put(places), have & ~effect.lost, maybe & ~effect.lost
    for copy in effect.copies:
        if not have & copy.source:
            raise RefusedError(op, "empty", layout.cell_name(copy.source))
        have |= 0 if op.may else copy.target
    wrong = places & ~effect.holding
    if wrong:
        raise RefusedError(op, "freed", layout.at(wrong))
    if op.values & (have | maybe):
        raise RefusedError(op, "twice", layout.cell_name(op.values & (have | maybe)))
    if op.may:
        return places, have, maybe | op.makes & ~have
    return places, have | op.makes, maybe & ~op.makes


class Rooms:
    """Keeps of the placement's wishes those that the declared list meets: one object for each phase and wish."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._known: dict[tuple[Op, tuple[int, ...]], Op] = {}

    def bound(self, op: Op, places: int) -> Op:
        """The phase with the room that it must leave wherever it meets it here."""
        after = op.effect(op.parts).put(places)
        wrong = places & ~op.room
        for move in op.moves:
            wrong |= places & ~move.room | after & ~move.swap
        if not wrong:
            return op
        entry = [self.met(room, places) for room in (op.room, *(move.room for move in op.moves))]
        wish = (*entry, *(self.met(move.swap, after) for move in op.moves))
        if (op, wish) not in self._known:
            count = len(op.moves)
            new = zip(op.moves, wish[1 : count + 1], wish[count + 1 :], strict=True)
            moves = tuple(replace(move, room=room, swap=swap) for move, room, swap in new)
            self._known[op, wish] = replace(op, room=wish[0], moves=moves)
        return self._known[op, wish]

    def met(self, room: int, places: int) -> int:
        """Let go of the fields of ``room`` that do not hold."""
        broken = places & ~room
        for bits in self.layout.fields.values():
            if broken & bits:
                room |= bits
        return room


# ---- errors --------------------------------------------------------------------------------------------------------


def refusal(expanded: Expanded, transfer: Callable[[int, int], tuple[int, int]], state: int) -> GraphError:
    """Walk again step by step, to tell at which step the list goes wrong and who brought it there."""
    index = Index(expanded.seq)
    known: dict[tuple[int, int], int] = {}
    for at in range(index.length):
        key = index[at], state
        if key not in known:
            try:
                known[key] = transfer(*key)[1]
            except RefusedError as refused:
                return GraphError(Story(expanded, at).tell(refused))
        state = known[key]
    raise AssertionError("a walk that was refused once was accepted the second time")


def title(expanded: Expanded, at: int) -> str:
    """The name of a position in the run."""
    if at == 0:
        return "start"
    step = expanded.first + at - 1
    return f"step {step}" if step < expanded.total else "end"


class Story:
    """Tells a refusal: phase, step, resource, cause, cure."""

    def __init__(self, expanded: Expanded, at: int) -> None:
        self.expanded, self.at, self.layout = expanded, at, expanded.layout
        self.graph = expanded.layout.graph

    def tell(self, refused: RefusedError) -> str:
        where = f"{refused.op.name} in {title(self.expanded, self.at)}"
        told: dict[str, Callable[[RefusedError], str]] = {
            "place": self.place,
            "empty": self.empty,
            "freed": self.freed,
            "twice": self.twice,
            "double": self.double,
        }
        return f"{where} {told[refused.cause](refused)}"

    def place(self, refused: RefusedError) -> str:
        name, layout = refused.resource, self.layout
        there = self.last_place(name, refused.op, refused.want)
        want = layout.word(name, refused.want)
        own = dict(refused.op.phase.needs)
        asks = f"needs {name} at {want}"
        if name not in own and name not in (*refused.op.phase.reads, *refused.op.phase.updates):
            asks = f"needs {name} off the device (placement {self.graph.placement.name or 'makes_room'})"
        return f"{asks}, but it is at {there}: {self.cure_place(name, refused.want, refused.op)}"

    def last_place(self, name: str, op: Op, want: int = 0) -> str:
        """Where a resource is when a phase meets it, and who put it there; of several places, one it does not want."""
        found = [(self.graph.resources[name].at, "it starts there")]
        for where, done in self.before(op):
            place = dict(done.phase.moves).get(name)
            if place is not None and done.may:
                found.append((place, f"where {done.name} fires in {where}"))
            elif place is not None:
                found = [(place, f"since {done.name} in {where}")]
        wrong = [one for one in found if not want & self.layout.bit(name, one[0])]
        return "{} ({})".format(*(wrong or found)[-1])

    def before(self, op: Op) -> Iterator[tuple[str, Op]]:
        """What has run when the list comes to a phase, each with the name of its step."""
        for at, kind in self.so_far():
            for done in kind.ops:
                if at == self.at and done.phase is op.phase and done.scope == op.scope:
                    return
                yield title(self.expanded, at), done

    def so_far(self) -> list[tuple[int, Shape]]:
        """The steps up to the one that is refused; of a long run the last few."""
        index = Index(self.expanded.seq)
        begin = max(0, self.at - 64)
        return [(at, self.expanded.kinds[index[at]]) for at in range(begin, self.at + 1)]

    def cure_place(self, name: str, want: int, op: Op) -> str:
        layout, graph = self.layout, self.graph
        able = [
            p.name
            for p in (*graph.start, *graph.step)
            if not p.when.may_fire
            and any(target == name and layout.bit(name, place) & want for target, place in p.moves)
        ]
        goal = layout.word(name, want).split(" or ")[0]
        begin = f", or start with placement.at.{name}={goal}" if self.untouched(name, op) else ""
        if able:
            return f"let {' or '.join(dict.fromkeys(able))} run before it{begin}"
        return f"no phase moves {name} there: add one with moves: {{{name}: {goal}}}{begin}"

    def untouched(self, name: str, op: Op) -> bool:
        """Whether a resource is still where it started when a phase meets it."""
        return self.last_place(name, op).endswith("(it starts there)")

    def empty(self, refused: RefusedError) -> str:
        name = refused.resource
        if self.graph.resources[name].kind == "value":
            return self.empty_value(name, refused.op)
        loser = self.loser(name, refused.op)
        givers = [p.name for p in self.graph.step if name in dict(p.copies) or name in p.writes]
        givers = [one for one in givers if one != refused.op.name]
        cause = f"whose contents are lost since {loser}" if loser else "which nothing has given contents yet"
        cure = f"let {' or '.join(givers)} run before it" if givers else f"add a phase that copies or writes {name}"
        once = " (an entry under graph.start does so once, before the first step)" if givers and not loser else ""
        return f"takes {name}, {cause}: {cure}{once}"

    def loser(self, name: str, op: Op) -> str:
        """Who freed a resource last before a phase, and when."""
        freed = [(where, done) for where, done in self.before(op) if dict(done.phase.moves).get(name) == "none"]
        return f"{freed[-1][1].name} in {freed[-1][0]}" if freed else ""

    def empty_value(self, name: str, op: Op) -> str:
        writers = [p for p in self.graph.phases if name in p.writes]
        if not writers:
            known = {value for p in self.graph.step for value in p.writes}
            hint, word = did_you_mean(name, known), "updates" if name in op.phase.updates else "reads"
            cure = f": what crosses steps is a state, graph.resources.{name}=state" if word == "updates" else ""
            return f"{word} {name}, which no phase writes{hint or cure}"
        return f"reads {name}{self.no_writer(writers[0], op)}"

    def no_writer(self, writer: Phase, op: Op) -> str:
        """Why a value that somebody writes is not there."""
        due = {done.name for _, kind in self.so_far()[-1:] for done in kind.ops}
        mine, its = op.phase.ahead, writer.ahead
        apart = f" {mine} ahead, but {writer.name} writes it {its} ahead: let both run as far ahead"
        if writer.enabled and its < mine:
            return apart
        if not writer.enabled:
            return f", which {writer.name} writes, and it is disabled: enable it, or disable {op.name} too"
        if writer.name not in due:
            return f", which {writer.name} does not write in this step: give {op.name} when: {{with: {writer.name}}}"
        if its > mine:
            return apart
        return f" before {writer.name} writes it: let {writer.name} stand before {op.name}"

    def freed(self, refused: RefusedError) -> str:
        name = refused.resource
        cure = self.cure_place(name, self.layout.want(name, "!none"), refused.op)
        return f"gives contents to {name}, which is freed (at none): {cure}"

    def twice(self, refused: RefusedError) -> str:
        name = refused.resource
        writers = [p.name for p in self.graph.step if name in p.writes]
        others = [w for w in writers if w != refused.op.name] or writers
        return (
            f"writes {name}, which {others[0]} writes too: a value has one writer a step; let one of them use 'updates'"
        )

    def double(self, refused: RefusedError) -> str:
        name = refused.resource
        return f"frees {name}, which is at {self.last_place(name, refused.op)} already: free it once a step"


def check_keep(layout: Layout, state: State) -> None:
    """What is kept must be there when the run ends."""
    for name, word in layout.graph.keep:
        want = layout.want(name, word)
        if state.places & ~want:
            there = layout.word(name, state.places)
            raise GraphError(
                f"keep wants {name} at {word} when the run ends, but it is at {there}: "
                f"move it back under graph.end, or keep it where it is (graph.keep.{name}=any)"
            )
        cell = layout.cells.get((name, ""))
        if cell is not None and not state.have >> cell & 1:
            raise GraphError(
                f"keep wants the contents of {name} when the run ends, but they are lost: "
                f"let no phase free it, or take it out with graph.keep.{name}=null"
            )
