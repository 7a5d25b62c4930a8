"""A function of one's own that never runs is most likely not what was meant: said loudly, with what would keep it.

Our own handoffs go silently: that is what the compiler is for. Nor is a gate that a short run never reaches any news.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import Pruned
from stepgraph.own import is_own

if TYPE_CHECKING:
    from stepgraph.compiler.plan import Plan

ASKED_FOR = ("not_due", "disabled")


def warnings(plan: Plan) -> Iterator[str]:
    """One line for each function that is due and yet pruned from every step."""
    mine = [phase for phase in plan.graph.step if is_own(phase.use) and (phase.handoff or phase.pure)]
    variants = plan.variants if mine else ()
    kept = {one.name for variant in variants for one in variant.phases}
    for phase in mine:
        gone = [one for one in _pruned(plan) if one.name == phase.name and one.code not in ASKED_FOR]
        if gone and phase.name not in kept:
            told = next((one for one in gone if one.kept_if), gone[0])
            yield f"step.{phase.name} is pruned from every step: {told.reason}; {_cure(phase, told)}"


def _pruned(plan: Plan) -> Iterator[Pruned]:
    """What is pruned, told for the first step of each variant, and for the last step: ``keep`` may help only there."""
    for variant in plan.variants:
        yield from variant.pruned
    yield from plan.pruned(plan.steps - 1)


def _cure(phase: Phase, pruned: Pruned) -> str:
    if pruned.kept_if:
        return f"{pruned.kept_if} keeps it"
    if phase.pure:
        return f"graph.step.{phase.name}.pure=false keeps it, and so does a phase that reads what it writes"
    return "a later phase that reads or needs what it gives keeps it"
