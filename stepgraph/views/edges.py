"""Who waits for whom, with the thing on every edge: contents, a place, room on the device, a sink, a component.

The plan keeps of its edges the names alone, without those that others imply. Here they are found again, all of them,
over the few steps that a question is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from stepgraph.compiler.check import title
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.expand import Shape
from stepgraph.compiler.lower import Layout, Op
from stepgraph.compiler.order import Key as Bit
from stepgraph.compiler.order import Touch, touch
from stepgraph.compiler.plan import Plan

CONTENTS, PLACE, SINK, COMPONENT = range(4)
"""What a key is of, in the compiler's numbers."""

RANKS = ("reads", "place", "room", "rewrites", "moves", "both", "sink", "component")
"""How one call can wait for another, the most telling first."""

Key = tuple[int, str, object]
"""A kind, a name, and for a value the step it is made for."""


@dataclass(frozen=True, slots=True)
class Call:
    """A phase at a position of the run: 0 is ``start``, then the steps, then ``end``. ``keep`` is what runs of it."""

    at: int
    i: int
    name: str
    op: Op = field(compare=False)
    keep: int = field(compare=False)
    layout: Layout = field(compare=False, repr=False)

    def moved(self, resource: str) -> str:
        """The place it moves a resource to, or nothing."""
        pairs = zip(self.op.moves, self.op.phase.moves, strict=True)
        return next((place for move, (name, place) in pairs if name == resource and self.keep & move.part), "")

    def off_device(self, resource: str) -> bool:
        """Whether the placement wants a resource off the device for it."""
        bits = self.layout.fields[resource] & self.layout.on_device
        return resource not in dict(self.op.phase.needs) and not self.op.effect(self.keep).entry & bits

    def puts(self) -> str:
        """What it puts on the device, in words."""
        return " and ".join(name for name, place in self.op.phase.moves if place == "device" and self.moved(name))


@dataclass(frozen=True, slots=True)
class Link:
    """``target`` waits for ``source``. ``how`` is one of ``RANKS``; ``name``, the resource or component."""

    source: Call
    target: Call
    how: str
    name: str

    @property
    def rank(self) -> int:
        return RANKS.index(self.how)

    @property
    def thing(self) -> str:
        """What stands on the edge."""
        if self.how == "room" or (self.how == "moves" and self.source.off_device(self.name)):
            return "room on device"
        if self.how == "component":
            return f"component {self.name}"
        if self.how != "place":
            return self.name
        need, place = dict(self.target.op.phase.needs).get(self.name), self.source.moved(self.name)
        if need is None and place != "device":
            return "room on device"
        return f"{self.name} at {place}"

    @property
    def clause(self) -> str:
        """What the target does about it, in few words."""
        phase = self.target.op.phase
        if self.how == "reads":
            copied = self.name in {source for _, source in phase.copies}
            return "copies it" if copied else "updates it" if self.name in phase.updates else "reads it"
        if self.how == "room" or self.thing == "room on device":
            puts = self.target.puts()
            return f"puts {puts} there" if puts else "wants it"
        return {
            "place": "needs it there",
            "rewrites": "changes it after that",
            "moves": "moves it after that",
            "both": "moves it too" if phase.moves and self.name in dict(phase.moves) else "changes it too",
            "sink": "writes it too",
            "component": "one call at a time",
        }[self.how]


