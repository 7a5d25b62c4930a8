"""From a plan to a scene: which phases stand where, which edges are drawn, and who is on the device when.

What does not run has no place in the compiled order. Its edges are those of the list as it is declared, every phase of
it taken as due: they say where it would stand, and what it would wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from stepgraph.compiler.compile import Done
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.lower import Op, lower
from stepgraph.compiler.order import Trace, order
from stepgraph.compiler.plan import Plan
from stepgraph.compiler.reasons import said as gate_of
from stepgraph.compiler.room import weight
from stepgraph.compiler.seq import Index
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import Planned, Pruned
from stepgraph.views.layout import Edge, Placed, place
from stepgraph.views.scene import WORDS, Box, Fixed, Line, Picture, Row, Scene, Sheet, Strip
from stepgraph.views.table import effects, said, title

LETTER, SMALL = 7.3, 6.1
"""Widths of a letter of a name and of a second line: the face has one width, so that boxes fit their text."""
MARGIN, TALL = 26.0, 40.0
MANY = 60
"""At most so many variants are drawn."""
NOT_ASKED = ("not_due", "disabled")
TITLES = {"start": "Start: before the first step", "end": "End: after the last step", "step": "No step runs"}


def scene_of(plan: Plan, step: int | None = None) -> Scene:
    """Lay out a plan: ``start``, each variant, ``end``. ``step`` picks what is shown first."""
    wanted = plan.step(step).variant if step is not None else 1
    sheets, pictures = laid_out(drafts_of(Reader(plan, wanted, step)))
    return Scene(
        graph=plan.graph.name,
        placement=plan.graph.placement.name,
        source=plan.graph.source,
        first=plan.first,
        steps=plan.steps,
        sheets=sheets,
        pictures=pictures if step is not None else tuple(with_ends(pictures, plan)),
        shown=next((i for i, one in enumerate(pictures) if one.variant == wanted), 0),
        step=step,
        left_out=len(plan.variants) - sum(one.section == "step" for one in pictures if one.variant),
    )


def laid_out(drafts: Sequence[Draft]) -> tuple[dict[str, Sheet], tuple[Picture, ...]]:
    """The pictures, those of one section in one layout."""
    laid = {name: sheet_of([one for one in drafts if one.part.section == name]) for name in sections(drafts)}
    sheets = {name: sheet for name, (sheet, _) in laid.items()}
    return sheets, tuple(one.picture(laid[one.part.section][1]) for one in drafts)


def drafts_of(reader: Reader) -> list[Draft]:
    """The pictures to be laid out; for a plan in which nothing runs, an empty one."""
    return [reader.draft(part) for part in reader.parts()] or [Draft(Part(TITLES["step"], "step"))]


def sections(drafts: Iterable[Draft]) -> list[str]:
    return list(dict.fromkeys(one.part.section for one in drafts))


def with_ends(pictures: Iterable[Picture], plan: Plan) -> Iterator[Picture]:
    """The pictures, with a mark on what the last step leaves out though they do not."""
    last = plan.step(plan.steps - 1).pruned if plan.variants else ()
    gone = {one.name: said(one) for one in last if one.code not in NOT_ASKED}
    for one in pictures:
        marked = tuple(replace(b, ends=gone.get(b.name, "") if b.runs else "") for b in one.boxes)
        yield replace(one, boxes=marked) if one.section == "step" else one


# ---- reading the plan


@dataclass(frozen=True, slots=True)
class Part:
    """What becomes one picture. ``at`` is its position in the run: 0 is ``start``."""

    title: str
    section: str
    at: int = 0
    variant: int = 0
    spans: tuple[tuple[int, int, int], ...] = ()
    phases: tuple[Planned, ...] = ()
    pruned: tuple[Pruned, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A picture without coordinates. ``listed`` is its whole list; ``declared``, the edges of that."""

    part: Part
    listed: Mapping[str, Phase] = field(default_factory=dict)
    boxes: tuple[Box, ...] = ()
    edges: Mapping[Edge, str] = field(default_factory=dict)
    declared: tuple[Edge, ...] = ()
    strip: Strip = field(default_factory=Strip)

    def picture(self, placed: Placed) -> Picture:
        """The picture in a layout that it shares with others."""
        lines = tuple(Line(*edge, state, placed.routes[edge]) for edge, state in self.edges.items())
        part = self.part
        return Picture(part.title, part.section, part.variant, part.spans, self.boxes, lines, self.strip)


