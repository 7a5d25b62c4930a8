"""Turns what happens in a run into events, metrics, lines and the trace. Decides nothing."""

from __future__ import annotations

import sysconfig
import traceback
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from stepgraph.ir.plan import Planned
from stepgraph.paths import shown
from stepgraph.runtime.call import Call, Outcome
from stepgraph.runtime.journal import Journal
from stepgraph.runtime.plans import RunnablePlan
from stepgraph.runtime.report import Report, outer_line, place_of, span, step_line
from stepgraph.runtime.schedule import Scope, Section, Task
from stepgraph.runtime.tally import Tally
from stepgraph.runtime.timing import Clock, Ran, StepTime
from stepgraph.runtime.trace import Tracer

OURS = Path(__file__).resolve().parents[1]
LIBRARIES = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")})
SLOW, SLOW_FROM = 5, 1.0
"""A phase that runs this many times its median, and this many seconds at least, is reported."""


class Recorder:
    """The only writer of a run's journal and report, apart from ``checkpoint`` and ``retry`` events."""

    def __init__(self, plan: RunnablePlan, journal: Journal, report: Report) -> None:
        self._journal, self._report = journal, report
        self._trace = Tracer(plan.graph, journal.trace)
        self._total = plan.steps
        self._handoffs = frozenset(phase.name for phase in plan.graph.step if phase.handoff)
        self._metrics: dict[Scope, dict[str, float]] = {}
        self._lock = Lock()
        self.clock, self.tally = Clock(journal.began), Tally()
        self.before: deque[tuple[str, float]] = deque(maxlen=3)
        self.warnings: list[str] = []
        self.latest: dict[str, float] = {}
        self.done = 0

    def logged(self, scope: Scope, metrics: Mapping[str, float]) -> None:
        """Keep numbers until their step is done. Called from any thread."""
        with self._lock:
            self.latest = {**self.latest, **metrics}
            self._metrics.setdefault(scope, {}).update(metrics)

    def started(self, task: Task) -> None:
        self._trace.began(task)
        for planned in task.phases:
            self._journal.event("start", **_about(task, planned), use=planned.use)

    def passed_over(self, task: Task) -> None:
        self._journal.event("skip", **_about(task, task.head), why="its gate stayed closed")

    def ended(self, task: Task, outcome: Outcome, call: Call | None, error: BaseException | None, word: str) -> None:
        """A call is over; each of its phases gets an event of its own."""
        share = outcome.seconds / len(task.phases)
        self._trace.ended(task, outcome.ended, word, outcome.returned.bytes)
        for planned in task.phases:
            self._journal.event(
                "end", **_about(task, planned), outcome=word, **_found(planned, outcome, call), **_why(error)
            )
            if error is None:
                self.clock.add(ran_of(task, planned, outcome.began, outcome.ended, share))
                self.before.append((planned.name, share))

    def say(self, text: str) -> None:
        self._report.line(text)

    def slow(self, task: Task, seconds: float, waiting: list[str]) -> None:
        """A call takes far longer than it used to: say so while there is still time to look."""
        usual = sum(self.clock.median(planned.name) or 0.0 for planned in task.phases)
        waits = f"; {', '.join(waiting)} waits for it" if waiting else ""
        text = f"{task.name} in {where(task, self._total)} has run for {span(seconds)}, usually {span(usual)}{waits}"
        self._journal.event("slow", text=text, **_about(task, task.head))
        self._report.line(f"warning: {text}")

    def is_slow(self, task: Task, seconds: float) -> bool:
        usual = [self.clock.median(planned.name) for planned in task.phases]
        return None not in usual and seconds > max(SLOW_FROM, SLOW * sum(one or 0.0 for one in usual))

    def warn(self, text: str, task: Task | None = None) -> None:
        self.warnings.append(text)
        about = _about(task, task.head) if task else {}
        self._journal.event("warning", text=text, **about)
        self._report.line(f"warning: {text}")

    def close(self, section: Section, running: Mapping[Task, float]) -> None:
        """A section is done: its numbers are written and its line is printed."""
        going_on = [ran_of(task, task.head, began, float("inf"), 0.0) for task, began in running.items()]
        time = self.clock.close(section.index, going_on)
        with self._lock:
            logged = self._metrics.pop(section.label if section.step is None else section.step, {})
        if section.step is None:
            self._close_outer(section, time, logged)
        else:
            self._close_step(section, section.step, time, logged)

    def _close_step(self, section: Section, step: int, time: StepTime, logged: Mapping[str, float]) -> None:
        self.done += 1
        variant = section.compiled.variant
        counts = {"graph/variant": variant, "graph/pruned": self.tally.add(section.compiled, self._handoffs)}
        self._journal.metrics(step, {**timings(time), **counts, **logged})
        self._journal.event("step", step=step, variant=variant, seconds=time.seconds)
        self._report.line(step_line(step, self._total, time, logged, variant))

    def _close_outer(self, section: Section, time: StepTime, logged: Mapping[str, float]) -> None:
        if time.phases:
            self._journal.metrics(None, {"graph/section": section.label, **timings(time), **logged})
            self._report.line(outer_line(section.label, time, logged))


