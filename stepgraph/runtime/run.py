"""``run``: the one entry. Checks, builds what the plan uses, opens the run directory, executes, says how it ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from stepgraph.errors import ConfigError
from stepgraph.ir.graph import Graph
from stepgraph.runtime.bind import bind
from stepgraph.runtime.build import build_components
from stepgraph.runtime.call import Retried
from stepgraph.runtime.checkpoint import Checkpoint
from stepgraph.runtime.ending import OnStop
from stepgraph.runtime.gates import check_gates
from stepgraph.runtime.journal import Journal, Watch
from stepgraph.runtime.local import LocalExecutor, Settings
from stepgraph.runtime.plans import RunnablePlan, empty
from stepgraph.runtime.report import Report, last_lines
from stepgraph.runtime.result import Result
from stepgraph.runtime.rundir import Prepared, prepare_run_dir
from stepgraph.runtime.tracking import Tracked, Tracker, as_it_runs, checked, tracker_of
from stepgraph.runtime.workers import Crew, Hire, Threads


def run(
    plan: RunnablePlan,
    components: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    config_text: str = "",
    seed: int = 0,
    resume: bool = False,
    keep: int | None = None,
    on_stop: OnStop | None = None,
    again: str = "",
    out: TextIO | None = None,
    watch: Watch | None = None,
    tracker: Tracker | None = None,
    signals: bool = True,
    hire: Hire | None = None,
) -> Result:
    """Run a plan with these components, or with those that ``config`` describes.

    ``resume`` goes on from the latest checkpoint in ``run_dir``; the plan must start where that ends. ``keep`` is how
    many checkpoints stay. ``on_stop(step)`` gives the plan that ends with ``step``, when asked to stop early.
    ``again`` is the command that a failure names; ``watch`` gets each event as it is recorded, ``tracker`` each line of
    numbers, in place of the one that ``config`` names. ``hire`` gets ready whoever performs the calls, in place of this
    process.
    """
    report = Report(out)
    prepared = prepare_run_dir(run_dir if run_dir is not None else default_run_dir(plan), resume)
    early = nothing_to_do(plan, prepared, resume)
    if early is not None:
        report.lines(last_lines(early))
        return early
    _check_resume(plan, prepared.checkpoint)
    tracked = _tracked(plan, tracker, config or {})
    crew = (hire or Here(components, config).ready)(plan, prepared.path, seed, report)
    with closing(crew, report):
        bind(plan, crew.components)
        check_gates(plan)
        journal = Journal(prepared.path, plan, config_text, watch, tracked)
        with recorded(journal, tracked, report):
            executor = LocalExecutor(
                plan,
                crew.components,
                journal,
                report=report,
                settings=Settings(seed=seed, keep=keep, again=again, signals=signals),
                checkpoint=prepared.checkpoint,
                on_stop=on_stop,
                workers=crew.workers,
            )
            result = executor.run()
            tracked.finish(result.status)
            result = replace(result, warnings=(*result.warnings, *tracked.warnings))
            _finish(result, journal)
    report.lines(last_lines(result))
    return result


def default_run_dir(plan: RunnablePlan) -> Path:
    """A fresh directory for a run that was given none."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    return Path("runs") / plan.graph.name / stamp


def nothing_to_do(plan: RunnablePlan, prepared: Prepared, resume: bool) -> Result | None:
    """The result of a run that has nothing to run, which leaves no trace; else ``None``."""
    done = prepared.checkpoint.state.completed if prepared.checkpoint else 0
    if prepared.finished and prepared.result:
        done = max(done, int(prepared.result.get("completed_steps", 0)))
    if resume and done and done >= plan.steps:
        return Result("already_complete", first=plan.steps, total=plan.steps, run_dir=prepared.path)
    return Result("completed", first=plan.first, total=plan.steps) if empty(plan) else None


def _check_resume(plan: RunnablePlan, checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        return
    state = checkpoint.state
    if state.graph != plan.graph.name:
        raise ConfigError(
            f"{checkpoint.path}: saved by graph {state.graph!r}, not {plan.graph.name!r}; choose another run.dir"
        )
    if state.completed != plan.first:
        raise ConfigError(
            f"{checkpoint.path}: {state.completed} steps are done, but the plan starts with step {plan.first} "
            f"(counted from 0); compile it with first={state.completed}"
        )


@contextmanager
def closing(crew: Crew, report: Report) -> Iterator[None]:
    try:
        yield
    finally:
        crew.close(report)


@contextmanager
def recorded(journal: Journal, tracked: Tracked, report: Report) -> Iterator[None]:
    """Both records are closed, whatever happens; a tracker that hears of no end is told of a failure."""

    def warn(text: str) -> None:
        journal.event("warning", text=text)
        report.line(f"warning: {text}")

    try:
        tracked.start(journal.run_dir, warn)
        yield
    finally:
        tracked.finish("failed")
        journal.close()


def _tracked(plan: RunnablePlan, tracker: Tracker | None, config: Mapping[str, Any]) -> Tracked:
    """The tracker, made before anything is started, as it may want what is not installed."""
    given = checked(tracker, type(tracker).__name__) if tracker is not None else None
    return Tracked(given or tracker_of(config.get("tracker") or {}), as_it_runs(config, plan.first, plan.steps))


class Here:
    """The components as they were given, or built from a configuration, called by threads of this process."""

    def __init__(self, components: Mapping[str, Any] | None, config: Mapping[str, Any] | None) -> None:
        if components is None and config is None:
            raise ConfigError("nothing to run with: give components, or a config to build them from")
        self._config = config or {}
        self._owned = components is None
        self.components: Mapping[str, Any] = components or {}

    def ready(self, plan: RunnablePlan, run_dir: Path, seed: int, report: Report) -> Here:
        if self._owned:
            self.components = build_components(self._config, plan, run_dir, seed)
        return self

    def workers(self, graph: Graph, retried: Retried) -> Threads:
        return Threads(graph, self.components, retried)

    def close(self, report: Report) -> None:
        if self._owned:
            close_all(self.components, report)


def _finish(result: Result, journal: Journal) -> None:
    ended = {
        "status": result.status,
        "completed_steps": result.first + result.steps,
        "steps": result.total,
        "pruned": result.pruned,
        "saved_s": result.saved.seconds,
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "owed": list(result.owed),
        "error": result.failure.message if result.failure else None,
    }
    journal.event("finish", **ended)
    journal.result(**ended)


def close_all(components: Mapping[str, Any], report: Report) -> None:
    """Components that were built here are closed here, each once; a failure to close hides nothing."""
    for name, component in components.items():
        close = getattr(component, "close", None)
        try:
            if callable(close):
                close()
        except Exception as error:
            report.line(f"warning: closing {name} failed: {type(error).__name__}: {error}")
