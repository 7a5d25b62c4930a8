"""Which phases are due in which step: a pure function of the step's number and the run's length.

Every gate is evaluated once a step. The run comes out as a sequence of *kinds*, each the list of phases that are due
together, with repetition written once (see ``seq``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from stepgraph.compiler.lower import Apart, Layout, Op, lower
from stepgraph.compiler.seq import Node, Seq, repeat, whole
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase

BLOCK = 5040
"""The longest period that is spelled out once and repeated; longer ones are spelled out event by event."""


CHUNK = 64
"""Steps between marked ones come in pieces of multiples of this, and of less: a power of two."""

RUN = 4
"""How many phases are looked up together."""

KindOf = Callable[[int], int]
"""From the bits of a due-set to the number of its kind."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Fires in the steps of ``[start, until)`` that are ``offset`` modulo ``period``."""

    start: int
    until: int
    period: int
    offset: int


@dataclass(frozen=True, slots=True)
class Gate:
    """When a phase is due (``beats`` or ``steps``), and when it may be (``maybe``), in the steps it works for."""

    beats: tuple[Beat, ...] = ()
    steps: frozenset[int] = frozenset()
    maybe: tuple[Beat, ...] = ()

    def fires(self, k: int) -> bool:
        """Whether the phase is due in step ``k``."""
        return k in self.steps or any(on(beat, k) for beat in self.beats)

    def may_fire(self, k: int) -> bool:
        """Whether something that only the run will tell can make it due in step ``k``."""
        return any(on(beat, k) for beat in self.maybe)


class Shape(NamedTuple):
    """Phases that are due together, in declared order. ``title`` is ``start``, ``step`` or ``end``."""

    title: str
    ops: tuple[Op, ...]

    @property
    def due(self) -> frozenset[str]:
        """The names of its phases."""
        return frozenset(op.name for op in self.ops)


@dataclass(frozen=True, slots=True)
class Expanded:
    """The run as kinds: ``seq`` begins with the kind of ``start`` and ends with that of ``end``.

    ``first`` is the first step laid out, ``origin`` the first of the run: they differ for the rest of a run.
    """

    layout: Layout
    kinds: tuple[Shape, ...]
    seq: Seq
    first: int
    total: int
    gates: dict[str, Gate]
    origin: int


def on(beat: Beat, k: int) -> bool:
    return beat.start <= k < beat.until and k % beat.period == beat.offset


def gate(phase: Phase, graph: Graph, first: int, total: int) -> Gate:
    """Evaluate a phase's ``when`` for a run of the steps ``[first, total)``."""
    if not phase.enabled:
        return Gate()
    when = phase.when
    low, high = max(when.start, 0), total if when.until is None else min(when.until, total)
    if not when.named:
        return Gate((Beat(low, high, 1, 0),))
    beats = [] if when.every is None else [Beat(low, high, when.every, when.every - 1)]
    if when.epoch_end and graph.run.steps_per_epoch:
        beats.append(Beat(low, high, graph.run.steps_per_epoch, graph.run.steps_per_epoch - 1))
    steps = {*when.steps, *([first] if when.first else []), *([total - 1] if when.last else [])}
    maybe = [Beat(low, high, 1, 0)] if when.may_fire else []
    if when.with_ is not None:
        other = gate(next(p for p in graph.step if p.name == when.with_), graph, first, total)
        beats += narrowed(other.beats, low, high)
        maybe += narrowed(other.maybe, low, high)
        steps |= other.steps
    if steps and (min(steps) < low or max(steps) >= high):
        steps = {k for k in steps if low <= k < high}
    return Gate(tuple(beats), frozenset(steps), tuple(maybe))


def narrowed(beats: Iterable[Beat], low: int, high: int) -> list[Beat]:
    return [replace(beat, start=max(beat.start, low), until=min(beat.until, high)) for beat in beats]