def timings(time: StepTime) -> dict[str, float]:
    """The metrics of a step's times."""
    found: dict[str, float] = {}
    for ran in time.phases:
        found[f"timing_s/{ran.name}"] = found.get(f"timing_s/{ran.name}", 0.0) + ran.seconds
        found[f"timing_s/exposed/{ran.name}"] = time.exposed.get(ran.name, 0.0)
    return {**found, "timing_s/step": time.seconds, "timing_s/idle": time.idle}


def ran_of(task: Task, planned: Planned, began: float, ended: float, share: float) -> Ran:
    return Ran(planned.name, task.section.index, began, ended, share, planned.kind, bool(planned.copies))


def where(task: Task, total: int) -> str:
    """The step that a task works for, in words; ``start`` and ``end`` by their names."""
    step = task.section.works_for(task.head)
    return task.section.label if step is None else place_of(step, total)


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_line(error: BaseException) -> str:
    """The last line of the user's own code that an error went through: not of ours, and not of a library."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _is_own(one.filename)]
    return f"{shown(Path(frames[-1].filename))}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""


def _is_own(file: str) -> bool:
    path = Path(file).resolve()
    return path.is_file() and not any(path.is_relative_to(one) for one in (OURS, *LIBRARIES))


def _about(task: Task, planned: Planned) -> dict[str, Any]:
    section = task.section
    about = {"phase": planned.name, "kind": planned.kind, "section": section.label, "step": section.step}
    return {**about, "for_step": section.works_for(planned), "variant": section.compiled.variant}


def _found(planned: Planned, outcome: Outcome, call: Call | None) -> dict[str, Any]:
    share = outcome.seconds / len(outcome.task.phases)
    found: dict[str, Any] = {"seconds": share, "thread": outcome.thread, "attempts": outcome.attempts}
    if len(outcome.task.phases) > 1:
        found |= {"call": [phase.name for phase in outcome.task.phases], "call_seconds": outcome.seconds}
    found |= {word: dict(parts) for word, parts in (("moves", planned.moves), ("copies", planned.copies)) if parts}
    parts = {*planned.moves, *planned.copies}
    amounts = {name: count for name, count in outcome.returned.bytes.items() if name in parts}
    return found | {word: part for word, part in _contents(planned, outcome, call, amounts).items() if part}


def _contents(planned: Planned, outcome: Outcome, call: Call | None, amounts: dict[str, int]) -> dict[str, Any]:
    before, after = (call.versions, call.after) if call else ({}, {})
    read = {name: before[name] for name in (*planned.reads, *planned.copies.values()) if name in before}
    written = {name: after[name] for name in (*planned.updates, *planned.copies) if name in after}
    sinks = {name: contents for name, contents in outcome.returned.sinks.items() if name in planned.writes}
    return {
        "bytes": amounts,
        "versions_read": read,
        "versions_written": written,
        "sinks": sinks,
        "cursors": dict(outcome.cursors),
    }


def _why(error: BaseException | None) -> dict[str, str]:
    if error is None:
        return {}
    return {"error": one_line(error), "traceback": "".join(traceback.format_exception(error))}
