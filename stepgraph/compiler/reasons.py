"""Why a phase is there, why it is not, and what would keep it.

The sweeps decide by bits; the words are found afterwards from what a compiled step still knows: what was wanted right
after each phase, where everything was, and which contents were equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from stepgraph.compiler.dead import GONE
from stepgraph.compiler.lower import Copy, Layout, Move, Op
from stepgraph.compiler.settled import Facts, sweep
from stepgraph.errors import StepgraphError
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase, When
from stepgraph.ir.plan import Pruned

if TYPE_CHECKING:
    from stepgraph.compiler.compile import Done
    from stepgraph.compiler.plan import Plan

FAR = 256
"""How many steps ahead a consumer is looked for by name."""


def kept_key(done: Done) -> tuple[object, ...]:
    """What remains of a step, as a value."""
    pairs = zip(done.shape.ops, done.kept, strict=True)
    return tuple((op.name, op.may, keep, op.effect(keep).entry) for op, keep in pairs if keep != GONE)


def codes(layout: Layout, done: Done) -> tuple[tuple[str, str], ...]:
    """The phases of a step that do not run, each with its code."""
    due = done.shape.due
    found = [
        (phase.name, "not_due" if phase.enabled else "disabled")
        for phase in declared(layout.graph, done)
        if phase.name not in due
    ]
    gone = [i for i, keep in enumerate(done.kept) if keep == GONE]
    return tuple(found + [(done.shape.ops[i].name, code(layout, done, i)) for i in gone])


def declared(graph: Graph, done: Done) -> tuple[Phase, ...]:
    return {"start": graph.start, "step": graph.step, "end": graph.end}[done.shape.title]


def code(layout: Layout, done: Done, i: int) -> str:
    """Why the phase at ``i`` went: by its most telling part."""
    op = done.shape.ops[i]
    facts = before(done, i)
    wanted = done.aim.wanted[i] | layout.none
    found = {part_code(done, i, wanted, facts, part) for part in parts_of(op)} or {"no_consumer"}
    for one in ("same_contents", "already_there", "only_feeds_pruned", "no_consumer"):
        if one in found:
            return one
    raise AssertionError(found)


def before(done: Done, i: int) -> Facts:
    """Where everything is, and what is equal, right before the phase at ``i``."""
    return sweep(done.shape.ops[:i], done.aim, done.facts, drop=False)[1]


def dropped(plan: Plan, done: Done, i: int) -> dict[str, str]:
    """The parts that a phase lost while others of it remain, each with its code."""
    op, keep = done.shape.ops[i], done.kept[i]
    facts = before(done, i)
    wanted = done.aim.wanted[i] | plan.layout.none
    names = [name for name, _ in (*op.phase.moves, *op.phase.copies)]
    lost = [(name, part) for name, part in zip(names, parts_of(op), strict=True) if not keep & part.part]
    return {name: part_code(done, i, wanted, facts, part) for name, part in lost}


def part_code(done: Done, i: int, wanted: int, facts: Facts, part: Move | Copy) -> str:
    """Why one part went. That a thing must not be freed is no reason to move it: ``wanted`` has ``none`` in it."""
    if isinstance(part, Copy):
        if facts.tokens[part.of] and facts.tokens[part.of] == facts.tokens[part.to]:
            return "same_contents"
    elif facts.places & part.field == part.bit or serves(done.aim.wanted[i], wanted, facts.places, part):
        return "already_there"
    return "only_feeds_pruned" if feeds_pruned(done, i, part, facts) else "no_consumer"


def serves(asked: int, wanted: int, places: int, move: Move) -> bool:
    """Whether somebody wants the move's place, and where the thing is does as well."""
    return bool(asked & move.bit) and wanted & move.field != move.field and not places & move.field & ~wanted


def parts_of(op: Op) -> tuple[Move | Copy, ...]:
    return (*op.moves, *op.copies)


def feeds_pruned(done: Done, i: int, part: Move | Copy, facts: Facts) -> str:
    """The first later phase of the step that wanted what a part gives, where that one is pruned too."""
    for op, keep in zip(done.shape.ops[i + 1 :], done.kept[i + 1 :], strict=True):
        if consumes(op, op.parts, part, facts):
            return op.name if keep == GONE else ""
        if redefines(op, op.parts, part):
            return ""
    return ""


