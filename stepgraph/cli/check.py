"""``stepgraph check``: what can be found wrong without starting anything, one line for each thing that is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import util
from typing import Any

from stepgraph.cli.inputs import plan_of
from stepgraph.cli.job import Job
from stepgraph.compiler.plan import Plan
from stepgraph.data.check import check_data
from stepgraph.errors import ConfigError

COMPONENTS = ("engine", "trainer", "rewards", "data")
TARGET = "_target_"


def check(job: Job) -> int:
    """Check each thing and say that it is well; the first that is not is an error."""
    for thing, finding in _findings(job):
        print(f"ok  {thing:<10} {finding}")
    print("Nothing was started.")
    return 0


def _findings(job: Job) -> Iterator[tuple[str, str]]:
    plan = plan_of(job)
    yield "graph", f"{plan.graph.name}, {len(plan.graph.step)} phases, {len(plan.graph.resources)} resources"
    yield "placement", _placement(job, plan)
    yield "run", f"steps {plan.first} to {plan.steps - 1}" if plan.steps > plan.first else "0 steps"
    check_data(job.config.data)
    yield "data", str(job.config.data.get("task", job.choices.get("data", "")))
    for name in (*COMPONENTS, "executor", "tracker"):
        section: Mapping[str, Any] = getattr(job.config, name)
        if TARGET in section:
            yield name, importable(name, str(section[TARGET]))


def _placement(job: Job, plan: Plan) -> str:
    rooms = plan.graph.placement.makes_room
    return f"{job.choices.get('placement', 'none')}, {len(rooms)} " + ("make room" if len(rooms) != 1 else "makes room")


def importable(name: str, target: str) -> str:
    """Find the module of a target without importing it: that could take torch and its seconds."""
    module = target.rpartition(".")[0]
    if not module:
        raise ConfigError(f"{name}.{TARGET}={target} is no dotted path: write package.module.Class")
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        _find(name, target, ".".join(parts[:end]))
    return target


def _find(name: str, target: str, module: str) -> None:
    try:
        found = util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{name}.{TARGET}={target}: {error}") from error
    if found is None:
        raise ConfigError(f"{name}.{TARGET}={target}: there is no module '{module}'; install it, or mend the name")
