"""The plan of a run: any step's phases by a look-up, and the documents that people and other programs read.

What only a reader wants (edges, reasons, what would keep a phase) is worked out when it is asked for, once a variant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stepgraph.compiler import reasons, room, staleness, strangers
from stepgraph.compiler.check import Table
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.expand import Expanded
from stepgraph.compiler.lower import Layout, Op
from stepgraph.compiler.order import PREVIOUS, Trace, layers, order
from stepgraph.compiler.seq import Index, Seq, labels, scan, spans
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import CompiledStep, Planned, Pruned

if TYPE_CHECKING:
    from stepgraph.compiler.compile import Done


@dataclass(frozen=True, slots=True)
class Variant:
    """Steps in which the same phases run and the same are pruned. ``spans`` are ``(first, last, stride)``, closed."""

    id: int
    spans: tuple[tuple[int, int, int], ...]
    count: int
    phases: tuple[Planned, ...]
    pruned: tuple[Pruned, ...]

    @property
    def first(self) -> int:
        """The first step of the variant."""
        return self.spans[0][0]


class Plan:
    """A compiled run. ``first`` up to, not including, ``steps`` are its steps."""

    def __init__(self, expanded: Expanded, seq: Seq, done: list[Done]) -> None:
        self.expanded, self.layout, self.seq, self.done = expanded, expanded.layout, seq, done
        self.graph: Graph = expanded.layout.graph
        self.first, self.steps = expanded.first, expanded.total
        self.notes: tuple[str, ...] = ()

    # ---- look-ups

    @cached_property
    def _index(self) -> Index:
        return Index(self.seq)

    def step(self, k: int) -> CompiledStep:
        """What runs, and what does not, in step ``k``."""
        self.has(k)
        return CompiledStep(k, *self.face(self._index[k - self.first + 1]))

    def explain(self, phase: str, step: int) -> str:
        """Why a phase runs in a step or not, in one line (``stepgraph explain`` tells more).

        >>> import stepgraph
        >>> stepgraph.compile(stepgraph.load("grpo", ["placement=colocated"]), steps=3).explain("reload_kv", 2)
        'reload_kv is pruned in step 2: no later phase needs kv at device; kept if graph.step.eval.when.last=true'
        """
        for planned in self.step(step).phases:
            if planned.name == phase:
                return f"{phase} runs in step {step}: {reasons.why_in_words(planned.why)}"
        for gone in self.pruned(step):
            if gone.name == phase:
                return f"{phase} is pruned in step {step}: {gone.reason}" + f"; kept if {gone.kept_if}" * bool(
                    gone.kept_if
                )
        known = [one.name for one in self.graph.step]
        raise ConfigError(f"there is no phase '{phase}'{did_you_mean(phase, known)} (known: {', '.join(known)})")

    def pruned(self, k: int) -> tuple[Pruned, ...]:
        """What does not run in step ``k``, with reasons told for that step and not for the first one of its variant."""
        self.has(k)
        return reasons.pruned(self, k - self.first + 1)

    def has(self, k: int) -> None:
        """Refuse a step that is not in this run."""
        if not self.seq or self.first >= self.steps:
            raise ConfigError(
                f"step={k} is not in this run: it has no steps left (run.first={self.first}, run.steps={self.steps})"
            )
        if not self.first <= k < self.steps:
            raise ConfigError(f"step={k} is not in this run: its steps are {self.first} to {self.steps - 1}")

    @property
    def start(self) -> CompiledStep:
        """What runs once before the first step."""
        return self._outside(0)

    @property
    def end(self) -> CompiledStep:
        """What runs once after the last step."""
        return self._outside(self._index.length - 1)

    def _outside(self, at: int) -> CompiledStep:
        return CompiledStep(None, *self.face(self._index[at])) if self.seq else CompiledStep(None, 0, (), ())

    def face(self, label: int) -> tuple[int, tuple[Planned, ...], tuple[Pruned, ...]]:
        """The variant of a label, with its phases."""
        found = self._faced.get(label)
        if found is None:
            number = self._numbers[label]
            found = self._faced[label] = (number, *self._content(number))
        return found

    # ---- variants

    @cached_property
    def _faced(self) -> dict[int, tuple[int, tuple[Planned, ...], tuple[Pruned, ...]]]:
        return {}

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """Label -> variant: 1 and up for steps in the order they first come, 0 for start, -1 for end."""
        known: dict[object, int] = {}
        found = {}
        for label in labels(self.seq):
            done = self.done[label]
            if done.shape.title != "step":
                found[label] = 0 if done.shape.title == "start" else -1
                continue
            key = (reasons.kept_key(done), reasons.codes(self.layout, done))
            found[label] = known.setdefault(key, len(known) + 1)
        return found

    @cached_property
    def _samples(self) -> dict[int, tuple[int, int]]:
        """Variant -> the label and the position of its first step."""
        found: dict[int, tuple[int, int]] = {}
        for label, first, _, _ in spans(self.seq):
            number = self._numbers[label]
            if number not in found or first < found[number][1]:
                found[number] = (label, first)
        return found

    @cached_property
    def _waits(self) -> dict[int, list[set[str]]]:
        """Variant -> what each kept phase waits for, in any surroundings that the variant is met in."""
        traces: Table[Trace] = Table()
        found: dict[int, list[set[str]]] = {}

        def transfer(label: int, number: int) -> tuple[int, int]:
            done = self.done[label]
            after, trace = order(self.layout, done.shape.ops, done.kept, traces[number], done.shape.title == "step")
            mine = found.setdefault(self._numbers[label], [set() for _ in after])
            for names, more in zip(mine, after, strict=True):
                names.update(more)
            return label, traces(trace)

        scan(self.seq, transfer, traces(Trace()))
        return found

    def _content(self, number: int) -> tuple[tuple[Planned, ...], tuple[Pruned, ...]]:
        label, at = self._samples[number]
        done = self.done[label]
        kept = [
            (i, op, keep) for i, (op, keep) in enumerate(zip(done.shape.ops, done.kept, strict=True)) if keep != GONE
        ]
        place = {phase.name: i for i, phase in enumerate(self.graph.phases)}
        waits = [
            tuple(sorted(names, key=lambda n: ("@" in n, place[n.removesuffix(PREVIOUS)])))
            for names in self._waits.get(number, [])
        ]
        depth = layers([op.name for _, op, _ in kept], waits)
        phases = tuple(
            self._planned(op, keep, names, layer, reasons.why(self, at, i), reasons.dropped(self, done, i))
            for (i, op, keep), names, layer in zip(kept, waits, depth, strict=True)
        )
        return phases, reasons.pruned(self, at)

    def _planned(  # noqa: PLR0917 - the columns of one row
        self, op: Op, keep: int, after: tuple[str, ...], layer: int, why: str, dropped: dict[str, str]
    ) -> Planned:
        ahead = self.first + op.scope if isinstance(op.scope, int) else None
        return Planned(
            phase=op.phase,
            needs=needs(self.layout, op, keep),
            moves={
                self.layout.placed[m.at]: place
                for m, (_, place) in zip(op.moves, op.phase.moves, strict=True)
                if keep & m.part
            },
            copies={pair[0]: pair[1] for c, pair in zip(op.copies, op.phase.copies, strict=True) if keep & c.part},
            after=after,
            why=why,
            for_step=ahead,
            layer=layer,
            dropped=dropped,
            may_fire=op.may,
        )

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The different steps of the run, in the order they first come."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for label, at, stride, count in spans(self.seq):
            number = self._numbers[label]
            if number > 0:
                first = self.first + at - 1
                found.setdefault(number, []).append((first, first + (count - 1) * stride, stride))
        return tuple(self._variant(number, found[number]) for number in sorted(found))

    def _variant(self, number: int, given: list[tuple[int, int, int]]) -> Variant:
        merged = merge(given)
        return Variant(
            number, merged, sum((last - first) // stride + 1 for first, last, stride in merged), *self._content(number)
        )

    # ---- documents

    def calls(self) -> list[dict[str, Any]]:
        """Everything that runs, in declared order, one mapping a call (see ``docs/language.md``)."""
        return list(self.iter_calls())

    def iter_calls(self) -> Iterator[dict[str, Any]]:
        """``calls`` one at a time, for long runs."""
        if not self.seq:
            return
        made: dict[int, list[tuple[int | None, dict[str, Any]]]] = {}
        for at in range(self._index.length):
            label = self._index[at]
            if label not in made:
                made[label] = [(offset, call) for offset, call in self._label_calls(label)]
            for offset, call in made[label]:
                step = None if offset is None else offset + (self.first if at == 0 else self.first + at - 1)
                yield {"step": step, **call}

    def _label_calls(self, label: int) -> Iterator[tuple[int | None, dict[str, Any]]]:
        done = self.done[label]
        for op, keep in zip(done.shape.ops, done.kept, strict=True):
            if keep != GONE:
                yield op.scope if isinstance(op.scope, int) else None, call(self.layout, op, keep)

    def rest(self, step: int, places: Mapping[str, str], contents: Mapping[str, Hashable]) -> Plan:
        """Compile what is left from ``step`` on, from actual places and contents (see ``compiler.compile.rest``)."""
        from stepgraph.compiler.compile import rest

        return rest(self, step, places, contents)

    def to_dict(self) -> dict[str, Any]:
        """The plan as one document (``format=json``)."""
        from stepgraph.compiler.document import document

        return document(self)

    # ---- numbers

    @cached_property
    def totals(self) -> dict[str, int]:
        """How often phases run, and how often one is pruned or not due, over the steps of the run."""
        runs = sum(variant.count * len(variant.phases) for variant in self.variants)
        return {"phase_runs": runs, "pruned_runs": sum(v.count * len(v.pruned) for v in self.variants)}

    @property
    def nothing(self) -> bool:
        """Whether no phase runs at all."""
        return not any(keep != GONE for label in labels(self.seq) for keep in self.done[label].kept)

    @property
    def already_complete(self) -> bool:
        """Whether the run begins at or after its own end."""
        return not self.seq

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is legal and looks wrong."""
        skipped = self.graph.unused
        said = (f"{', '.join(skipped)}: this graph has no such resource, so nothing reads it",) if skipped else ()
        missing = (f"{one}: planned by what the graph says of it" for one in self.graph.missing)
        own = (*missing, *self.graph.notes, *strangers.warnings(self))
        return (*said, *own, *self.notes, *staleness.warnings(self))

    @cached_property
    def stale(self) -> list[tuple[int, staleness.Aged]]:
        """Who meets old contents, and where first."""
        return staleness.met(self)

    @cached_property
    def staleness(self) -> int:
        """The most updates that the weights behind any training data are behind the weights they train."""
        return staleness.worst(self)[0]

    def peak(self, place: str = "device") -> float | None:
        """The most GiB at a place at any moment; ``None`` where a size is not known."""
        return room.peak(self, place)


