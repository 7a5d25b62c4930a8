"""Ends a run early: after the step in flight, as the last one where that can still be.

The plan in which that step is the last may take over where what was done so far is what it would have done. Otherwise
one more step is run as the last one. Where there is no such plan, the step is finished and that is said.
"""

from __future__ import annotations

from collections.abc import Callable

from stepgraph.errors import StepgraphError
from stepgraph.ir.plan import CompiledStep, Planned
from stepgraph.runtime.mirror import Values
from stepgraph.runtime.plans import RunnablePlan
from stepgraph.runtime.record import Recorder, one_line
from stepgraph.runtime.schedule import Schedule, Section

OnStop = Callable[[int], RunnablePlan | None]
"""Gives the plan of the same run in which this step is the last one, or ``None``."""


class Ending:
    """Shortens the run of a plan once. ``why`` is empty until then; ``adopt`` gets every plan that may take over."""

    def __init__(
        self,
        plan: RunnablePlan,
        schedule: Schedule,
        values: Values,
        record: Recorder,
        *,
        on_stop: OnStop | None,
        adopt: Callable[[RunnablePlan], None],
    ) -> None:
        self._plan, self._schedule, self._values, self._record = plan, schedule, values, record
        self._on_stop, self._adopt = on_stop, adopt
        self.why = ""

    def after(self, section: Section, why: str) -> None:
        """End as soon as can be once this section is done."""
        self.why, step = why, section.step
        if step is None:
            self._cut(section)
        elif not (self._take_over(section, step) or self._follow(section, step + 1)):
            self._give_up(section, step)

    def with_step(self, section: Section, step: int, why: str) -> None:
        """End with this step, which is the section's own or, for what ran ahead, the next one."""
        self.why = why
        taken = self._take_over(section, step) if step == section.step else self._follow(section, step)
        if not taken:
            self._give_up(section, step)

    def takes(self, stream: str, step: int) -> bool:
        """Whether anything of this step takes from the stream."""
        around = range(max(step - 1, self._plan.first), min(step + 1, self._plan.steps))
        phases = (planned for k in around for planned in self._plan.step(k).phases)
        return any(stream in planned.updates and planned.for_step == step for planned in phases)

    def _take_over(self, section: Section, step: int) -> bool:
        """Let the plan in which this step is the last replace what was not started of it."""
        started = {planned.name: planned for task in section.tasks if task.started for planned in task.phases}
        plan = self._shorter(step)
        if plan is None or not fits_now(self._plan, plan, step, started):
            return False
        self._cut(section)
        dropped, new = self._schedule.replace(section, plan.step(step))
        self._values.expect(section, new)
        self._values.forget(section, dropped)
        self._schedule.follow([("end", plan.end)])
        return True

    def _follow(self, section: Section, step: int) -> bool:
        """Run this step after the section, as the last one."""
        plan = self._plan if step == self._plan.steps - 1 else self._shorter(step)
        if plan is None or not (plan is self._plan or fits_after(self._plan, plan, step)):
            return False
        self._cut(section)
        self._schedule.follow([(f"step {step}", plan.step(step)), ("end", plan.end)])
        self._record.say(f"step {step + 1} is the last one")
        return True

    def _give_up(self, section: Section, step: int) -> None:
        self._cut(section)
        self._record.warn(f"stopped after step {step + 1}: what is declared for a last step was not run")

    def _shorter(self, step: int) -> RunnablePlan | None:
        if self._on_stop is None:
            return None
        try:
            plan = self._on_stop(step)
            if plan is not None:
                self._adopt(plan)
        except StepgraphError as error:
            self._record.warn(f"no plan for a run that ends with step {step + 1}: {one_line(error)}")
            return None
        return plan

    def _cut(self, section: Section) -> None:
        for task in self._schedule.cut(section):
            self._values.forget(task.section, [task])


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