def consumes(op: Op, keep: int, part: Move | Copy, facts: Facts) -> bool:
    """Whether a phase wants what a part of an earlier one gives: a place, or contents.

    To want a thing anywhere but freed is to want a move only where the thing was freed before it (``facts``).
    """
    if isinstance(part, Copy):
        return bool(op.reads & part.target) or any(keep & c.part and c.source == part.target for c in op.copies)
    asked = op.effect(keep).entry & op.effect(keep).holding
    if not facts.places & part.none:
        asked |= part.none
    return asked & part.field != part.field


def redefines(op: Op, keep: int, part: Move | Copy) -> bool:
    """Whether a phase undoes what a part of an earlier one gave."""
    if isinstance(part, Copy):
        return bool(op.kills & part.target) or any(keep & c.part and c.target == part.target for c in op.copies)
    return any(keep & move.part and move.field == part.field for move in op.moves)


def why(plan: Plan, at: int, i: int) -> str:
    """The code of a phase that is kept: its first consumer, in this step or a later one, or the end of the run."""
    done = plan.done[plan._index[at]]
    op, keep = done.shape.ops[i], done.kept[i]
    if not op.handoff:
        return "work"
    open_parts = [part for part in parts_of(op) if keep & part.part]
    facts = before(done, i)
    for ahead, other, kept in later(plan, at, i):
        if any(consumes(other, kept, part, facts) for part in open_parts):
            return f"{'next_step' if ahead else 'feeds'}:{other.name}"
        open_parts = [part for part in open_parts if not redefines(other, kept, part)]
    return "kept_at_end"


def why_in_words(code: str) -> str:
    """The code of a kept phase as a sentence says it."""
    kind, _, name = code.partition(":")
    words = {"work": "it is work, and due", "kept_at_end": "the graph keeps what it gives"}
    words |= {"feeds": f"{name} wants what it gives", "next_step": f"{name} of a later step wants what it gives"}
    return words[kind]


def later(plan: Plan, at: int, i: int) -> Iterator[tuple[int, Op, int]]:
    """The phases that run after position ``i`` of step ``at``, each with how many steps later."""
    for ahead in range(min(FAR, plan._index.length - at)):
        done = plan.done[plan._index[at + ahead]]
        for j, (op, keep) in enumerate(zip(done.shape.ops, done.kept, strict=True)):
            if keep != GONE and (ahead or j > i):
                yield ahead, op, keep


def pruned(plan: Plan, at: int) -> tuple[Pruned, ...]:
    """The phases of a step that do not run, in declared order, with reasons told for the step at a position."""
    done = plan.done[plan._index[at]]
    phases = {phase.name: phase for phase in (*plan.graph.step, *declared(plan.graph, done))}
    place = {name: i for i, name in enumerate(phases)}
    found = sorted(codes(plan.layout, done), key=lambda item: place[item[0]])
    return tuple(tell(plan, at, phases[name], kind) for name, kind in found)


def tell(plan: Plan, at: int, phase: Phase, kind: str) -> Pruned:
    step, done = plan.first + at - 1, plan.done[plan._index[at]]
    if kind == "disabled":
        return Pruned(
            phase.name, kind, "disabled: enabled is false", f"graph.{done.shape.title}.{phase.name}.enabled=true"
        )
    if kind == "not_due":
        return Pruned(phase.name, kind, not_due(plan, phase, step), kept_if(plan, at, phase))
    i = next(i for i, op in enumerate(done.shape.ops) if op.name == phase.name and done.kept[i] == GONE)
    said = reason(plan, done, i, kind)
    return Pruned(phase.name, kind, said, kept_if(plan, at, phase), dict(phase.moves), dict(phase.copies))


def not_due(plan: Plan, phase: Phase, step: int) -> str:
    """The gate in words, and the next step in which it fires."""
    gate = plan.expanded.gates[phase.name]
    span = range(step + 1, min(plan.steps, step + 100_000))
    following = next((k for k in span if gate.fires(k)), None)
    if phase.ahead and step + phase.ahead >= plan.steps:
        return f"not due: runs {phase.ahead} ahead, and the run ends"
    return f"not due: {said(phase.when)}; " + (
        "not again in this run" if following is None else f"next in step {following}"
    )


