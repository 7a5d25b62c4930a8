"""``stepgraph check``: what can be found wrong without starting anything, one line for each thing that is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from stepgraph.cli.inputs import graph_of, plan_of, refuse_missing_targets
from stepgraph.cli.job import Job
from stepgraph.cli.targets import TARGET, importable
from stepgraph.compiler.plan import Plan
from stepgraph.data.check import check_data
from stepgraph.runtime.build import check_functions, target_of, wanted
from stepgraph.runtime.plans import kept
from stepgraph.runtime.rundir import prepare_run_dir
from stepgraph.runtime.tracking import tracker_of

CHOSEN = ("engine", "trainer", "rewards", "data", "executor", "transport")
"""Groups whose choice is checked, whether the graph uses it or not."""


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
    yield from _parts(asdict(job.config), plan)
    if tracker_of(job.config.tracker) is not None:
        yield "tracker", str(job.config.tracker[TARGET])


def _parts(config: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, str]]:
    """What is chosen, the components that the plan uses, and whether its functions can be called with what they get."""
    names = wanted(config, plan)
    chosen = [name for name in CHOSEN if config[name].get(TARGET)]
    for name in dict.fromkeys((*chosen, *names)):
        target = target_of(config, name)
        yield name, importable(name, target)
    check_functions(plan, dict.fromkeys(names))
    functions = {phase.use for phase in kept(plan) if phase.phase.component not in names}
    if functions:
        yield "functions", ", ".join(sorted(functions))


def _placement(job: Job, plan: Plan) -> str:
    rooms = [f"{leaves} for {', '.join(stay)}" for leaves, stay in plan.graph.placement.makes_room]
    return f"{job.choices.get('placement', 'none')}: " + ("; ".join(rooms) if rooms else "nobody makes room")


def _run(plan: Plan) -> str:
    count = max(plan.steps - plan.first, 0)
    return f"{count} steps in {len(plan.variants)} variants"