def needs(layout: Layout, op: Op, keep: int) -> dict[str, str]:
    """The needs of a phase in words: its own, then what the placement adds to what remains of it."""
    found = dict(op.phase.needs)
    mask = op.effect(keep).entry
    for name in layout.placed:
        if name not in found and not mask & layout.bit(name, "device"):
            found[name] = "!device"
    return found


def call(layout: Layout, op: Op, keep: int) -> dict[str, Any]:
    """One call: only the words that say something."""
    phase = op.phase
    moves = {name: place for m, (name, place) in zip(op.moves, phase.moves, strict=True) if keep & m.part}
    copies = {target: source for c, (target, source) in zip(op.copies, phase.copies, strict=True) if keep & c.part}
    words: dict[str, Any] = {
        "reads": list(phase.reads),
        "writes": list(phase.writes),
        "updates": list(phase.updates),
        "needs": needs(layout, op, keep),
        "moves": moves,
        "copies": copies,
        "whole": phase.whole,
    }
    return {
        "phase": phase.name,
        "kind": phase.kind,
        "use": phase.use,
        **{word: said for word, said in words.items() if said},
    }


def merge(given: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Join ranges that follow each other; single steps join their neighbours where they fit."""
    out: list[tuple[int, int, int]] = []
    ends: dict[int, int] = {}
    for first, last, stride in sorted((a, b, 1 if a == b else stride) for a, b, stride in given):
        at = ends.pop(first, None)
        if at is not None and (first == last or out[at][2] == stride):
            out[at] = (out[at][0], last, out[at][2])
        else:
            at = len(out)
            out.append((first, last, stride))
        ends[out[at][1] + out[at][2]] = at
    return tuple(out)
