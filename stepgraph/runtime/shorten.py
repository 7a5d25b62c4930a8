"""When a run is asked to stop: may the plan in which this step is the last take over from where things are?

It may where what was already done is what that plan would have done so far. Otherwise one more step is run as the last.
"""

from __future__ import annotations

from stepgraph.ir.plan import CompiledStep, Planned
from stepgraph.runtime.plans import RunnablePlan


def fits_now(old: RunnablePlan, new: RunnablePlan, step: int, started: dict[str, Planned]) -> bool:
    """Whether ``new.step(step)`` can replace what was not started of a step."""
    there = {planned.name: planned for planned in new.step(step).phases}
    if not _same_past(old, new, step) or not started.keys() <= there.keys():
        return False
    if not all(same_effects(planned, there[name]) for name, planned in started.items()):
        return False
    return all(name in started or name.endswith("@previous") for done in started for name in there[done].after)


def fits_after(old: RunnablePlan, new: RunnablePlan, step: int) -> bool:
    """Whether ``new`` can go on with ``step`` when ``old`` has run the one before it to its end."""
    return _same_past(old, new, step)


def same_effects(one: Planned, other: Planned) -> bool:
    """Whether both leave the same places and contents."""
    return (
        dict(one.moves) == dict(other.moves)
        and dict(one.copies) == dict(other.copies)
        and one.for_step == other.for_step
    )


def _same_past(old: RunnablePlan, new: RunnablePlan, step: int) -> bool:
    if new.first != old.first or new.steps != step + 1:
        return False
    if step == old.first:
        return _same_step(old.start, new.start)
    return _same_step(old.step(step - 1), new.step(step - 1))


def _same_step(one: CompiledStep, other: CompiledStep) -> bool:
    if [planned.name for planned in one.phases] != [planned.name for planned in other.phases]:
        return False
    return all(same_effects(a, b) for a, b in zip(one.phases, other.phases, strict=True))