def expand(graph: Graph, first: int, total: int, apart: Apart = frozenset(), *, rest: int | None = None) -> Expanded:
    """Lay the run out as kinds of steps. ``apart`` are pairs that must not be on the device together.

    ``rest`` lays out only the steps from that one on, of a run that is under way: nothing of ``start`` comes again.
    """
    layout = Layout(graph, apart)
    gates = {phase.name: gate(phase, graph, first, total) for phase in graph.step}
    start = Shape("start", ()) if rest is not None else start_kind(layout, graph, gates, first, total)
    kinds: list[Shape] = [start, end_kind(layout, graph)]
    begin = first if rest is None else rest
    known: dict[int, int] = {}
    lowered = Lowered(layout)

    def kind(mask: int) -> int:
        found = known.get(mask)
        if found is None:
            found = known[mask] = len(kinds)
            kinds.append(lowered.kind(mask))
        return found

    bits = [(1 << 2 * i, 2 << 2 * i, p.ahead, gates[p.name]) for i, p in enumerate(graph.step)]
    steps = schedule(bits, begin, total, kind)
    return Expanded(layout, tuple(kinds), (0, *steps, 1), begin, total, gates, first)


def start_kind(layout: Layout, graph: Graph, gates: dict[str, Gate], first: int, total: int) -> Shape:
    """``start``, and after it the steps before the first one, of which only what runs ahead of them is left."""
    ops = [lower(layout, p, "start") for p in graph.start if p.enabled]
    for early in range(-layout.ahead, 0):
        for phase in graph.step:
            slot = phase.ahead + early
            one = gates[phase.name]
            due = one.fires(first + slot)
            if slot >= 0 and first + slot < total and (due or one.may_fire(first + slot)):
                ops.append(lower(layout, phase, slot, may=not due))
    return Shape("start", tuple(ops))


def end_kind(layout: Layout, graph: Graph) -> Shape:
    return Shape("end", tuple(lower(layout, p, "end") for p in graph.end if p.enabled))


