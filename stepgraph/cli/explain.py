"""``stepgraph explain NAME``: why a phase runs or not; ``explain A B``: why the second waits for the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepgraph.api import apply, copied, names
from stepgraph.cli.inputs import compiled, plan_of, run_length, source
from stepgraph.cli.job import Job
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError
from stepgraph.spec import parse
from stepgraph.views.explain import Asked, explain_text
from stepgraph.views.rundir import read_run
from stepgraph.views.waits import waits_text


def explain(job: Job) -> int:
    """Print the answer."""
    if len(job.names) not in (1, 2):
        raise ConfigError(f"explain takes one phase or two, got {len(job.names)}: stepgraph explain NAME, or A B")
    if job.config.format != "text":
        raise ConfigError(f"format={job.config.format}: explain answers in text; stepgraph plan prints json and calls")
    print(_answer(job))
    return 0


def _answer(job: Job) -> str:
    folder = job.options.get("--analyze")
    if folder is not None and len(job.names) == 2:
        raise ConfigError("--analyze goes with one phase: explain NAME --analyze RUN_DIR")
    run = None if folder is None else read_run(folder)
    plan = plan_of(job)
    if len(job.names) == 2:
        return waits_text(plan, *job.names, step=job.config.step)
    words = tuple(word for word in job.overrides if word.partition("=")[0].lstrip("+") != "step")
    asked = Asked(Again(job), tuple(names("conf/placement")), words, run)
    return explain_text(plan, job.names[0], job.config.step, asked)


@dataclass(frozen=True, slots=True)
class Again:
    """Compiles the job once more, with one override more."""

    job: Job

    def __call__(self, override: str) -> Plan:
        sections = _sections(self.job)
        apply(sections, override)
        if override.startswith("placement="):
            for word in self.job.overrides:
                if word.lstrip("+~").startswith("placement."):
                    apply(sections, word)
        graph = parse(
            sections["graph"],
            sections["placement"],
            sections["run"],
            max_staleness=sections["max_staleness"],
            source=source(self.job),
        )
        return compiled(graph, self.job)


def _sections(job: Job) -> dict[str, Any]:
    config = job.config
    return {
        "graph": copied(config.graph),
        "placement": {"name": job.choices.get("placement", ""), **copied(config.placement)},
        "run": run_length(job),
        "max_staleness": config.max_staleness,
    }
