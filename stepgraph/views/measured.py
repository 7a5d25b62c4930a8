"""The plan of a step beside what a run measured: how long each phase takes, and what pruning saved."""

from __future__ import annotations

from collections.abc import Iterator

from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep
from stepgraph.runtime.report import duration
from stepgraph.runtime.result import whole_handoffs
from stepgraph.views.rundir import RunDir, Timed

MARK = {"not_due": "not due", "disabled": "disabled"}


def measured(step: CompiledStep, title: str, asked: Phase, run: RunDir) -> Iterator[str]:
    """What the run directory knows of the step's phases, the one that was asked about marked, and what was saved."""
    where = title if step.step is None else f"step {step.step}"
    names = {one.name: "runs" for one in step.phases}
    names |= {one.name: MARK.get(one.code, "pruned") for one in step.pruned if one.name not in names}
    yield f"  measured  in {run.path}" + ("" if run.timed else ": nothing ran yet")
    if run.timed:
        wide = max(len(name) for name in names)
        yield f"  {'':<10}{'phase':<{wide}}  {'plan':<8}  {'median':>8}  {'runs':>5}  {where:>10}"
        for name, plan in names.items():
            mark = "*" if name == asked.name else ""
            yield f"  {mark:>8}  {name:<{wide}}  {plan:<8}  {numbers(run, name, run.at(name, title, step.step))}"
    yield from saved(step, where, run)


def numbers(run: RunDir, name: str, here: Timed | None) -> str:
    """The median of a phase, how often it ran, and how long it took in the step."""
    usual = run.median(name)
    ran = "-" if here is None else seconds(here.seconds) if here.outcome == "ok" else here.outcome
    return f"{'?' if usual is None else seconds(usual):>8}  {len(run.seconds(name)):>5}  {ran:>10}"


def seconds(value: float) -> str:
    return f"{duration(value)} s"


def saved(step: CompiledStep, where: str, run: RunDir) -> Iterator[str]:
    """The time that the handoffs pruned in the step take elsewhere: only of those that ran somewhere."""
    gone = whole_handoffs(step.pruned, {one.name for one in step.phases})
    known = [usual for name in gone if (usual := run.median(name)) is not None]
    if not gone:
        return
    what = f"{len(gone)} {'handoff' if len(gone) == 1 else 'handoffs'} in {where}"
    if not known:
        yield f"  saves     {what}; none of them ever ran, so the time is not known"
        return
    rest = f"; {len(gone) - len(known)} never ran and are not counted" if len(known) < len(gone) else ""
    yield f"  saves     {what}, {seconds(sum(known))} (measured medians{rest})"