class Lowered:
    """The phases of a step as bits, each lowered when it is first due."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._ops: dict[tuple[int, bool], Op] = {}
        self._runs: dict[tuple[int, int], tuple[Op, ...]] = {}

    def kind(self, mask: int) -> Shape:
        """The kind of a due-set: two bits a phase, due and may be due. Due wins."""
        found: tuple[Op, ...] = ()
        for i in range(0, len(self.layout.graph.step), RUN):
            key = i, mask >> 2 * i & (1 << 2 * RUN) - 1
            known = self._runs.get(key)
            if known is None:
                known = self._runs[key] = self.run(*key)
            found += known
        return Shape("step", found)

    def run(self, first: int, mask: int) -> tuple[Op, ...]:
        """A few phases that stand together: few of their due-sets make many of a step."""
        found = []
        for i in range(RUN):
            bits = mask >> 2 * i & 3
            if bits:
                found.append(self.op(first + i, may=not bits & 1))
        return tuple(found)

    def op(self, i: int, *, may: bool) -> Op:
        found = self._ops.get((i, may))
        if found is None:
            phase = self.layout.graph.step[i]
            found = self._ops[i, may] = lower(self.layout, phase, phase.ahead, may=may)
        return found


# ---- the schedule --------------------------------------------------------------------------------------------------


def schedule(gates: list[tuple[int, int, int, Gate]], first: int, total: int, kind: KindOf) -> Seq:
    """Merge the gates, each ``(bit, bit of maybe, ahead, gate)``, into a sequence of kinds for ``[first, total)``."""
    beats: list[tuple[Beat, int]] = []
    marks: dict[int, int] = {}
    for bit, maybe, ahead, one in gates:
        beats += [(moved(beat, ahead), bit) for beat in one.beats] + [(moved(beat, ahead), maybe) for beat in one.maybe]
        mark(marks, one.steps if not ahead else {k - ahead for k in one.steps}, bit)
    ordered = sorted(marks)
    marked = [(k, marks[k]) for k in ordered[bisect_left(ordered, first) : bisect_left(ordered, total)]]
    edges = {first, total, *(e for beat, _ in beats for e in (beat.start, beat.until) if first < e < total)}
    cuts = sorted(edges)
    out: list[Node] = []
    at = 0
    for low, high in pairwise(cuts):
        active = [(beat, bit) for beat, bit in beats if beat.start <= low < beat.until]
        stop = bisect_left(marked, (high,), at)
        out += stretch(low, high, active, marked[at:stop], kind)
        at = stop
    return tuple(out)


def mark(marks: dict[int, int], steps: Set[int], bit: int) -> None:
    """Add a bit to every one of many steps."""
    both = {k: marks[k] | bit for k in steps & marks.keys()}
    marks.update(dict.fromkeys(steps, bit))
    marks.update(both)


def moved(beat: Beat, ahead: int) -> Beat:
    """The steps in which a phase runs, of the steps it works for."""
    if not ahead:
        return beat
    return Beat(beat.start - ahead, beat.until - ahead, beat.period, (beat.offset - ahead) % beat.period)


def stretch(
    low: int, high: int, active: list[tuple[Beat, int]], marked: list[tuple[int, int]], kind: KindOf
) -> list[Node]:
    """One stretch in which the same beats go on, with single steps marked in it."""
    always = sum({bit for beat, bit in active if beat.period == 1})
    beats = [(beat, bit) for beat, bit in active if beat.period > 1]
    out: list[Node] = []
    if not beats:
        return chunked(low, high, always, marked, kind)
    for k, bits in marked:
        out += (*fill(low, k, always, beats, kind), kind(mask_at(k, always | bits, beats)))
        low = k + 1
    return out + list(fill(low, high, always, beats, kind))


def chunked(low: int, high: int, always: int, marked: list[tuple[int, int]], kind: KindOf) -> list[Node]:
    """Marked steps among steps that are alike: few different chunks make a long run, so that sweeps know them."""
    plain: Seq = (kind(always),)
    chunks: dict[tuple[int, int], Seq] = {}
    out: list[Node] = []
    for k, bits in marked:
        gap = k - low
        if gap >= CHUNK:
            out += repeat(plain, gap & -CHUNK)
            gap &= CHUNK - 1
        found = chunks.get((gap, bits))
        if found is None:
            found = chunks[gap, bits] = whole((*repeat(plain, gap), kind(always | bits)))
        out += found
        low = k + 1
    return [*out, *repeat(plain, high - low)]


def mask_at(k: int, mask: int, beats: list[tuple[Beat, int]]) -> int:
    for beat, bit in beats:
        if k % beat.period == beat.offset:
            mask |= bit
    return mask


def fill(low: int, high: int, always: int, beats: list[tuple[Beat, int]], kind: KindOf) -> Seq:
    """The steps of ``[low, high)``, where nothing but beats changes them."""
    if not beats:
        return repeat((kind(always),), high - low)
    period = lcm(*(beat.period for beat, _ in beats))
    if period > BLOCK or high - low < 2 * period:
        return events(low, high, always, beats, kind)
    times, rest = divmod(high - low, period)
    block = events(low, low + period, always, beats, kind)
    return repeat(block, times) + events(high - rest, high, always, beats, kind)


def events(low: int, high: int, always: int, beats: list[tuple[Beat, int]], kind: KindOf) -> Seq:
    masks: dict[int, int] = {}
    for beat, bit in beats:
        for k in range(low + (beat.offset - low) % beat.period, high, beat.period):
            masks[k] = masks.get(k, always) | bit
    out: list[Node] = []
    for k in sorted(masks):
        out += repeat((kind(always),), k - low)
        out.append(kind(masks[k]))
        low = k + 1
    return (*out, *repeat((kind(always),), high - low))