class Edges:
    """The calls of a stretch of a run and what each waits for. ``declared``: as if nothing was pruned."""

    def __init__(self, plan: Plan, low: int, high: int, declared: bool = False) -> None:
        self.plan, self.low, self.high, self.declared = plan, max(low, 0), min(high, length(plan) - 1), declared
        self.calls = [one for at in range(self.low, self.high + 1) for one in calls(plan, at, declared)]
        self._touched: dict[tuple[int, int, int], Touch] = {}

    @cached_property
    def _names(self) -> dict[int, tuple[str, object]]:
        return {cell: (name, scope) for (name, scope), cell in self.plan.layout.cells.items()}

    def touch(self, call: Call) -> Touch:
        key = (self.plan._index[call.at], call.i, call.keep)
        found = self._touched.get(key)
        if found is None:
            found = self._touched[key] = touch(self.plan.layout, call.op, call.keep)
        return found

    def reads(self, call: Call) -> dict[Key, None]:
        """What a call takes: contents, and places that it says something about."""
        return dict.fromkeys(self._key(call, bit) for bit in sorted(self.touch(call).reads, key=str))

    def writes(self, call: Call) -> dict[Key, None]:
        """What a call changes."""
        return dict.fromkeys(self._key(call, bit) for bit in sorted(self.touch(call).writes, key=str))

    def _key(self, call: Call, bit: Bit) -> Key:
        kind, which = bit
        if kind == PLACE and isinstance(which, int):
            return kind, self.plan.layout.placed[which], None
        if kind != CONTENTS or not isinstance(which, int):
            return kind, str(which), None
        name, scope = self._names[which]
        return kind, name, max(call.at - 1, 0) + scope if isinstance(scope, int) else scope

    @cached_property
    def links(self) -> dict[Call, list[Link]]:
        """What each call waits for directly, the most telling first."""
        found: dict[Call, list[Link]] = {}
        writers: dict[Key, Call] = {}
        readers: dict[Key, list[Call]] = {}
        released: dict[str, Call] = {}
        for call in self.calls:
            reads, writes = self.reads(call), self.writes(call)
            mine = [Link(one, call, "room", "") for one in released.values() if self.touch(call).puts]
            mine += [Link(writers[k], call, after_write(k, reads), k[1]) for k in {**reads, **writes} if k in writers]
            for key in writes:
                how = "rewrites" if key[0] == CONTENTS else "moves"
                mine += [Link(one, call, how, key[1]) for one in readers.pop(key, [])]
                writers[key] = call
            for key in reads:
                if key not in writes:
                    readers.setdefault(key, []).append(call)
            released.pop(call.name, None)
            if self.touch(call).releases:
                released[call.name] = call
            found[call] = sorted(mine, key=lambda link: (link.rank, -link.source.at, -link.source.i))
        return found

    def find(self, at: int, name: str) -> Call | None:
        """The call of a phase at a position."""
        return next((one for one in self.calls if one.at == at and one.name == name), None)

    def chain(self, target: Call, sources: set[Call]) -> list[Link]:
        """The shortest chain of edges to a call from the latest of the sources that it waits for; else nothing."""
        via: dict[Call, Link] = {}
        edge = [target]
        while edge:
            links = sorted((link for call in edge for link in self.links[call]), key=lambda link: link.rank)
            edge = []
            for link in links:
                if link.source not in via:
                    via[link.source] = link
                    edge.append(link.source)
        met = max(sources & via.keys(), key=lambda call: (call.at, call.i), default=None)
        found: list[Link] = []
        while met is not None and met != target:
            found.append(via[met])
            met = via[met].target
        return found

    def uses(self, call: Call) -> Iterator[Link]:
        """Who takes what a call gives, in the order of the run, until it is given anew."""
        given = self.writes(call)
        open_keys = {key for key in given if key[0] in (CONTENTS, PLACE)}
        for other in self.calls:
            if (other.at, other.i) <= (call.at, call.i):
                continue
            reads = self.reads(other)
            for key in (key for key in given if key in open_keys and key in reads):
                if key[0] == CONTENTS or self.asks(other, key[1]):
                    yield Link(call, other, "reads" if key[0] == CONTENTS else "place", key[1])
            open_keys -= self.writes(other).keys()
            if not open_keys:
                return

    def asks(self, call: Call, resource: str) -> bool:
        """Whether a call asks more of a resource's place than that it is not freed."""
        layout = self.plan.layout
        mask = layout.fields[resource] & ~layout.bit(resource, "none")
        effect = call.op.effect(call.keep)
        return effect.entry & effect.holding & mask != mask


def after_write(key: Key, reads: dict[Key, None]) -> str:
    """How a call waits for the one that changed a key before it."""
    if key[0] == SINK:
        return "sink"
    if key[0] == COMPONENT:
        return "component"
    if key not in reads:
        return "both"
    return "reads" if key[0] == CONTENTS else "place"


def length(plan: Plan) -> int:
    """How many positions a run has: ``start``, its steps, ``end``."""
    return plan._index.length if plan.seq else 0


def shape(plan: Plan, at: int) -> Shape:
    """What is due at a position."""
    return plan.done[plan._index[at]].shape


def calls(plan: Plan, at: int, declared: bool = False) -> Iterator[Call]:
    """What runs at a position, or what is due there."""
    done = plan.done[plan._index[at]]
    for i, (op, keep) in enumerate(zip(done.shape.ops, done.kept, strict=True)):
        if declared or keep != GONE:
            yield Call(at, i, op.name, op, op.parts if declared else keep, plan.layout)


def place(plan: Plan, at: int) -> str:
    """A position in words: ``start``, ``step 9``, ``end``."""
    return title(plan.expanded, at)
