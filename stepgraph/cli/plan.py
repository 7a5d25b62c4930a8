"""``stepgraph plan``: what will run, for people (text), for programs (json), and call by call (calls)."""

from __future__ import annotations

import json
from collections.abc import Callable

from stepgraph.cli.inputs import plan_of
from stepgraph.cli.job import Job
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.views.table import plan_text


def plan(job: Job) -> int:
    """Print the plan in the format asked for."""
    show = _format(job.config.format)
    print(show(plan_of(job), job))
    return 0


def _format(name: str) -> Callable[[Plan, Job], str]:
    if name not in FORMATS:
        raise ConfigError(f"format={name}: no such format{did_you_mean(name, FORMATS)}; formats: {', '.join(FORMATS)}")
    return FORMATS[name]


def _text(plan: Plan, job: Job) -> str:
    return plan_text(plan, job.overrides)


def _json(plan: Plan, job: Job) -> str:
    return json.dumps(plan.to_dict(), indent=2)


def _calls(plan: Plan, job: Job) -> str:
    return "\n".join(json.dumps(call) for call in plan.calls())


FORMATS: dict[str, Callable[[Plan, Job], str]] = {"text": _text, "json": _json, "calls": _calls}
