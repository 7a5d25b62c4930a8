"""``stepgraph run``: compile, refuse what cannot work, hand the plan to the executor that the configuration names."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from stepgraph.cli.inputs import compiled, graph_of, refuse_missing_targets, warn_of
from stepgraph.cli.job import Job
from stepgraph.cli.targets import TARGET, refuse_missing_packages
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.graph import Graph
from stepgraph.registry import resolve
from stepgraph.runtime.build import section_of, wanted
from stepgraph.runtime.result import Result
from stepgraph.runtime.rundir import prepare_run_dir

RESUME = ("auto",)


def run(job: Job) -> int:
    """Run the plan; the exit code is the result's."""
    resume = _resumes(job)
    graph, folder = graph_of(job), _folder(job)
    refuse_missing_targets(graph)
    first = _first(folder, job, resume)
    plan = compiled(graph, job, first=first)
    warn_of(plan, job)
    config = asdict(job.config)
    sections = {name: section_of(config, name) for name in wanted(config, plan)}
    refuse_missing_packages({name: section for name, section in sections.items() if section})
    result = _executor(job)(
        plan,
        config=config,
        run_dir=folder,
        config_text=OmegaConf.to_yaml(OmegaConf.structured(job.config)),
        seed=job.config.run.seed,
        resume=resume,
        on_stop=_shorter(graph, job, first),
        again=_again(job, folder),
    )
    return result.exit_code


def _resumes(job: Job) -> bool:
    word = job.config.resume
    if word is None:
        return False
    if word not in RESUME:
        raise ConfigError(f"resume={word}: say resume=auto, or leave it out{did_you_mean(word, RESUME)}")
    if job.config.run.dir is None:
        raise ConfigError("resume=auto goes on from a run directory: say which, run.dir=FOLDER")
    return True


def _folder(job: Job) -> Path:
    """Where the run goes. Its name holds the time to the second; one more started in that second gets a number."""
    given = job.config.run.dir or job.folder
    if given:
        return Path(given)
    name = f"{job.config.graph.get('name', 'graph')}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next(Path("runs") / one for one in names if not (Path("runs") / one).exists())


def _first(folder: Path, job: Job, resume: bool) -> int:
    """The first step to run: where the checkpoint ends that is gone on from, or what the configuration says."""
    checkpoint = prepare_run_dir(folder, resume).checkpoint
    return checkpoint.state.completed if checkpoint else job.config.run.first


def _executor(job: Job) -> Callable[..., Result]:
    """The function that runs a plan, with the executor's own options bound."""
    options = {key: value for key, value in job.config.executor.items() if key != TARGET}
    target: Callable[..., Result] = resolve(str(job.config.executor.get(TARGET)), "executor")
    return lambda plan, **rest: target(plan, **rest, **options)


def _shorter(graph: Graph, job: Job, first: int) -> Callable[[int], Plan]:
    """Compile the same run to end with a given step, for a run that is asked to stop."""
    return lambda last: compiled(graph, job, first=first, steps=last + 1)


def _again(job: Job, folder: Path) -> str:
    """The command that goes on where this run ends."""
    words: list[Any] = [word for word in job.overrides if not word.startswith(("resume=", "run.dir="))]
    return shlex.join(["stepgraph", "run", *words, f"run.dir={folder}", "resume=auto"])
