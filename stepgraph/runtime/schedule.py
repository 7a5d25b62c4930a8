"""What may run now: the tasks of at most two neighbouring steps, and what each still waits for.

Only the plan's ``after`` decides. There are no threads in here, so that the order can be tested by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from stepgraph.errors import GraphError, did_you_mean
from stepgraph.ir.plan import CompiledStep, Planned
from stepgraph.runtime.plans import RunnablePlan

IN_FLIGHT = 2
PREVIOUS = "@previous"

Scope = int | str
"""What a value is made for: a step, or ``start`` or ``end``."""


@dataclass(eq=False)
class Task:
    """One call: a phase, or neighbouring handoffs that arrive together. ``waits`` are the unfinished ones before it."""

    section: Section
    phases: tuple[Planned, ...]
    waits: set[Task] = field(default_factory=set)
    started: bool = False
    finished: bool = False

    @property
    def head(self) -> Planned:
        return self.phases[0]

    @property
    def name(self) -> str:
        return "+".join(phase.name for phase in self.phases)


@dataclass(eq=False, slots=True)
class Section:
    """``start``, a step or ``end``, opened: its tasks in declared order. ``earlier`` has the latest runs before it."""

    index: int
    label: str
    compiled: CompiledStep
    earlier: dict[str, Task] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        return self.compiled.step

    @property
    def started(self) -> bool:
        return any(task.started for task in self.tasks)

    @property
    def finished(self) -> bool:
        return all(task.finished for task in self.tasks)

    def scope(self, planned: Planned) -> Scope:
        """Which step's values a phase works on."""
        step = self.works_for(planned)
        return self.label if step is None else step

    def works_for(self, planned: Planned) -> int | None:
        return self.step if planned.for_step is None else planned.for_step


def sections(plan: RunnablePlan) -> Iterator[tuple[str, CompiledStep]]:
    """Everything that a plan runs, in order, looked up when it is wanted."""
    return chain([("start", plan.start)], after_start(plan))


def after_start(plan: RunnablePlan) -> Iterator[tuple[str, CompiledStep]]:
    """The steps of a plan, and its end."""
    steps = ((f"step {k}", plan.step(k)) for k in range(plan.first, plan.steps))
    return chain(steps, [("end", plan.end)])


def grouped(phases: Sequence[Planned]) -> list[tuple[Planned, ...]]:
    """Neighbouring handoffs that can arrive as one call, together; every other phase alone."""
    groups: list[tuple[Planned, ...]] = []
    for phase in phases:
        if groups and all(_together(one, phase) for one in groups[-1]):
            groups[-1] = (*groups[-1], phase)
        else:
            groups.append((phase,))
    return groups


def _together(one: Planned, other: Planned) -> bool:
    if any(planned.phase.when.may_fire or planned.phase.when.with_ for planned in (one, other)):
        return False  # a gate that the run decides may open without the other's
    return one.kind == other.kind == "handoff" and _policy(one) == _policy(other) and _parts_agree(one, other)


def _policy(planned: Planned) -> tuple[object, ...]:
    phase = planned.phase
    settings = (phase.on_error, phase.retries, phase.timeout_s, dict(phase.options), dict(phase.hooks))
    return (planned.use, planned.for_step, settings)


def _parts_agree(one: Planned, other: Planned) -> bool:
    """Moves join moves and copies join copies, unless the second undoes or builds on the first."""
    if bool(one.copies) != bool(other.copies) or bool(one.moves) != bool(other.moves):
        return False
    if one.copies and one.moves:
        return False
    apart = not one.copies.keys() & {*other.copies, *other.copies.values()}
    return apart and not one.moves.keys() & other.moves.keys()


def _in_hand(task: Task, certain: Callable[[Task], bool]) -> bool:
    here = all(other.started and other.section is task.section for other in task.waits)
    return here and all(certain(one) for one in (task, *task.waits))


