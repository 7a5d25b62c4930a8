"""``stepgraph diff [COMMON] -- A -- B``: what two sets of settings, two run directories or two steps do differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepgraph.cli.inputs import plan_of
from stepgraph.cli.job import Job
from stepgraph.errors import ConfigError
from stepgraph.views.diff import Side, compare, diff_text
from stepgraph.views.rundir import read_plan

DIFFERENT = 4
USAGE = "stepgraph diff [COMMON] -- A -- B, where A and B are settings, a run directory or step=K"


def diff(job: Job) -> int:
    """Print what differs; with ``--exit-code``, say so in the exit code."""
    if job.config.format != "text":
        raise ConfigError(f"format={job.config.format}: diff answers in text; stepgraph plan prints json and calls")
    a, b = _sides(job)
    found = compare(_side(job, a), _side(job, b))
    print(diff_text(found))
    return DIFFERENT if found.differs and "--exit-code" in job.options else 0


def _sides(job: Job) -> Sequence[Sequence[str]]:
    sides = [*((name,) for name in job.names), *job.sides]
    if len(sides) != 2:
        raise ConfigError(f"diff compares two sides, got {len(sides)}: {USAGE}")
    return sides


def _side(job: Job, words: Sequence[str]) -> Side:
    """A run directory's plan, or that of the common settings with a side's own."""
    folders = [word for word in words if _is_folder(word)]
    if folders and len(words) > 1:
        raise ConfigError(f"'{folders[0]}' stands among other words of a side: a run directory stands alone")
    if folders:
        return Side(read_plan(Path(folders[0])), folders[0], job.config.step)
    mine = _job(job, words)
    return Side(plan_of(mine).to_dict(), _title(words, mine), mine.config.step)


def _is_folder(word: str) -> bool:
    return "=" not in word and not word.startswith(("~", "+"))


def _job(job: Job, words: Sequence[str]) -> Job:
    """The job of a side. One that only names a step need not be composed again."""
    step = words[0].removeprefix("step=") if len(words) == 1 and words[0].startswith("step=") else ""
    if step.isdecimal() or not words:
        return replace(job, config=replace(job.config, step=int(step))) if step else job
    from stepgraph.cli.app import job_of

    return job_of([*job.overrides, *words])


def _title(words: Sequence[str], job: Job) -> str:
    if words:
        return " ".join(words)
    return " ".join(job.overrides) or "the configuration as it is"
