"""Runs a plan on a framework's own objects, from a plain function or from within its event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stepgraph.adapters.objects import Caller, Model, Objects, Progress, Prompts, RolloutManager, Sources
from stepgraph.compiler.compile import compile
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError
from stepgraph.ir.phase import Phase
from stepgraph.runtime.plans import kept
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run as run_plan


def known(args: Any, names: Iterable[str]) -> dict[str, Any]:
    """Of a driver's arguments those that shape the loop; it has hundreds that say what happens inside a call."""
    given = args if isinstance(args, Mapping) else vars(args)
    return {name: given[name] for name in names if name in given}


def used(plan: Plan) -> Iterator[Phase]:
    """Every phase that runs at least once."""
    return (planned.phase for planned in kept(plan))


def components(plan: Plan, call: Caller, progress: Progress, objects: Objects) -> dict[str, Any]:
    """The components that the graphs' ``use`` and ``of`` name."""
    found: dict[str, Any] = {"trainer": Sources(progress), "data": Prompts()}
    found["rollout_manager"] = RolloutManager(objects, call, progress)
    for name in ("actor", "critic"):
        model = Model(objects, call, progress, name)
        if model.target is not None:
            found[f"{name}_model"] = model
        elif any(phase.component == f"{name}_model" for phase in used(plan)):
            raise ConfigError(f"{plan.graph.name}: the arguments want a {name}_model, but none was given")
    return found


def drive(plan: Plan, loop: asyncio.AbstractEventLoop, objects: Objects, options: Mapping[str, Any]) -> Result:
    """Run the plan and wait for its end. The first error of a call is raised as it came."""
    progress = Progress(plan.graph, plan.steps)

    def shorter(last: int) -> Plan:
        progress.total = last + 1
        return compile(replace(plan.graph, run=replace(plan.graph.run, steps=last + 1)))

    built = components(plan, Caller(loop), progress, objects)
    result = run_plan(plan, built, on_stop=shorter, **options)
    if result.failure is not None:
        raise result.failure.error
    return result


@contextmanager
def own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own, for callers that have none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="stepgraph-calls", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
