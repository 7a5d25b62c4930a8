"""What must wait for what: the DAG of a step, and what it waits for from the steps before.

Edges come from what two phases both touch: contents (read after write, write after read, write after write), places (a
move and whoever needs the place), a component (it does one thing at a time), a sink, and the device itself: what is
put there waits for what the declared list took off before, so that no legal order holds more than the declared one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepgraph.compiler.dead import GONE
from stepgraph.compiler.lower import Layout, Op, bits_of

PREVIOUS = "@previous"
Key = tuple[int, int | str]
Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Trace:
    """Who touched what last, as the next step sees it. Every name means the latest run of that phase."""

    writers: tuple[tuple[Key, Names], ...] = ()
    readers: tuple[tuple[Key, Names], ...] = ()
    released: Names = frozenset()
    ancestors: tuple[tuple[str, Names], ...] = ()


@dataclass(frozen=True, slots=True)
class Touch:
    """What one phase touches once it is pruned."""

    reads: frozenset[Key]
    writes: frozenset[Key]
    puts: bool
    releases: bool


def touch(layout: Layout, op: Op, keep: int) -> Touch:
    """The keys of a phase: ``(0, cell)`` contents, ``(1, field)`` places, ``(2, sink)``, ``(3, component)``."""
    effect = op.effect(keep)
    reads, writes = op.reads, op.makes | effect.lost
    for copy in effect.copies:
        reads, writes = reads | copy.source, writes | copy.target
    moves = [move for move in op.moves if keep & move.part]
    places = spread(layout, effect.entry & effect.holding)
    taken = {(0, cell) for cell in bits_of(reads)} | {(1, at) for at in places}
    given: set[Key] = {(0, cell) for cell in bits_of(writes)} | {(1, move.at) for move in moves}
    given |= {(2, name) for name in op.phase.writes if layout.graph.resources[name].kind == "sink"}
    # A phase of no component still does not run beside itself.
    given |= {(3, op.phase.component or f"phase {op.name}")}
    puts = any(move.puts for move in moves)
    return Touch(frozenset(taken), frozenset(given), puts, releases=any(not move.puts for move in moves))


def spread(layout: Layout, mask: int) -> set[int]:
    """The resources that a packed set says something about."""
    missing = layout.ones & ~mask
    return {i for i, name in enumerate(layout.placed) if missing & layout.fields[name]}


def order(
    layout: Layout, ops: Iterable[Op], kept: Iterable[int], trace: Trace, step: bool
) -> tuple[tuple[tuple[str, ...], ...], Trace]:
    """Give every kept phase what it waits for, what another implies left out; and the trace for the next step."""
    board = Board(trace)
    after: list[tuple[str, ...]] = []
    for op, keep in zip(ops, kept, strict=True):
        if keep != GONE:
            one = touch(layout, op, keep)
            after.append(board.place(op.name, board.waits(one)))
            board.note(op.name, one)
    return tuple(after), board.trace(layout, step)


class Board:
    """Who touched what last, while a step is being ordered. A name means the latest run of that phase so far."""

    def __init__(self, trace: Trace) -> None:
        self.writers = {key: mark(names) for key, names in trace.writers}
        self.readers = {key: mark(names) for key, names in trace.readers}
        self.ancestors = {name + PREVIOUS: mark(found) for name, found in trace.ancestors}
        self.released = mark(trace.released)

    def waits(self, one: Touch) -> Names:
        """Everything that a phase conflicts with."""
        found: set[str] = set(self.released) if one.puts else set()
        for key in one.reads | one.writes:
            found |= self.writers.get(key, frozenset())
        for key in one.writes:
            found |= self.readers.get(key, frozenset())
        return frozenset(found)

    def place(self, name: str, waits: Names) -> tuple[str, ...]:
        """What a phase must be told to wait for; the others it waits for by those."""
        implied: set[str] = set()
        for other in waits:
            implied |= self.ancestors.get(other, frozenset()) - {other}
        if name in self.ancestors:
            # It ran in this step before, ahead of two steps: from here on its name means this run, not that one.
            self.ancestors = {other: found - {name} for other, found in self.ancestors.items()}
        self.ancestors[name] = frozenset((waits | implied) - {name})
        return tuple(sorted(waits - implied, key=lambda name: (name.endswith(PREVIOUS), name)))

    def note(self, name: str, one: Touch) -> None:
        """Remember what a phase touched."""
        me = frozenset({name})
        for key in one.writes:
            self.writers[key], self.readers[key] = me, frozenset()
        for key in one.reads - one.writes:
            self.readers[key] = self.readers.get(key, frozenset()) | me
        self.released = (self.released - {name + PREVIOUS}) | (me if one.releases else frozenset())

    def trace(self, layout: Layout, step: bool) -> Trace:
        """What the next step has to know."""
        writers, readers = aged(layout, self.writers, step), aged(layout, self.readers, step)
        return Trace(writers, readers, age(self.released, self.ancestors), ages(self.ancestors))


def mark(names: Names) -> Names:
    return frozenset([name + PREVIOUS for name in names])


def age(names: Iterable[str], ran: Iterable[str]) -> Names:
    """The names as the next step will call them; an earlier run of what ran again is covered by the later one."""
    now = set(ran)
    return frozenset(
        name.removesuffix(PREVIOUS)
        for name in names
        if not (name.endswith(PREVIOUS) and name.removesuffix(PREVIOUS) in now)
    )


def ages(ancestors: dict[str, Names]) -> tuple[tuple[str, Names], ...]:
    found = {}
    for name in sorted(ancestors, key=lambda name: not name.endswith(PREVIOUS)):
        found[name.removesuffix(PREVIOUS)] = age(ancestors[name], ancestors)
    return tuple(sorted(found.items()))


def aged(layout: Layout, table: dict[Key, Names], step: bool) -> tuple[tuple[Key, Names], ...]:
    """The table with the keys of values renamed for the next step, and those of finished steps gone."""
    found = {later(layout, key) if step else key: names for key, names in table.items() if names}
    named = {key: frozenset(name.removesuffix(PREVIOUS) for name in names) for key, names in found.items() if key}
    return tuple(sorted(named.items(), key=lambda item: (item[0][0], str(item[0][1]))))


def later(layout: Layout, key: Key) -> Key | None:
    """A key as the next step names it; the value of a finished step has none."""
    kind, which = key
    if kind or not isinstance(which, int):
        return key
    cells = layout.shift(1 << which)
    return (0, cells.bit_length() - 1) if cells else None


def layers(names: list[str], after: list[tuple[str, ...]]) -> list[int]:
    """The layer of each phase: one more than the deepest phase of the same step that it waits for."""
    depth: dict[str, int] = {}
    for name, waits in zip(names, after, strict=True):
        depth[name] = 1 + max((depth.get(other, 0) for other in waits), default=0)
    return [depth[name] for name in names]
