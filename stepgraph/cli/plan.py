"""``stepgraph plan``: what will run, for people (text), for programs (json), and call by call (calls)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from stepgraph.cli.inputs import plan_of
from stepgraph.cli.job import Job
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.views.table import plan_text


def plan(job: Job) -> int:
    """Print the plan in the format asked for."""
    lines = _format(job.config.format)
    for line in lines(plan_of(job), job):
        print(line)
    return 0


def _format(name: str) -> Lines:
    if name not in FORMATS:
        raise ConfigError(
            f"format={name}: there is no format '{name}'{did_you_mean(name, FORMATS)} (known: {', '.join(FORMATS)})"
        )
    return FORMATS[name]


def _text(plan: Plan, job: Job) -> Iterable[str]:
    return [plan_text(plan, job.overrides)]


def _json(plan: Plan, job: Job) -> Iterable[str]:
    return [json.dumps(plan.to_dict(), indent=2)]


def _calls(plan: Plan, job: Job) -> Iterable[str]:
    return map(json.dumps, plan.iter_calls())


Lines = Callable[[Plan, Job], Iterable[str]]
FORMATS: dict[str, Lines] = {"text": _text, "json": _json, "calls": _calls}