def said(when: When) -> str:
    """A gate as it would be typed."""
    words = [f"every={when.every}"] if when.every else []
    words += [f"steps=[{','.join(map(str, when.steps))}]"] if when.steps else []
    words += [name for name in ("first", "last", "epoch_end") if getattr(when, name)]
    words += [f"with={when.with_}"] if when.with_ else []
    words += [f"{name}={value}" for name, value in when.runtime]
    words += [f"from={when.start}"] if when.start else []
    words += [f"until={when.until}"] if when.until is not None else []
    return ", ".join(words) or "no trigger"


def reason(plan: Plan, done: Done, i: int, kind: str) -> str:
    """Why a due phase was pruned, in one line."""
    op = done.shape.ops[i]
    moved, copied = dict(op.phase.moves), dict(op.phase.copies)
    if kind == "same_contents":
        return "; ".join(f"{target} holds the contents of {source} already" for target, source in copied.items())
    if kind == "already_there":
        facts = before(done, i)
        stays = {m.at: facts.places & m.field != m.bit for m in op.moves}
        return ", ".join(
            f"{name} may stay where it is" if stays[plan.layout.index[name]] else f"{name} is at {place}"
            for name, place in moved.items()
        )
    if kind == "only_feeds_pruned":
        names = {feeds_pruned(done, i, part, before(done, i)) for part in parts_of(op)} - {""}
        return f"only {', '.join(sorted(names))} wanted it, and that is pruned"
    what = [f"needs {name} at {place}" for name, place in moved.items()] + [f"reads {target}" for target in copied]
    what += [f"reads {name}" for name in (*op.phase.writes, *op.phase.updates)]
    held = dict(plan.graph.keep)
    end = "" if moved and not copied else f", and the run keeps {' and '.join(held) or 'nothing'}{' only' * bool(held)}"
    return f"no later phase {' or '.join(what)}{end}"


# ---- what would keep it --------------------------------------------------------------------------------------------


def kept_if(plan: Plan, at: int, phase: Phase) -> str:
    """The first change of configuration that brings a pruned phase back, found by compiling again."""
    for text, graph in changes(plan, plan.first + at - 1, phase):
        if brings_back(plan, graph, at, phase.name):
            return text
    return ""


def brings_back(plan: Plan, graph: Graph, at: int, name: str) -> bool:
    from stepgraph.compiler.compile import compile

    try:
        other = compile(graph, first=plan.first)
    except StepgraphError:
        return False
    done = other.done[other._index[at]]
    return any(op.name == name and keep != GONE for op, keep in zip(done.shape.ops, done.kept, strict=True))


def changes(plan: Plan, step: int, phase: Phase) -> Iterator[tuple[str, Graph]]:
    """Changes worth trying: let the phase, or a reader of what it gives, be due; or keep what it gives to the end."""
    graph = replace(plan.graph, run=replace(plan.graph.run, steps=plan.steps, epochs=None, extend=0))
    inside = plan.first <= step < plan.steps
    for one in graph.step if phase.handoff else (phase,):
        if inside and not plan.expanded.gates[one.name].fires(step + one.ahead) and (one is phase or not one.handoff):
            yield from let_be_due(graph, one, step)
    for name, place in (*phase.moves, *((target, "any") for target, _ in phase.copies)):
        if name not in dict(graph.keep):
            yield f"graph.keep.{name}={place}", replace(graph, keep=(*graph.keep, (name, place)))


def let_be_due(graph: Graph, phase: Phase, step: int) -> Iterator[tuple[str, Graph]]:
    """Ways to make a phase due in a step: each an override, and the graph with it."""
    when, last, path = phase.when, (graph.run.steps or 0) - 1, f"graph.step.{phase.name}"
    step += phase.ahead
    if step > last:
        yield f"run.steps={step + 1}", replace(graph, run=replace(graph.run, steps=step + 1))
        return
    ways = [("enabled=true", replace(phase, enabled=True))] if not phase.enabled else []
    if when.named and step == last:
        ways.append(("when.last=true", replace(phase, when=replace(when, last=True))))
    if when.named:
        steps = tuple(sorted({*when.steps, step}))
        ways.append((f"when.steps=[{','.join(map(str, steps))}]", replace(phase, when=replace(when, steps=steps))))
    if step < when.start:
        ways.append((f"when.from={step}", replace(phase, when=replace(when, start=step))))
    if when.until is not None and step >= when.until:
        ways.append((f"when.until={step + 1}", replace(phase, when=replace(when, until=step + 1))))
    for text, changed in ways:
        yield f"{path}.{text}", replace(graph, step=tuple(changed if p is phase else p for p in graph.step))
