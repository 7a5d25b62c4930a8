"""The plan as text: what a person reads in a terminal of 80 columns.

The first variant is told in full, the others by what differs from the one nearest to them. The reason stands beside
what was pruned, with what would keep it; what did not change is not repeated.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from stepgraph.compiler.plan import Plan, Variant
from stepgraph.compiler.reasons import said as gate
from stepgraph.compiler.room import fullest
from stepgraph.ir.plan import CompiledStep, Planned, Pruned

WIDTH = 80
RANGES = 4
"""At most this many ranges of steps are listed."""

SHOWN = 8
"""At most this many variants are told; a schedule with more says how many there are."""


def plan_text(plan: Plan, overrides: Sequence[str] = ()) -> str:
    """Tell a plan. ``overrides`` are the user's own words, repeated in the hint at the end."""
    return "\n".join(line.rstrip() for line in lines(plan, overrides))


def lines(plan: Plan, overrides: Sequence[str]) -> Iterator[str]:
    yield head(plan)
    if plan.already_complete:
        yield f"\nNothing to do: the run's {plan.steps} steps are done (run.first={plan.first}). Nothing was started."
        yield "run.steps counts the whole run; run.extend=N adds N steps to it."
        return
    if plan.nothing:
        yield f"\nNothing to do: no phase is due in {count(plan.steps, 'step')} nor outside them. Nothing was started."
        return
    yield from outside("Start", plan.start)
    for at, variant in enumerate(plan.variants[:SHOWN]):
        yield ""
        yield from whole(plan, variant) if at == 0 else differing(plan, variant, plan.variants[:at])
    if len(plan.variants) > SHOWN:
        yield f"\n... and {len(plan.variants) - SHOWN} more variants (format=json has them all)"
    yield from outside("End", plan.end)
    yield ""
    yield from tail(plan, overrides)


def head(plan: Plan) -> str:
    graph = plan.graph
    rest = plan.steps - plan.first
    what = f"steps {plan.first}-{plan.steps - 1}" if plan.first and rest > 0 else count(max(rest, 0), "step")
    left = ", ".join(word for word in (graph.name, graph.placement.name, what) if word)
    return beside(left, f"from {graph.source}" if graph.source else "")


def tail(plan: Plan, overrides: Sequence[str]) -> Iterator[str]:
    for warning in plan.warnings:
        yield from textwrap.wrap(f"Warning: {warning}", WIDTH, subsequent_indent="  ")
    peak = plan.peak("device")
    if peak is not None:
        limit = dict(plan.graph.placement.capacity).get("device")
        of = "" if limit is None else f" of {limit:g}"
        yield f"Peak {peak:g}{of} GiB on device, in {fullest(plan, 'device')[1]}."
    totals = plan.totals
    text = (
        f"Plan: {count(plan.steps - plan.first, 'step')} in {count(len(plan.variants), 'variant')}; "
        f"{totals['phase_runs']:,} phase runs, {totals['pruned_runs']:,} pruned. Nothing was started."
    )
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")
    yield from hints(plan, overrides)


def hints(plan: Plan, overrides: Sequence[str]) -> Iterator[str]:
    """The next commands, with the user's own settings."""
    others = [word for word in overrides if not word.startswith(("passes=", "step="))]
    words = "".join(f" {shlex.quote(word)}" for word in others)
    if any(word.startswith("passes=") for word in overrides):
        yield f"Compiled: stepgraph plan{words}"
        return
    asked = question(plan)
    if asked:
        yield f"Why?      stepgraph explain {asked}{words}"
    yield f"Picture:  stepgraph show -o step.html{words}"
    yield f"Declared: stepgraph plan passes=[]{words}"


def question(plan: Plan) -> str:
    """The pruned phase that is most worth asking about: one that the last variants drop and others run."""
    run = {phase.name for variant in plan.variants for phase in variant.phases}
    dropped = [
        (gone.name not in run, gone.code == "only_feeds_pruned", -variant.id, gone.name, variant.first)
        for variant in plan.variants
        for gone in variant.pruned
        if gone.code not in ("not_due", "disabled")
    ]
    if not dropped:
        return ""
    name, step = min(dropped, key=lambda one: one[:3])[3:]
    return f"{name} step={step}"


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def beside(left: str, right: str) -> str:
    """Two texts on one line, the second at its right end; below each other where they do not fit."""
    if not right:
        return left
    if len(left) + len(right) + 2 > WIDTH:
        return f"{left}\n{right:>{WIDTH}}"
    return f"{left}{right:>{WIDTH - len(left)}}"


def ranges(variant: Variant, last: int) -> str:
    """The steps of a variant as people write them, a long list cut short."""
    steps = merge(*(range(first, end + 1, stride) for first, end, stride in variant.spans))
    found: list[list[int]] = []
    for step in steps:
        if found and found[-1][1] + 1 == step:
            found[-1][1] = step
        elif len(found) == RANGES:
            return f"{', '.join(span(*one) for one in found)}, ..., {max(end for _, end, _ in variant.spans)}"
        else:
            found.append([step, step])
    words = [span(*one) for one in found]
    return ", ".join(words) + (", the last" if words == [str(last)] else "")


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def title(plan: Plan, variant: Variant) -> str:
    return f"Variant {variant.id}: {count(variant.count, 'step')} ({ranges(variant, plan.steps - 1)})"


def effects(phase: Planned) -> str:
    """``engine>host kv>none`` and ``policy>>engine``."""
    moves = [f"{name}>{place}" for name, place in phase.moves.items()]
    may = [f"(may fire: {gate(phase.phase.when)})"] if phase.may_fire else []
    return " ".join([*moves, *(f"{source}>>{target}" for target, source in phase.copies.items()), *may])


