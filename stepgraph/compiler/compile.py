"""declare -> expand -> check -> dead -> settled -> least -> verify -> plan: the passes over the whole run.

Each pass is a sweep over the run as a sequence of labels (see ``seq``), so that its cost depends on how many different
steps there are. ``dead`` and ``settled`` repeat until neither drops anything; ``least`` then looks for what two sweeps
cannot see, in graphs where there can be such a thing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stepgraph.compiler import check, dead, room, settled, staleness
from stepgraph.compiler.check import State, Table
from stepgraph.compiler.dead import Aim, Wants
from stepgraph.compiler.expand import Expanded, Shape, expand
from stepgraph.compiler.least import least, plain
from stepgraph.compiler.plan import Plan
from stepgraph.compiler.seq import Seq, labels, relabel, scan, spans
from stepgraph.compiler.settled import Facts
from stepgraph.compiler.verify import verify
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph

PASSES = ("dead", "settled")


@dataclass(frozen=True, slots=True)
class Done:
    """One compiled step: what was due, what is kept of it, what was wanted after each phase, how it was entered."""

    shape: Shape
    aim: Aim
    facts: Facts

    @property
    def kept(self) -> tuple[int, ...]:
        """What is kept of each phase."""
        return self.aim.kept


def compile(
    graph: Graph,
    steps: int | None = None,
    first: int | None = None,
    passes: Iterable[str] = PASSES,
    at: Mapping[str, str] | None = None,
) -> Plan:
    """Compile a run of ``graph``: the steps ``first`` up to, not including, ``steps`` (by default what the graph says).

    ``passes`` is a subset of ``dead`` and ``settled``; none shows the list as it is declared. ``at`` overrides where
    resources start. Raises ``GraphError`` where the declared list cannot run, ``ConfigError`` for a run without an end.

    >>> import stepgraph
    >>> plan = stepgraph.compile(stepgraph.load("grpo", ["placement=colocated"]), steps=3)
    >>> [phase.name for phase in plan.step(2).phases]
    ['generate', 'offload_engine', 'reload_policy', 'score', 'train', 'save']
    """
    asked = tuple(passes)
    for name in asked:
        if name not in PASSES:
            raise ConfigError(f"passes names '{name}'{did_you_mean(name, PASSES)} (known: {', '.join(PASSES)})")
    graph = with_run(graph, steps, first, at or {})
    plan = no_worse(Passes(expand(graph, graph.run.first, total_of(graph)), frozenset(asked)).run(), frozenset(asked))
    room.refuse(plan)
    if graph.max_staleness is not None:
        staleness.refuse(plan, graph.max_staleness)
    return plan


def rest(plan: Plan, step: int, places: Mapping[str, str], contents: Mapping[str, Hashable]) -> Plan:
    """Compile what is left of a run that is under way, from where everything really is before ``step``.

    ``places`` says where every placed resource is. ``contents`` says what weights and state hold: resources with equal
    entries hold the same contents, and one without an entry holds none. What runs ahead for ``step`` has been made.
    This is for runs in which something fired that the plan could only allow for, such as a phase that a file triggers.
    """
    graph = plan.graph
    plan.has(step)
    check_places(graph, places)
    expanded = expand(graph, plan.expanded.origin, plan.steps, rest=step)
    layout = expanded.layout
    missing = [name for name in layout.placed if name not in places]
    if missing:
        raise ConfigError(f"places says nothing of '{missing[0]}': say where each of {', '.join(layout.placed)} is")
    at = sum(layout.bit(name, places[name]) for name in layout.placed)
    state = State(at, check.under_way(expanded, contents))
    same = tuple(contents.get(name) for name in layout.lasting_names)
    return Passes(expanded, frozenset(PASSES), state, same).run()


def no_worse(plan: Plan, asked: frozenset[str]) -> Plan:
    """Never hold more on the device than the declared list does.

    A placement may let things stay that the declared list takes off. Where that would raise the peak, whatever the
    declared list keeps apart is kept apart; if even that holds more (three things, any two of which may meet), nothing
    is pruned.
    """
    peak = plan.peak("device") if asked else None
    if peak is None:
        return plan
    declared = Passes(plan.expanded, frozenset()).run()
    limit = declared.peak("device")
    if limit is None or peak <= limit:
        return plan
    apart = room.apart(declared)
    other = Passes(expand(plan.graph, plan.first, plan.steps, apart), asked).run()
    found = other if (other.peak("device") or 0) <= limit else declared
    found.notes = (
        f"the placement would let {peak:g} GiB onto the device, where the declared list holds {limit:g} at most: "
        "what the list keeps apart is kept apart",
    )
    return found


def with_run(graph: Graph, steps: int | None, first: int | None, at: Mapping[str, str]) -> Graph:
    """The graph with the run that the caller asks for."""
    for name, value in (("steps", steps), ("first", first)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ConfigError(f"run.{name}={value!r}: give a whole number of at least 0")
    check_places(graph, at)
    run = graph.run if steps is None else replace(graph.run, steps=steps, extend=0)
    run = run if first is None else replace(run, first=first)
    if run == graph.run and not at:
        return graph
    moved = {name: replace(r, at=at.get(name, r.at)) for name, r in graph.resources.items()} if at else graph.resources
    return replace(graph, run=run, resources=moved)


def check_places(graph: Graph, at: Mapping[str, str]) -> None:
    """Refuse a place that there is not, or one for something that has none."""
    placed = [name for name, resource in graph.resources.items() if resource.placed]
    for name, place in at.items():
        if name not in placed:
            raise ConfigError(
                f"'{name}' is nothing that has a place{did_you_mean(name, placed)} (known: {', '.join(placed)})"
            )
        if place not in graph.places:
            hint = did_you_mean(place, graph.places)
            raise ConfigError(f"there is no place '{place}' for {name}{hint} (known: {', '.join(graph.places)})")


def total_of(graph: Graph) -> int:
    """The run's end; a run that begins at or after it has nothing left to do."""
    total = graph.run.total
    if total is None:
        raise ConfigError(
            "run.steps is not given and nothing else ends the run: "
            "give run.steps=N, or run.epochs=E with run.steps_per_epoch=N"
        )
    return total


