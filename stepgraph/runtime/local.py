"""Runs a plan: each phase as soon as what it waits for is done, on whatever workers there are.

All state is changed by the loop in ``run`` alone; the workers run bodies and report back through one queue. Workers
that keep an order themselves get the calls of a step at once, as far as it is certain what each one will leave behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import current_thread
from typing import Any
from weakref import WeakSet

from stepgraph.errors import RunError
from stepgraph.ir.graph import Graph
from stepgraph.runtime.bind import bind
from stepgraph.runtime.call import Call, Outcome, Retried, staleness
from stepgraph.runtime.checkpoint import Checkpoint, RunState
from stepgraph.runtime.context import RunContext, seed_of
from stepgraph.runtime.contract import Stream
from stepgraph.runtime.ending import Ending, OnStop
from stepgraph.runtime.gates import Gates
from stepgraph.runtime.held import Held
from stepgraph.runtime.journal import Journal
from stepgraph.runtime.mirror import Mirror, Values
from stepgraph.runtime.onward import movers, rest
from stepgraph.runtime.plans import RunnablePlan, held, named
from stepgraph.runtime.record import Recorder, one_line, own_line, where
from stepgraph.runtime.report import Report
from stepgraph.runtime.result import Failure, Result
from stepgraph.runtime.resume import ends, restored, streams_of, used_up
from stepgraph.runtime.saving import Part, Saving
from stepgraph.runtime.schedule import Schedule, Scope, Section, Task, after_start
from stepgraph.runtime.stop import StopSignals
from stepgraph.runtime.workers import NotRun, Reported, Threads, Workers

HEARTBEAT = 0.02
"""Seconds between two looks at signals."""

Message = tuple[Call, Outcome] | str
"""A call that is over, or why the run is asked to stop."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is told besides its plan. ``keep``: how many checkpoints stay; ``again``: the command that goes on."""

    seed: int = 0
    keep: int | None = None
    again: str = ""
    signals: bool = True