class Schedule:
    """Opens sections as room comes free and knows which tasks are ready."""

    def __init__(self, plan: RunnablePlan, in_flight: int = IN_FLIGHT) -> None:
        self._coming, self._room = sections(plan), in_flight
        self._last: dict[str, Task] = {}
        self._count = 0
        self.open: deque[Section] = deque()

    def extend(self) -> list[Section]:
        """Open what there is room for, and return it."""
        opened: list[Section] = []
        while len(self.open) < self._room:
            following = next(self._coming, None)
            if following is None:
                break
            opened.append(self._open(*following))
        return opened

    def ready(self, certain: Callable[[Task], bool] | None = None) -> list[Task]:
        """Tasks that wait for nothing and were not started, in declared order.

        Where ``certain`` is given, a task that it holds for may also wait for started ones of its section that it
        holds for.
        """
        waiting = [task for section in self.open for task in section.tasks if not task.started]
        return [task for task in waiting if not task.waits or (certain and _in_hand(task, certain))]

    def pending(self) -> list[Task]:
        """Every opened task that is not finished."""
        return [task for section in self.open for task in section.tasks if not task.finished]

    def finish(self, task: Task) -> None:
        """Let go of whoever waited for it."""
        task.finished = True
        for other in self.pending():
            other.waits.discard(task)

    def close(self) -> list[Section]:
        """Take the finished sections off the front, in order."""
        closed: list[Section] = []
        while self.open and self.open[0].finished:
            closed.append(self.open.popleft())
        return closed

    def is_over(self) -> bool:
        """Whether nothing is left to open, or only sections without a task. Looking takes one, so it is put back."""
        following = next(self._coming, None)
        if following is not None:
            self._coming = chain([following], self._coming)
        return following is None or (following[0] == "end" and not following[1].phases)

    def in_flight(self) -> Section | None:
        """The latest opened section of which something was started."""
        return next((section for section in reversed(self.open) if section.started), None)

    def cut(self, section: Section) -> list[Task]:
        """Forget everything after ``section``; returns the tasks that will not run."""
        dropped: list[Task] = []
        while self.open and self.open[-1] is not section:
            gone = self.open.pop()
            dropped += gone.tasks
            self._last = gone.earlier
        self._coming = iter(())
        return dropped

    def follow(self, rest: Iterable[tuple[str, CompiledStep]]) -> None:
        """Run these after what is open."""
        self._coming = iter(rest)

    def replace(self, section: Section, compiled: CompiledStep) -> tuple[list[Task], list[Task]]:
        """Put another plan of the same step in place of what was not started: returns (dropped, new) tasks.

        The new tasks wait for all that is running and all of the steps before: fewer edges are known across two plans.
        """
        dropped = [task for task in section.tasks if not task.started]
        stay = [task for task in section.tasks if task.started]
        ran = {phase.name for task in stay for phase in task.phases}
        earlier = {task for one in self.open if one is not section for task in one.tasks if not task.finished}
        section.compiled, section.tasks = compiled, stay
        self._last = section.earlier | {phase.name: task for task in stay for phase in task.phases}
        wall = earlier | {task for task in stay if not task.finished}
        new = self._add(section, [phase for phase in compiled.phases if phase.name not in ran], ran)
        for task in new:
            task.waits |= wall
        return dropped, new

    def _open(self, label: str, compiled: CompiledStep) -> Section:
        self._last = {name: task for name, task in self._last.items() if not task.finished}  # else all would be held
        section = Section(self._count, label, compiled, dict(self._last))
        self._count += 1
        self.open.append(section)
        self._add(section, compiled.phases, set())
        return section

    def _add(self, section: Section, phases: Sequence[Planned], ran: set[str]) -> list[Task]:
        new = [Task(section, group) for group in grouped(phases)]
        here: dict[str, Task] = {}
        for task in new:
            # One by one: a phase that runs ahead by two comes twice before the first step, the second after the first.
            mine = {phase.name: task for phase in task.phases}
            for phase in task.phases:
                before = here if phase.name in here else mine | here
                task.waits |= {other for name in phase.after for other in self._found(name, phase, before, ran)}
            task.waits.discard(task)
            here |= mine
        section.tasks += new
        self._last |= here
        return new

    def _found(self, name: str, phase: Planned, here: dict[str, Task], ran: set[str]) -> list[Task]:
        if name.endswith(PREVIOUS):
            task = self._last.get(name.removesuffix(PREVIOUS))
            return [task] if task is not None and not task.finished else []
        if name not in here and name not in ran:
            raise GraphError(f"{phase.name}: waits for {name!r}, which is not in its step{did_you_mean(name, here)}")
        return [here[name]] if name in here else []