class Passes:
    """The passes over one run.

    A sweep rewrites labels. ``steps`` are ``(shape, kept)``; ``aimed`` adds what was wanted after each phase; ``met``
    adds the facts that a step was entered with, and keeps what the forward sweep left of it.
    """

    def __init__(
        self, expanded: Expanded, asked: frozenset[str], given: State | None = None, same: tuple[object, ...] = ()
    ) -> None:
        self.expanded, self.layout, self.asked = expanded, expanded.layout, asked
        self.given, self.same = given, same
        self.shapes: Table[Shape] = Table()
        self.steps: Table[tuple[int, tuple[int, ...]]] = Table()
        self.aimed: Table[tuple[int, Aim]] = Table()
        self.met: Table[tuple[int, int]] = Table()
        self.left: list[int] = []
        self.wants: Table[Wants] = Table()
        self.facts: Table[Facts] = Table()
        self.changed = False

    def run(self) -> Plan:
        """Check, prune to a fixpoint, and hand out the plan."""
        if self.expanded.first >= self.expanded.total > 0 and self.expanded.first > 0:
            return Plan(self.expanded, (), [])
        state = self.given or check.initial(self.layout)
        self.goal = self.wants(dead.at_end(self.layout))
        self.begin = self.facts(Facts(state.places, settled.at_start(self.layout, state.have, self.same)))
        seq = self.fixpoint(check.check(self.expanded, state, self.whole))
        if self.asked == frozenset(PASSES) and not plain(self.layout):
            seq = self.fixpoint(self.cheapest(relabel(seq, self.left.__getitem__)))
        verify(seq, self.compiled, self.facts[self.begin], self.wants[self.goal])
        return self.finish(seq)

    def compiled(self, label: int) -> tuple[Shape, tuple[int, ...]]:
        """The shape of a finished step and what is kept of it."""
        shape, kept = self.steps[self.left[label]]
        return self.shapes[shape], kept

    def whole(self, shape: Shape) -> int:
        """Nothing is pruned yet."""
        return self.steps((self.shapes(shape), tuple([op.parts for op in shape.ops])))

    def fixpoint(self, seq: Seq) -> Seq:
        """Sweep back and forth until nothing goes any more. Takes labels of ``steps``, returns labels of ``met``."""
        left: Sequence[int] = range(len(self.steps.values))
        while True:
            self.changed = False
            seq = self.forward(self.backward(seq, left, "dead" in self.asked), "settled" in self.asked)
            if not self.changed:
                return seq
            left = self.left

    def backward(self, seq: Seq, left: Sequence[int], drop: bool) -> Seq:
        def transfer(label: int, number: int) -> tuple[int, int]:
            shape, kept = self.steps[left[label]]
            after = self.wants[number]
            if self.shapes[shape].title == "step":
                after = Wants(after.places, self.layout.unshift(after.cells), self.layout.unshift(after.sure))
            aim, before = dead.sweep(self.shapes[shape].ops, kept, after, drop)
            return self.aimed((shape, aim)), self.wants(before)

        return scan(seq, transfer, self.goal, backward=True)[0]

    def forward(self, seq: Seq, drop: bool) -> Seq:
        def transfer(label: int, number: int) -> tuple[int, int]:
            shape, aim = self.aimed[label]
            new, facts = settled.sweep(self.shapes[shape].ops, aim, self.facts[number], drop)
            self.changed |= new != aim.kept
            found = self.met((label, number))
            if found == len(self.left):
                self.left.append(self.steps((shape, new)))
            return found, self.facts(facts)

        return scan(seq, transfer, self.begin)[0]

    def cheapest(self, seq: Seq) -> Seq:
        """The exact answer, where it is cheaper than the sweeps'."""
        found = least(seq, self.steps, self.shapes, self.facts[self.begin], self.wants[self.goal])
        return found if found is not None and self.cost(found) < self.cost(seq) else seq

    def cost(self, seq: Seq) -> int:
        """How many handoff parts a run keeps."""
        each = {label: self.parts(label) for label in labels(seq)}
        return sum(each[label] * count for label, _, _, count in spans(seq))

    def parts(self, label: int) -> int:
        shape, kept = self.steps[label]
        pairs = zip(self.shapes[shape].ops, kept, strict=True)
        return sum(keep.bit_count() for op, keep in pairs if op.handoff and keep != dead.GONE)

    def finish(self, seq: Seq) -> Plan:
        """Hand out the run with all that is known of each different step."""
        return Plan(self.expanded, seq, [self.done(*self.met[number]) for number in range(len(self.left))])

    def done(self, label: int, number: int) -> Done:
        shape, aim = self.aimed[label]
        return Done(self.shapes[shape], aim, self.facts[number])
