"""``stepgraph new phase NAME``: a phase of one's own that runs as it is: its function, its YAML, its test."""

from __future__ import annotations

from pathlib import Path

from stepgraph.cli.job import Job
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.spec import NAME

KINDS = ("phase",)
FUNCTION = '''"""The phase `{name}`: say in one line what it is for."""

from stepgraph import phase


@phase(reads=["rollouts"], writes=["{name}"])
def {name}(rollouts, ctx):
    """Count the rollouts and their tokens."""
    tokens = sum(len(rollout.tokens) for rollout in rollouts)
    ctx.log(**{{"{name}/tokens": tokens}})
    return {{"{name}": {{"rollouts": len(rollouts), "tokens": tokens}}}}
'''
CONFIG = """# What is written here wins over the function's own @phase: stepgraph plan +phase@graph.step.{name}={name}
use: ./phases/{name}.py:{name}
on_error: warn              # a run goes on without it; fail: it ends
"""
TEST = '''"""The phase `{name}`, by itself and in a plan."""

from pathlib import Path

from stepgraph.testing import assert_runs, plan_of, rollouts, run_phase

BODY = f"{{Path(__file__).parents[1]}}/phases/{name}.py:{name}"


def test_it_counts_rollouts_and_tokens():
    done = run_phase(BODY, {{"rollouts": rollouts(3, 8)}})
    assert done["{name}"] == {{"rollouts": 2, "tokens": 11}}
    assert done.metrics == {{"{name}/tokens": 11}}


def test_it_runs_in_every_step():
    plan = plan_of("grpo", f"graph.step.{name}={{{{use: '{{BODY}}'}}}}", steps=3)
    assert_runs(plan, "{name}", range(3))
'''


def new(job: Job) -> int:
    """Write the files, or refuse where one is there already."""
    name = _name(job.names)
    files = {
        Path("phases") / f"{name}.py": FUNCTION,
        Path("conf") / "phase" / f"{name}.yaml": CONFIG,
        Path("tests") / f"test_{name}.py": TEST,
    }
    for file in files:
        if file.exists():
            raise ConfigError(f"{file} is there already: choose another name, or move it away")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=name), encoding="utf-8")
        print(f"wrote {file}")
    print(f"see it:  stepgraph plan +phase@graph.step.{name}={name}")
    print(f"test it: pytest tests/test_{name}.py")
    return 0


def _name(words: tuple[str, ...]) -> str:
    if len(words) != 2 or words[0] not in KINDS:
        hint = did_you_mean(words[0], KINDS) if words else ""
        raise ConfigError(f"new wants a kind and a name{hint}: stepgraph new phase NAME")
    if not NAME.match(words[1]):
        raise ConfigError(f"'{words[1]}' is no name: use lower-case letters, digits and _, a letter first")
    return words[1]
