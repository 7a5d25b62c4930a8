"""``stepgraph check``: what can be found wrong without starting anything, one line for each thing that is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepgraph.cli.inputs import graph_of, plan_of, refuse_missing_targets
from stepgraph.cli.job import Job
from stepgraph.cli.targets import TARGET, importable
from stepgraph.compiler.plan import Plan
from stepgraph.data.check import check_data
from stepgraph.runtime.rundir import prepare_run_dir
from stepgraph.runtime.tracking import tracker_of

NAMED = ("engine", "trainer", "rewards", "data", "executor")


def check(job: Job) -> int:
    """Check each thing and say that it is well; the first that is not is an error."""
    for thing, finding in _findings(job):
        print(f"ok  {thing:<10} {finding}")
    print("Nothing was started.")
    return 0


def _findings(job: Job) -> Iterator[tuple[str, str]]:
    refuse_missing_targets(graph_of(job))
    plan = plan_of(job)
    yield "graph", f"{plan.graph.name}: {len(plan.graph.step)} phases, {len(plan.graph.resources)} resources"
    yield "placement", _placement(job, plan)
    yield "run", _run(plan)
    if job.config.run.dir is not None:
        yield "run.dir", str(prepare_run_dir(job.config.run.dir, resume=job.config.resume is not None).path)
    check_data(job.config.data)
    yield "data", str(job.config.data["task"])
    for name in NAMED:
        section: Mapping[str, Any] = getattr(job.config, name)
        if TARGET in section:
            yield name, importable(name, str(section[TARGET]))
    if tracker_of(job.config.tracker) is not None:
        yield "tracker", str(job.config.tracker[TARGET])


def _placement(job: Job, plan: Plan) -> str:
    rooms = [f"{leaves} for {', '.join(stay)}" for leaves, stay in plan.graph.placement.makes_room]
    return f"{job.choices.get('placement', 'none')}: " + ("; ".join(rooms) if rooms else "nobody makes room")


def _run(plan: Plan) -> str:
    count = max(plan.steps - plan.first, 0)
    return f"{count} steps in {len(plan.variants)} variants"
