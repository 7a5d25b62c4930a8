"""The plan as text: what a person reads in a terminal of 80 columns.

The first variant is told in full, the others by what differs from the one nearest to them. The reason stands beside
what was pruned, with what would keep it; what did not change is not repeated.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from stepgraph.compiler.plan import Plan, Variant
from stepgraph.compiler.room import fullest
from stepgraph.ir.plan import CompiledStep, Planned, Pruned

WIDTH = 80
SHOWN = 8
"""At most this many variants are told; a schedule with more says how many there are."""


def plan_text(plan: Plan, overrides: Sequence[str] = ()) -> str:
    """Tell a plan. ``overrides`` are the user's own words, repeated in the hint at the end."""
    return "\n".join(line.rstrip() for line in lines(plan, overrides))


def lines(plan: Plan, overrides: Sequence[str]) -> Iterator[str]:
    yield head(plan)
    if plan.already_complete:
        yield f"\nNothing to do: the run's {plan.steps} steps are done (run.first={plan.first}). Nothing was started."
        return
    if plan.nothing:
        yield f"\nNothing to do: {count(plan.steps, 'step')}, and no phase is due outside them. Nothing was started."
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
    yield (
        f"Plan: {count(plan.steps - plan.first, 'step')} in {count(len(plan.variants), 'variant')}; "
        f"{totals['phase_runs']} phase runs, {totals['pruned_runs']} pruned. Nothing was started."
    )
    words = " ".join(shlex.quote(word) for word in overrides)
    yield f"As declared: stepgraph plan passes=[] {words}".rstrip()


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def beside(left: str, right: str) -> str:
    """Two texts on one line, the second at column 60 where there is room."""
    return f"{left:<58} {right}" if right else left


def ranges(variant: Variant, last: int) -> str:
    """The steps of a variant, a long list cut short."""
    words = [span(*one) for one in variant.spans[:6]]
    if len(variant.spans) > 6:
        words.append("...")
    if variant.spans[-1][1] == last and len(variant.spans) <= 6:
        words[-1] += ", the last" if variant.count == 1 else ""
    return ", ".join(words)


def span(first: int, last: int, stride: int) -> str:
    if first == last:
        return str(first)
    if stride == 1:
        return f"{first}-{last}"
    return f"{first}, {first + stride}, ..., {last}" if last > first + stride else f"{first}, {last}"


def title(plan: Plan, variant: Variant) -> str:
    return f"Variant {variant.id}: {count(variant.count, 'step')} ({ranges(variant, plan.steps - 1)})"


def effects(phase: Planned) -> str:
    """``engine>host kv>none`` and ``policy>>engine``."""
    moves = [f"{name}>{place}" for name, place in phase.moves.items()]
    return " ".join(moves + [f"{source}>>{target}" for target, source in phase.copies.items()])


def whole(plan: Plan, variant: Variant) -> Iterator[str]:
    yield beside(title(plan, variant), f"{len(variant.phases)} phases run, {len(variant.pruned)} pruned")
    rows = [
        (str(p.layer), p.name, ", ".join(n for n in p.after if "@" not in n) or "-", effects(p))
        for p in by_layer(variant)
    ]
    wide = [max(len(row[i]) for row in [*rows, ("", "phase", "after", "")]) for i in range(4)]
    wide = [2, max(wide[1], *(len(gone.name) for gone in variant.pruned), 0), min(wide[2], 30)]
    yield f"  {'':>2}   {'phase':<{wide[1]}}  {'after':<{wide[2]}}  moves, copies"
    for layer, name, after, moved in rows:
        yield from row(layer, name, after, moved, wide)
    for gone in variant.pruned:
        text = f"({said(gone)})"
        yield from textwrap.wrap(
            text, WIDTH, initial_indent=f"   -   {gone.name:<{wide[1]}}  ", subsequent_indent=" " * (10 + wide[1])
        )


def row(layer: str, name: str, after: str, moved: str, wide: Sequence[int]) -> Iterator[str]:
    """One phase; a long list of what it waits for goes on below."""
    waits = textwrap.wrap(after, wide[2]) or ["-"]
    yield f"  {layer:>2}   {name:<{wide[1]}}  {waits[0]:<{wide[2]}}  {moved}"
    for more in waits[1:]:
        yield f"  {'':>2}   {'':<{wide[1]}}  {more}"


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
    yield f"{title(plan, variant)} = variant {base.id}" + "".join(f"  + {name}" for name in more)
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
    text = f"{what}: {', '.join(p.name for p in step.phases) or 'nothing'}"
    if gone:
        text += f"; pruned: {', '.join(one.name for one in gone)} ({said(gone[-1])})"
    yield ""
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")