class Reader:
    """Reads the parts of a plan. ``wanted`` is a variant that is drawn however many there are; what it leaves out is
    told as it is in ``step``.
    """

    def __init__(self, plan: Plan, wanted: int, step: int | None = None) -> None:
        self.plan, self.layout, self.wanted, self.step = plan, plan.layout, wanted, step
        self.index = Index(plan.seq)

    def parts(self) -> Iterator[Part]:
        """``start``, the variants, ``end``: those in which anything is listed."""
        plan = self.plan
        if not plan.seq:
            return
        if plan.start.phases or plan.start.pruned:
            yield Part(TITLES["start"], "start", phases=plan.start.phases, pruned=plan.start.pruned)
        yield from self.steps()
        if plan.end.phases or plan.end.pruned:
            last = self.index.length - 1
            yield Part(TITLES["end"], "end", last, -1, phases=plan.end.phases, pruned=plan.end.pruned)

    def steps(self) -> Iterator[Part]:
        plan, last = self.plan, self.plan.steps - 1
        for one in plan.variants:
            if one.id <= MANY or one.id in (self.wanted, plan.step(last).variant):
                at = one.first - plan.first + 1
                told = self.step if one.id == self.wanted else None
                pruned = one.pruned if told is None else plan.pruned(told)
                yield Part(title(plan, one), "step", at, one.id, one.spans, one.phases, pruned)

    def draft(self, part: Part) -> Draft:
        done = self.plan.done[self.index[part.at]]
        ops = self.whole if part.section == "step" else self.outside(part.section, done)
        declared = self.whole_edges if part.section == "step" else self.edges(ops)
        listed = {op.name: op.phase for op in ops}
        return Draft(part, listed, boxes_of(part, listed), edges_of(part, declared), declared, self.strip(done))

    @cached_property
    def whole(self) -> tuple[Op, ...]:
        """Every phase of the step, as if it were due."""
        return tuple(lower(self.layout, phase, phase.ahead) for phase in self.plan.graph.step)

    def outside(self, section: str, done: Done) -> tuple[Op, ...]:
        """Every phase of ``start`` or ``end``, and what runs ahead there."""
        declared = self.plan.graph.start if section == "start" else self.plan.graph.end
        due = {op.name for op in done.shape.ops}
        return (*(lower(self.layout, p, section) for p in declared if p.name not in due), *done.shape.ops)

    @cached_property
    def whole_edges(self) -> tuple[Edge, ...]:
        return self.edges(self.whole)

    def edges(self, ops: Sequence[Op]) -> tuple[Edge, ...]:
        """What would wait for what, if all of it ran."""
        after, _ = order(self.layout, ops, [op.parts for op in ops], Trace(), step=True)
        return tuple((before, op.name) for op, names in zip(ops, after, strict=True) for before in names)

    # ---- places

    def strip(self, done: Done) -> Strip:
        """Follow the places through a step."""
        resources, capacity = self.plan.graph.resources, dict(self.plan.graph.placement.capacity)
        names = self.layout.placed
        met = list(walk(done))
        return Strip(
            phases=tuple(op.name for op, _, _ in met),
            rows=tuple(Row(name, resources[name].size, tuple(self.words(name, met))) for name in names),
            load=tuple((self.load(before), self.load(after)) for _, before, after in met),
            unknown=tuple(name for name in names if resources[name].size is None),
            capacity=capacity.get("device"),
        )

    def words(self, name: str, met: Iterable[tuple[Op, int, int]]) -> Iterator[tuple[str, str]]:
        for _, before, after in met:
            yield self.layout.word(name, before), self.layout.word(name, after)

    def load(self, places: int) -> float:
        return weight(self.layout, places, "device")


def walk(done: Done) -> Iterator[tuple[Op, int, int]]:
    """Each phase that runs, with the places before and after it."""
    places = done.facts.places
    for op, keep in zip(done.shape.ops, done.kept, strict=True):
        if keep != GONE:
            after = op.effect(keep).put(places)
            yield op, places, after
            places = after


def boxes_of(part: Part, listed: Mapping[str, Phase]) -> tuple[Box, ...]:
    """A box for every phase of the list that the part says anything of."""
    found = {one.name: gone_box(one) for one in part.pruned} | {p.name: kept_box(p) for p in part.phases}
    return tuple(found[name] for name in listed if name in found)


def kept_box(one: Planned) -> Box:
    here = tuple(name for name in one.after if "@" not in name and name != one.name)
    earlier = tuple(name.partition("@")[0] for name in one.after if "@" in name)
    state, gate = ("maybe", f"it runs if {gate_of(one.phase.when)}") if one.may_fire else ("kept", "")
    does = effects(replace(one, may_fire=False)) or one.use
    return Box(one.name, state, one.why, gate, does=does, after=here, before=earlier, dropped=tuple(dropped(one)))


def dropped(one: Planned) -> Iterator[str]:
    """The parts that a phase lost while others of it remain."""
    whole = {**dict(one.phase.moves), **dict(one.phase.copies)}
    for name, code in one.dropped.items():
        yield f"{name}>{whole[name]} ({WORDS[code]})"


def gone_box(one: Pruned) -> Box:
    state = "idle" if one.code in NOT_ASKED else "pruned"
    return Box(one.name, state, one.code, said(one), one.kept_if)


def edges_of(part: Part, declared: Iterable[Edge]) -> dict[Edge, str]:
    """The edges of what runs, and those that tie in what does not."""
    runs = {p.name for p in part.phases}
    kept = {(before, p.name): "kept" for p in part.phases for before in kept_box(p).after}
    return kept | {edge: "pruned" for edge in declared if not runs.issuperset(edge)}


# ---- the layout that pictures share


def sheet_of(drafts: Sequence[Draft]) -> tuple[Sheet, Placed]:
    """One layout for all the pictures of a section."""
    listed = dict(chain.from_iterable(one.listed.items() for one in drafts))
    edges = list(chain.from_iterable((*one.declared, *one.edges) for one in drafts))
    placed = place({name: width(phase, drafts) for name, phase in listed.items()}, TALL, edges)
    boxes = tuple(fixed(phase, placed) for phase in listed.values())
    return Sheet(boxes, placed.width, placed.height), placed


def width(phase: Phase, drafts: Iterable[Draft]) -> float:
    """Room for a name, and for every line that any of the pictures has below it."""
    lines = {box.word for one in drafts for box in one.boxes if box.name == phase.name}
    return round(max(len(phase.name) * LETTER, *(len(line) * SMALL for line in lines), 60.0) + MARGIN, 1)


def fixed(phase: Phase, placed: Placed) -> Fixed:
    spot = placed.spots[phase.name]
    return Fixed(
        phase.name,
        phase.kind,
        phase.use,
        phase.component,
        phase.doc,
        spot.x,
        spot.y,
        spot.width,
        spot.height,
        spot.layer,
    )