class LocalExecutor:
    """One run of one plan. Everything the plan names is resolved when this is made."""

    def __init__(
        self,
        plan: RunnablePlan,
        components: Mapping[str, Any],
        journal: Journal,
        *,
        report: Report | None = None,
        settings: Settings = Settings(),
        checkpoint: Checkpoint | None = None,
        on_stop: OnStop | None = None,
        workers: Callable[[Graph, Retried], Workers] | None = None,
    ) -> None:
        self._binding = bind(plan, components)
        self._plan, self._components, self._journal = plan, components, journal
        self._report, self._settings = report or Report(), settings
        self._safe = checkpoint
        self._record = Recorder(plan, journal, self._report)
        self._gates = Gates(plan, journal.run_dir, lambda: self._record.latest)
        hired = workers or (lambda graph, retried: Threads(graph, components, retried))
        self._workers = hired(plan.graph, self._retried)
        # The step after one that may move things is planned when that is known, and cannot begin before.
        self._movers = movers(plan.graph)
        self._schedule = Schedule(plan, 1) if self._movers else Schedule(plan)
        self._values, self._held = Values(plan.graph), Held(plan.graph)
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._running: dict[Task, float | None] = {}
        """What was handed over and is not finished, and when it began; ``None``: it waits for others of these."""
        self._foreseen: set[Task] = set()
        self._early: list[tuple[Outcome, Call | None]] = []
        self._savings: dict[tuple[int, Scope, frozenset[str]], Saving] = {}
        self._owed: list[str] = []
        self._slow: WeakSet[Task] = WeakSet()
        self._failure: Failure | None = None
        self._ending = Ending(plan, self._schedule, self._values, self._record, on_stop=on_stop, adopt=self._adopt)
        self._streams: dict[str, Stream] = {}
        self._mirror: Mirror

    def run(self) -> Result:
        """Run it all. What fails is told in the result, not raised."""
        resumed = str(self._safe.path) if self._safe else None
        self._journal.event(
            "run", graph=self._plan.graph.name, first=self._plan.first, steps=self._plan.steps, resumed=resumed
        )
        try:
            self._streams = streams_of(self._plan, self._components)
            self._mirror = restored(self._plan, self._components, self._streams, self._safe)
            if self._safe:
                self._held.load(self._safe.path, self._safe.state.step)
        except Exception as error:
            self._failure = self._failed("loading the checkpoint" if self._safe else "preparing", "", None, error)
            return self._result()
        with StopSignals(self.stop, self._last_words) if self._settings.signals else nullcontext(), self._gates:
            self._loop()
        return self._result()

    def stop(self, why: str = "asked to stop") -> None:
        """Ask the run to stop after the step in flight. May be called from any thread, or from a signal."""
        self._inbox.put(why)

    def held(self) -> list[tuple[str, Scope]]:
        """The values that are in memory now, by name and step."""
        return self._values.held()

    def _loop(self) -> None:
        try:
            while True:
                self._open_and_close()
                self._start_ready()
                if not self._running:
                    break
                self._wait()
        finally:
            self._workers.finish()
        self._hold(
            (scope, saving) for (_, scope, _), saving in self._savings.items()
        )  # who has not changed it will not
        stuck = ", ".join(task.name for task in self._schedule.pending())
        if stuck and not self._failure:
            self._failure = self._failed(stuck, "", None, RunError("these phases wait for each other"))

    def _wait(self) -> None:
        """Take the next message. A signal may land on any thread, and its handler waits for this one to wake up."""
        try:
            message = self._inbox.get(timeout=HEARTBEAT)
        except Empty:
            self._look_at_slow()
            return
        self._take(message)

    def _look_at_slow(self) -> None:
        now = time.monotonic()
        for task, began in self._begun().items():
            if task not in self._slow and self._record.is_slow(task, now - began):
                self._slow.add(task)
                self._record.slow(
                    task, now - began, [one.name for one in self._schedule.pending() if task in one.waits]
                )

    def _begun(self) -> dict[Task, float]:
        return {task: began for task, began in self._running.items() if began is not None}

    def _take(self, message: Message) -> None:
        if isinstance(message, str):
            self._asked_to_stop(message)
        else:
            self._finished(message[1], message[0])

    def _open_and_close(self) -> None:
        changed = not self._failure
        while changed:
            opened, closed = self._schedule.extend(), self._schedule.close()
            for section in opened:
                self._values.expect(section, section.tasks)
            for section in closed:
                self._close(section)
            changed = bool(opened or closed)

    def _close(self, section: Section) -> None:
        self._record.close(section, self._begun())
        over = [key for key in self._savings if key[0] <= section.index]
        self._hold((key[1], self._savings.pop(key)) for key in over)
        self._values.drop_step(section)
        moved = any(planned.name in self._movers for task in section.tasks for planned in task.phases)
        if moved and section.step is not None and not self._failure and not self._ending.why:
            self._go_on_from(section.step + 1)

    def _go_on_from(self, step: int) -> None:
        """Compile what is left again, now that it is known what fired."""
        plan = rest(self._plan, step, self._mirror)
        if plan is not None:
            self._adopt(plan)
            self._schedule.follow(after_start(plan))
            self._journal.event("compiled", step=step, places=dict(self._mirror.places))

    def _start_ready(self) -> None:
        while not self._failure and (ready := self._schedule.ready(self._is_certain if self._workers.chains else None)):
            for task in ready:
                if not self._failure:
                    self._start(task)
            self._open_and_close()  # a phase that was refused at once is over, and may free others

    def _start(self, task: Task) -> None:
        task.started, began = True, time.monotonic()
        if not self._gates.fires(task.head.name, task.section.works_for(task.head)):
            self._passed_over(task)
            return
        self._running[task] = None
        if not task.waits:
            self._begin(task, began)
        try:
            call = self._prepared(task)
            handed = self._workers.submit(call, list(task.waits))
        except Exception as error:
            self._finished(Outcome(task, began, began, current_thread().name, error=error), None)
            return
        if self._workers.chains and self._is_certain(task):
            self._foresee(task, call, handed.values)
        handed.outcome.add_done_callback(partial(self._report_back, call))

    def _begin(self, task: Task, now: float) -> None:
        self._running[task] = now
        self._record.started(task)

    def _is_certain(self, task: Task) -> bool:
        """Whether it is known what a task will leave behind, unless it ends the run."""
        if task.head.phase.on_error == "warn" or not self._gates.decided(task.head.name):
            return False
        if any(outcome.task is task for outcome, _ in self._early):
            return False
        taken = named(self._plan.graph, task.head.updates, "stream")
        return not any(ends(self._streams[name]) for name in taken)

    def _foresee(self, task: Task, call: Call, values: Mapping[str, Any]) -> None:
        """Take for done what a task will do, so that those that wait for it can be handed over, too."""
        self._foreseen.add(task)
        self._mirror.done(task.phases, call.after)
        self._keep(task, values)

    def _keep(self, task: Task, values: Mapping[str, Any]) -> None:
        """Take what a phase gave, or what stands for it."""
        scope = task.section.scope(task.head)
        for name, contents in values.items():
            if name in self._held.names:
                self._held.put(name, self._time(scope), contents)
            else:
                self._values.put(name, scope, contents)

    def _time(self, scope: Scope) -> int:
        """A step's number; ``start`` comes before the first one, ``end`` after the last."""
        if isinstance(scope, int):
            return scope
        return self._plan.steps if scope == "end" else self._plan.first - 1

    def _passed_over(self, task: Task) -> None:
        """Its gate, which only the run could decide, stayed closed."""
        self._record.passed_over(task)
        self._lose_values(task, "which was not due")
        self._saving(task).leave(task.head.name, failed=False)
        self._schedule.finish(task)
        self._values.forget(task.section, [task])

    def _lose_values(self, task: Task, why: str) -> None:
        for name in named(self._plan.graph, task.head.writes, "value"):
            self._values.lose(name, task.section.scope(task.head), f"{task.head.name}, {why}")

    def _report_back(self, call: Call, future: Future[Outcome]) -> None:
        self._inbox.put((call, future.result()))

    # Before a call, and after it

    def _prepared(self, task: Task) -> Call:
        head, section, graph = task.head, task.section, self._plan.graph
        self._mirror.check_places(task.phases)
        scope, wanted = section.scope(head), tuple(dict.fromkeys((*head.reads, *head.updates)))
        streams = {name: self._streams[name] for name in named(graph, wanted, "stream")}
        values = {name: self._values.get(name, scope, head.name) for name in named(graph, wanted, "value")}
        return Call(
            task=task,
            bound=self._binding.of(head),
            context=self._context(task, section.works_for(head), scope),
            contents={**values, **streams, **self._held.given(wanted)},
            streams={name: stream for name, stream in streams.items() if name in head.updates},
            versions=dict(self._mirror.versions),
            after=self._mirror.versions_after(task.phases),
            places=dict(self._mirror.places),
        )

    def _context(self, task: Task, step: int | None, scope: Scope) -> RunContext:
        name, saving = task.head.name, self._saving(task)
        folder = self._binding.of(task.head).component or name
        return RunContext(
            step=step,
            phase=name,
            run_dir=self._journal.run_dir,
            seed=seed_of(self._settings.seed, name, step),
            components=self._components,
            record=partial(self._record.logged, scope),
            saver=Part(saving, name, folder, self._state(step, self._mirror.versions)),
            hooks=self._binding.hooks_of(task.head),
        )

    def _state(self, step: int | None, versions: Mapping[str, int]) -> RunState:
        done = self._plan.first + self._record.done - 1 if step is None else step
        cursors = self._mirror.consumed(done)
        return RunState(done, done + 1, cursors, dict(versions), self._settings.seed, self._plan.graph.name)

    def _saving(self, task: Task) -> Saving:
        """The checkpoint that a phase takes part in: one for all the phases of a step that write the same sinks."""
        scope, sinks = task.section.scope(task.head), self._sinks(task)
        key = (task.section.index, scope, sinks or frozenset({task.name}))
        if key not in self._savings:
            same = [
                one for one in task.section.tasks if task.section.scope(one.head) == scope and self._sinks(one) == sinks
            ]
            names = {one.head.name for one in same} if sinks else {task.head.name}
            holds = bool(self._held.names)
            self._savings[key] = Saving(self._journal.run_dir, names, self._settings.keep, self._committed, holds)
        return self._savings[key]

    def _sinks(self, task: Task) -> frozenset[str]:
        return frozenset(named(self._plan.graph, task.head.writes, "sink"))

    def _finished(self, outcome: Outcome, call: Call | None) -> None:
        task = outcome.task
        if self._running[task] is None and not self._failure:
            self._early.append((outcome, call))  # the news came before that of what it waits for
            return
        if self._running[task] is None and isinstance(outcome.error, NotRun):
            self._left_out(task)
            return
        if self._running[task] is None:
            self._begin(task, outcome.began)
        del self._running[task]
        error = self._left_saving(outcome, call)
        outcome = self._with_lasting_names(outcome)
        optional = error is not None and self._optional(task)
        self._record.ended(task, outcome, call, error, "ok" if error is None else "warned" if optional else "failed")
        if error is None and call is not None:
            self._succeeded(outcome, call)
        elif error is not None:
            (self._warned if optional else self._ended_by)(task, error)
        self._let_go(task)

    def _left_out(self, task: Task) -> None:
        """It was handed over, but the run failed before it began."""
        del self._running[task]
        self._saving(task).leave(task.head.name, failed=True)
        self._let_go(task)

    def _let_go(self, task: Task) -> None:
        """A task is over: whoever was handed over before and waited for nothing else begins now."""
        self._foreseen.discard(task)
        self._schedule.finish(task)
        self._values.forget(task.section, [task])
        self._hold(self._settled())
        for other in [other for other, began in self._running.items() if began is None and not other.waits]:
            if not self._failure:
                self._begin(other, time.monotonic())
        early, self._early = self._early, []
        for outcome, call in early:
            self._finished(outcome, call)

    def _hold(self, savings: Iterable[tuple[Scope, Saving]]) -> None:
        """Give checkpoints the run's own state. One that cannot be written ends the run."""
        real: Callable[[Any], Any] = getattr(self._workers, "fetched", lambda contents: contents)
        try:
            for scope, saving in savings:
                held_then = self._held.upto(self._time(scope))
                saving.hold({name: real(contents) for name, contents in held_then.items()})
        except (OSError, RunError) as error:
            self._failure = self._failure or self._failed("saving the state", "", None, error)

    def _settled(self) -> list[tuple[Scope, Saving]]:
        """The checkpoints of steps for which nobody changes the run's own state any more."""
        if not self._held.names:
            return []
        coming = [self._time(task.section.scope(task.head)) for task in self._schedule.pending() if self._holds(task)]
        return [
            (scope, saving)
            for (_, scope, _), saving in self._savings.items()
            if not any(step <= self._time(scope) for step in coming)
        ]

    def _holds(self, task: Task) -> bool:
        return bool(held(self._plan.graph, (*task.head.writes, *task.head.updates)))

    def _left_saving(self, outcome: Outcome, call: Call | None) -> BaseException | None:
        """A checkpoint of several parts is committed when the last phase leaves, and that may fail, too."""
        task, error = outcome.task, outcome.error
        saving, name = self._saving(task), task.head.name
        try:
            if call is not None and isinstance(outcome, Reported) and outcome.saved:
                saving.arrived(name, self._state(task.section.works_for(task.head), call.versions))
            self._hold(self._settled())
            saving.leave(name, error is not None)
        except (OSError, RunError) as failed:
            return error or failed
        return error

    def _with_lasting_names(self, outcome: Outcome) -> Outcome:
        sinks = outcome.returned.sinks
        if not sinks:
            return outcome
        return replace(outcome, returned=replace(outcome.returned, sinks=self._saving(outcome.task).lasting(sinks)))

    def _succeeded(self, outcome: Outcome, call: Call) -> None:
        task, step = outcome.task, outcome.task.section.works_for(outcome.task.head)
        scope = task.section.scope(task.head)
        self._keep(task, outcome.returned.values)
        for name, cursor in outcome.cursors.items():
            self._mirror.took(name, step, cursor)
            if used_up(self._streams[name], cursor):
                self._ran_out(task, name)
        if task not in self._foreseen:
            self._mirror.done(task.phases, call.after)
        for text in outcome.warnings:
            self._record.warn(text, task)
        old = staleness(call, self._plan.graph)
        if old is not None:
            self._record.logged(scope, {"staleness": old})

    def _optional(self, task: Task) -> bool:
        """Declared so; or a handoff that only optional phases still want, all the work that must be done being done."""
        if task.head.phase.on_error == "warn":
            return True
        left = [other for other in self._schedule.pending() if other is not task]
        spare = all(other.head.phase.on_error == "warn" or _serves(other) for other in left)
        return _serves(task) and bool(left) and spare and self._schedule.is_over()

    def _warned(self, task: Task, error: BaseException) -> None:
        self._lose_values(task, "which failed")
        for name in named(self._plan.graph, task.head.updates, "value"):
            self._values.lose(name, task.section.scope(task.head), f"{task.head.name}, which failed")
        place = where(task, self._plan.steps)
        self._owed.append(f"{task.name} in {place}")
        self._record.warn(f"{task.name} in {place} failed and is optional: {one_line(error)}", task)

    def _ended_by(self, task: Task, error: BaseException) -> None:
        if self._failure:
            return
        self._failure = self._failed(task.name, where(task, self._plan.steps), task.section.works_for(task.head), error)
        self._workers.take_back([other for other, began in self._running.items() if began is None])
        if self._begun():
            waited = ", ".join(other.name for other in self._begun())
            self._report.line(f"{task.name} failed; nothing new is started, waiting for {waited}")

    def _failed(self, phase: str, place: str, step: int | None, error: BaseException) -> Failure:
        run_dir = self._journal.run_dir
        return Failure(
            phase=phase,
            step=step,
            place=place,
            at=own_line(error),
            error=error,
            before=tuple(self._record.before),
            log=str(run_dir / "events.jsonl"),
            go_on=self._settings.again or f"stepgraph run run.dir={run_dir} resume=auto",
        )

    def _what_is_safe(self) -> str:
        """Asked when all is over: a save that was running when something else failed may have come through."""
        if self._safe is None:
            return "nothing was saved"
        return f"{self._safe.path} (after {self._safe.state.completed} of {self._plan.steps} steps)"

    # Stopping

    def _asked_to_stop(self, why: str) -> None:
        section = self._schedule.in_flight()
        if self._ending.why or self._failure or section is None or section.label == "end":
            return
        self._journal.event("stop", why=why, step=section.step)
        place = section.label if section.step is None else f"step {section.step + 1}"
        self._report.line(f"{why}: finishing {place} (a second signal ends it at once)")
        if section.step != self._plan.steps - 1:
            self._ending.after(section, why)

    def _ran_out(self, task: Task, stream: str) -> None:
        """Nothing is left to take: the step that took the last of it is the last step."""
        section, step = task.section, task.section.works_for(task.head)
        if self._ending.why or self._failure or step is None or not self._ending.takes(stream, step + 1):
            return
        why = f"{stream} ran out"
        self._journal.event("stop", why=why, step=step)
        self._report.line(f"{why}: step {step + 1} is the last one")
        self._ending.with_step(section, step, why)

    def _adopt(self, plan: RunnablePlan) -> None:
        """Get ready to run a plan that goes on in this one's place."""
        self._binding = self._binding.joined(bind(plan, self._components))
        self._streams = {**streams_of(plan, self._components, self._streams), **self._streams}

    # Records

    def _committed(self, path: Path, state: RunState) -> None:
        self._safe = Checkpoint(path, state)
        self._journal.event("checkpoint", step=state.step, completed=state.completed, path=str(path))

    def _retried(self, call: Call, attempt: int, error: BaseException) -> None:
        step = call.task.section.works_for(call.head)
        self._journal.event("retry", phase=call.task.name, step=step, attempt=attempt, error=one_line(error))

    def _last_words(self) -> None:
        self._journal.last_words("second signal: ended at once")

    def _result(self) -> Result:
        record = self._record
        return Result(
            status=self._status(),
            first=self._plan.first,
            steps=record.done,
            total=self._plan.steps,
            run_dir=self._journal.run_dir,
            pruned=record.tally.pruned,
            saved=record.tally.saved(record.clock.median),
            seconds=self._journal.now(),
            warnings=tuple(record.warnings),
            owed=tuple(self._owed),
            failure=self._failure and replace(self._failure, safe=self._what_is_safe()),
        )

    def _status(self) -> str:
        if self._failure:
            return "failed"
        if self._ending.why and self._plan.first + self._record.done < self._plan.steps:
            return "stopped"
        return "completed_with_warnings" if self._owed else "completed"


def _serves(task: Task) -> bool:
    """Whether it only hands over to somebody, so that it is wanted no more than they are."""
    return all(planned.kind == "handoff" and planned.why != "kept_at_end" for planned in task.phases)
