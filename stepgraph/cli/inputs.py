"""From a job's configuration to the graph and the plan: what every command starts with."""

from __future__ import annotations

import sys
from typing import Any

from stepgraph.cli.job import Job
from stepgraph.compiler.compile import compile as compile_graph
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, GraphError
from stepgraph.ir.graph import Graph
from stepgraph.paths import graph_file, shown
from stepgraph.spec import parse

DEFAULT_STEPS = 100
"""The length of a run of which nothing says how long it is, so that a bare ``plan`` shows something."""


def graph_of(job: Job) -> Graph:
    """The graph that the configuration declares, with its placement and run."""
    config = job.config
    placement = {"name": job.choices.get("placement", ""), **config.placement}
    return parse(config.graph, placement, run_length(job), max_staleness=config.max_staleness, source=source(job))


def plan_of(job: Job) -> Plan:
    """The compiled plan, its warnings told."""
    plan = compiled(graph_of(job), job)
    warn_of(plan, job)
    return plan


def compiled(graph: Graph, job: Job, steps: int | None = None, first: int | None = None) -> Plan:
    """Compile with the passes of the configuration."""
    return compile_graph(graph, steps=steps, first=first, passes=tuple(job.config.passes))


def warn_of(plan: Plan, job: Job) -> None:
    """Print the plan's warnings on stderr; where the configuration is strict, the first one is an error."""
    for warning in plan.warnings:
        if job.config.strict:
            raise GraphError(f"{warning} (strict=true makes this warning an error)")
        print(f"stepgraph: warning: {warning}", file=sys.stderr)


def refuse_missing_targets(graph: Graph) -> None:
    """A plan may be made without a function that is not here; a run may not be started."""
    for missing in graph.missing:
        raise ConfigError(missing)


def run_length(job: Job) -> dict[str, Any]:
    """The part of the run section that the graph is compiled for."""
    run = job.config.run
    bounded = run.steps is not None or run.epochs is not None
    return {
        "steps": run.steps if bounded else DEFAULT_STEPS,
        "first": run.first,
        "epochs": run.epochs,
        "steps_per_epoch": run.steps_per_epoch,
        "extend": run.extend,
    }


def source(job: Job) -> str:
    """The file the graph was read from, as people read it."""
    path = graph_file(job.choices.get("graph", ""))
    return shown(path) if path else ""