def whole(plan: Plan, variant: Variant) -> Iterator[str]:
    """A variant in full: what runs, in layers; what does not, with reasons; what would bring it back."""
    yield beside(title(plan, variant), f"{len(variant.phases)} phases run, {len(variant.pruned)} pruned")
    names = max(len(name) for name in ("phase", *(p.name for p in variant.phases), *(g.name for g in variant.pruned)))
    lists = [", ".join(name for name in p.after if "@" not in name) or "-" for p in by_layer(variant)]
    waits = max(5, min(max(map(len, lists), default=5), WIDTH - 29 - names, 30))
    yield f"       {'phase':<{names}}  {'after':<{waits}}  moves, copies"
    for phase, after in zip(by_layer(variant), lists, strict=True):
        yield from row(phase, after, names, waits)
    for gone in variant.pruned:
        yield from beneath(f"   -   {gone.name:<{names}}  ", f"({said(gone)})")
    for phase in variant.phases:
        yield from partly(phase, names)
    cures = dict.fromkeys(g.kept_if for g in variant.pruned if g.kept_if and g.code not in ("not_due", "disabled"))
    for cure in cures:
        yield f"       kept if {cure}"


def row(phase: Planned, after: str, names: int, waits: int) -> Iterator[str]:
    """One phase; what does not fit beside it goes on below."""
    left = textwrap.wrap(after, waits) or ["-"]
    right = textwrap.wrap(effects(phase), max(WIDTH - 11 - names - waits, 12)) or [""]
    for i in range(max(len(left), len(right))):
        head = f"  {phase.layer:>2}   {phase.name:<{names}}" if i == 0 else " " * (7 + names)
        wait, effect = (column[i] if i < len(column) else "" for column in (left, right))
        yield f"{head}  {wait:<{waits}}  {effect}"


def partly(phase: Planned, names: int) -> Iterator[str]:
    """The parts that a handoff lost while others of it remain."""
    whole = {**dict(phase.phase.moves), **dict(phase.phase.copies)}
    lost = [f"{name}>{whole[name]} ({code.replace('_', ' ')})" for name, code in phase.dropped.items()]
    if lost:
        yield from beneath(f"   ~   {phase.name:<{names}}  ", f"without {', '.join(lost)}")


def beneath(head: str, text: str) -> list[str]:
    """A text beside its head, its further lines beneath it."""
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * min(len(head) + 1, WIDTH // 2))


def by_layer(variant: Variant) -> list[Planned]:
    return sorted(variant.phases, key=lambda phase: phase.layer)


def said(gone: Pruned) -> str:
    """A reason with its code in words, once."""
    words = {
        "no_consumer": "no consumer: ",
        "only_feeds_pruned": "only feeds what is pruned: ",
        "already_there": "already there: ",
        "same_contents": "same contents: ",
    }
    return words.get(gone.code, "") + gone.reason


def differing(plan: Plan, variant: Variant, earlier: Sequence[Variant]) -> Iterator[str]:
    """A variant, by what differs from the nearest of the earlier ones."""
    base = min(earlier, key=lambda one: (len(changes(one, variant)), one.id))
    more = [p.name for p in variant.phases if p.name not in names(base)]
    text = f"{title(plan, variant)} = variant {base.id}" + "".join(f"  +\N{NO-BREAK SPACE}{name}" for name in more)
    yield from textwrap.wrap(text, WIDTH, subsequent_indent=" " * 13, drop_whitespace=True)
    mine = {p.name: effects(p) for p in variant.phases}
    for p in base.phases:
        if p.name in mine and mine[p.name] != effects(p):
            yield f"             ~ {p.name}  {mine[p.name]}"
    yield from taken_out(variant, [gone for gone in variant.pruned if gone.name in names(base)])


def taken_out(variant: Variant, gone: Sequence[Pruned]) -> Iterator[str]:
    """What an earlier variant runs and this one does not, with the reasons once."""
    if not gone:
        return
    yield from textwrap.wrap(
        " ".join(f"-\N{NO-BREAK SPACE}{one.name}" for one in gone),
        WIDTH,
        initial_indent=" " * 13,
        subsequent_indent=" " * 13,
    )
    roots = [one for one in gone if one.code != "only_feeds_pruned"] or list(gone)
    due = [one for one in roots if one.code in ("not_due", "disabled")]
    for one in due if len(due) == len(roots) else [one for one in roots if one not in due]:
        yield from textwrap.wrap(
            f"({one.name} - {said(one)})", WIDTH, initial_indent=" " * 15, subsequent_indent=" " * 16
        )
    cures = dict.fromkeys(one.kept_if for one in roots if one.kept_if and one not in due)
    for cure in cures:
        yield f"{'':15}kept if {cure}"


def names(variant: Variant) -> Mapping[str, Planned]:
    return {phase.name: phase for phase in variant.phases}


def changes(left: Variant, right: Variant) -> set[tuple[str, str]]:
    """What differs between two variants: phases, with what they move."""
    return {(p.name, effects(p)) for p in left.phases} ^ {(p.name, effects(p)) for p in right.phases}


def outside(what: str, step: CompiledStep) -> Iterator[str]:
    """``start`` or ``end`` on a line of its own."""
    gone = [one for one in step.pruned if one.code != "disabled"]
    if not step.phases and not gone:
        return
    yield ""
    yield from textwrap.wrap(
        f"{what}: {', '.join(p.name for p in step.phases) or 'nothing'}", WIDTH, subsequent_indent="  "
    )
    wide = max((len(one.name) for one in gone), default=0)
    for one in gone:
        yield from beneath(f"   -   {one.name:<{wide}}  ", f"({said(one)})")
