"""Tests for phases of one's own, without a GPU: run one phase, run a graph on components that do nothing, ask a plan.

Nothing is imitated: a phase goes through the same checks and calls as in a run, and a graph through the same executor.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from stepgraph import api
from stepgraph.compiler.compile import compile as compile_graph
from stepgraph.compiler.plan import Plan
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep, Planned, Pruned
from stepgraph.ir.resource import Resource
from stepgraph.phases import declared
from stepgraph.registry import resolve
from stepgraph.runtime.bind import arguments, bound_hooks, check_arguments, function_bound
from stepgraph.runtime.call import Call, Caller
from stepgraph.runtime.context import RunContext, seed_of
from stepgraph.runtime.contract import Prompt, Rollout, Weights
from stepgraph.runtime.plans import by_name
from stepgraph.runtime.result import Result
from stepgraph.runtime.run import run
from stepgraph.runtime.schedule import Section, Task
from stepgraph.spec import parse_phase

__all__ = [
    "Made",
    "Ran",
    "Run",
    "arguments",
    "assert_never",
    "assert_runs",
    "assert_waits",
    "plan_of",
    "pruned",
    "rollouts",
    "run_graph",
    "run_phase",
    "steps_of",
]


# ---- one phase -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """What one call of a phase left: the values that it returned, what it said of sinks, and what it logged."""

    values: Mapping[str, Any]
    sinks: Mapping[str, Any]
    metrics: Mapping[str, float]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def run_phase(
    body: Callable[..., Any] | str,
    contents: Mapping[str, Any] | None = None,
    *,
    components: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    step: int = 0,
    seed: int = 0,
    run_dir: str | Path | None = None,
    **words: Any,
) -> Ran:
    """Call a phase's function once, as a run would, and return what it gave. What it raises is raised.

    ``contents`` are what it reads, by name. ``words`` go over those of its ``@phase``, as YAML does; ``resources`` are
    declared as in a graph, where a name is more than a value.

    >>> from stepgraph import phase
    >>> @phase(reads=["rollouts"], writes=["report"])
    ... def count(rollouts):
    ...     return {"report": len(rollouts)}
    >>> run_phase(count, {"rollouts": [1, 2, 3]})["report"]
    3
    """
    use = body if isinstance(body, str) else f"{body.__module__}:{body.__qualname__}"
    function = resolve(body, "phase") if isinstance(body, str) else body
    name = getattr(function, "__name__", "phase")
    phase = parse_phase(name, {"use": use, **declared(function), **words}, name)
    graph, planned = _graph_of(phase, contents or {}, resources or {}), _planned(phase)
    bound = function_bound(name, use, function)
    check_arguments(graph, planned, bound, components or {})
    metrics: dict[str, float] = {}
    folder = Path(run_dir or mkdtemp(prefix="stepgraph-"))
    context = RunContext(
        step=step,
        phase=name,
        run_dir=folder,
        seed=seed_of(seed, name, step),
        components=components or {},
        record=metrics.update,
        saver=lambda: _checkpoint(folder),
        hooks={slot: hook for (_, slot), hook in bound_hooks(planned, bound).items()},
    )
    section = Section(0, f"step {step}", CompiledStep(step, 1, (planned,), ()))
    read = (*phase.reads, *phase.updates)
    given = {one: value for one, value in (contents or {}).items() if one in read}
    call = Call(Task(section, (planned,)), bound, context, given, {}, {}, dict.fromkeys(read, 0), {})
    outcome = Caller(graph, components or {}, lambda *_: None).perform(call)
    if outcome.error is not None:
        raise outcome.error
    return Ran(outcome.returned.values, outcome.returned.sinks, metrics)


def _planned(phase: Phase) -> Planned:
    return Planned(phase, dict(phase.needs), dict(phase.moves), dict(phase.copies))


def _graph_of(phase: Phase, contents: Mapping[str, Any], resources: Mapping[str, Any]) -> Graph:
    streams = {name: "stream" for name, value in contents.items() if hasattr(value, "take") and hasattr(value, "seek")}
    kinds = {**dict.fromkeys(phase.touched(), "value"), **streams, **resources}
    made = {name: _resource(name, spec) for name, spec in kinds.items()}
    return Graph("test", made, step=(phase,))


def _resource(name: str, spec: Any) -> Resource:
    return Resource(name, spec) if isinstance(spec, str) else Resource(name, **spec)


@contextmanager
def _checkpoint(folder: Path) -> Iterator[Path]:
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    yield folder / "checkpoint"


# ---- a whole graph -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """The contents that a component which does nothing gives for a value."""

    name: str
    by: str
    step: int | None


@dataclass(slots=True)
class Run:
    """A run of a graph on such components. ``calls`` are (step, phase), in the order in which they began."""

    plan: Plan
    result: Result
    calls: list[tuple[int | None, str]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def phases(self, step: int | None) -> list[str]:
        """The phases that ran for a step."""
        return [name for at, name in self.calls if at == step]

    def at(self, step: int | None) -> dict[str, Any]:
        """What was logged for a step."""
        return next((row for row in self.metrics if row["step"] == step), {})


def run_graph(
    graph: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    steps: int = 2,
    contents: Mapping[str, Any] | None = None,
    components: Mapping[str, Any] | None = None,
    run_dir: str | Path | None = None,
) -> Run:
    """Run a graph where every component does nothing but says what a real one would. Your functions really run.

    ``contents`` are what a value holds, or a function of the step; ``components`` are real ones among the others. What
    fails in the run is raised.
    """
    plan = plan_of(graph, *overrides, steps=steps)
    folder = Path(run_dir or mkdtemp(prefix="stepgraph-"))
    names = {phase.component for phase in _phases(plan)} | {one.of for one in plan.graph.resources.values()} | {"data"}
    parts: dict[str, Any] = {name: Idle(name, plan, contents or {}) for name in sorted(names) if name}
    result = run(plan, {**parts, **(components or {})}, run_dir=folder, out=io.StringIO(), signals=False)
    if result.failure is not None:
        raise result.failure.error
    return Run(plan, result, list(_calls(folder)), [json.loads(line) for line in _lines(folder / "metrics.jsonl")])


def _phases(plan: Plan) -> tuple[Phase, ...]:
    return (*plan.graph.start, *plan.graph.end, *plan.graph.step)


def _calls(folder: Path) -> Iterator[tuple[int | None, str]]:
    for event in map(json.loads, _lines(folder / "events.jsonl")):
        if event["event"] == "start":
            yield from ((event.get("for_step", event["step"]), name) for name in event["phase"].split("+"))


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


class Idle:
    """A component that does nothing, and says what one that did it all would: versions, contents, bytes."""

    def __init__(self, name: str, plan: Plan, contents: Mapping[str, Any]) -> None:
        self._phases = {phase.name: phase for phase in _phases(plan)}
        self._methods = {phase.use.partition(".")[2] for phase in self._phases.values() if phase.component == name}
        self._graph, self._contents = plan.graph, contents
        copied = {target for phase in self._phases.values() for target, _ in phase.copies}
        self._versions = {one: -1 if one in copied else 0 for one in plan.graph.resources}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method not in self.__dict__.get("_methods", ()):
            raise AttributeError(method)
        return self._body

    def version(self, resource: str) -> int:
        """How often a resource was updated, here or where it was copied from."""
        return self._versions[resource]

    def weights(self, resource: str) -> Weights:
        """No tensors, of the right version."""
        return Weights(self._versions[resource], lambda: iter(()))

    def stream(self, name: str) -> Asked:
        """A stream that never runs out."""
        return Asked()

    def _body(self, ctx: Any, *parts: Any, **contents: Any) -> dict[str, Any]:
        phase = self._phases[ctx.phase]
        for stream in (one for one in contents.values() if isinstance(one, Asked)):
            stream.take()
        if phase.handoff:
            return self._handed_over(*parts)
        self._count(phase)
        values = by_name(self._graph, (*phase.writes, *phase.updates))
        read = [name for name in phase.reads if self._graph.resources[name].kind == "weights"]
        return {name: self._stamped(self._made(name, ctx), read) for name in values}

    def _stamped(self, contents: Any, read: Sequence[str]) -> Any:
        """Rollouts say which version made them: that of the weights that were read."""
        if not read or not isinstance(contents, list):
            return contents
        version = self._versions[read[0]]
        return [replace(one, version=version) if isinstance(one, Rollout) else one for one in contents]

    def _count(self, phase: Phase) -> None:
        for name in phase.updates:
            self._versions[name] += 1

    def _handed_over(self, *parts: Mapping[str, Any]) -> dict[str, int]:
        for target, given in (pair for part in parts for pair in part.items()):
            if isinstance(given, Weights):
                self._versions[target] = given.version
        return {}

    def _made(self, name: str, ctx: Any) -> Any:
        given = self._contents.get(name, Made(name, ctx.phase, ctx.step))
        return given(ctx.step) if callable(given) else given


class Asked:
    """A stream of the same prompt."""

    def __init__(self) -> None:
        self.cursor = 0

    def take(self) -> list[Prompt]:
        """The next batch."""
        self.cursor += 1
        return [Prompt("question", "answer", self.cursor - 1)]

    def seek(self, cursor: int) -> None:
        """Go on from a batch."""
        self.cursor = cursor


def rollouts(*lengths: int, group: int = 0, version: int = 0, answer: str = "answer") -> list[Rollout]:
    """Rollouts of these lengths that answer one prompt, for phases that read some.

    >>> [len(one.tokens) for one in rollouts(3, 5)]
    [3, 5]
    """
    prompt = Prompt("question", answer, group)
    return [
        Rollout(prompt, (1, 2), tuple(range(3, 3 + n)), (-0.5,) * n, "x" * n, version, group)
        for n in lengths
    ]  # fmt: skip


# ---- a plan --------------------------------------------------------------------------------------------------------


def plan_of(graph: str | Path | Mapping[str, Any], *overrides: str, steps: int = 20) -> Plan:
    """The plan of a graph, with the command line's words."""
    return compile_graph(api.load(graph, overrides), steps=steps)


def steps_of(plan: Plan, name: str) -> list[int]:
    """The steps in which a phase runs."""
    return [k for k in range(plan.first, plan.steps) if any(one.name == name for one in plan.step(k).phases)]


def pruned(plan: Plan, name: str, step: int) -> Pruned | None:
    """Why a phase does not run in a step, and what would keep it; ``None`` where it runs."""
    return next((one for one in plan.pruned(step) if one.name == name), None)


def assert_runs(plan: Plan, name: str, steps: Sequence[int]) -> None:
    """Assert that a phase runs in these steps and in no other."""
    found = steps_of(plan, name)
    assert found == list(steps), f"{name} runs in steps {found}, not {list(steps)}{_why(plan, name, found, steps)}"


def assert_never(plan: Plan, name: str) -> None:
    """Assert that a phase is pruned from every step."""
    assert_runs(plan, name, [])


def assert_waits(plan: Plan, name: str, others: Sequence[str], step: int) -> None:
    """Assert that a phase waits for these others in a step, and for nobody else of that step."""
    phases = {one.name: one for one in plan.step(step).phases}
    assert name in phases, f"{name} does not run in step {step}{_why(plan, name, [], [step])}"
    found = [other for other in phases[name].after if "@" not in other]
    assert sorted(found) == sorted(others), f"{name} waits for {found} in step {step}, not for {list(others)}"


def _why(plan: Plan, name: str, found: Sequence[int], wanted: Sequence[int]) -> str:
    missing = next((k for k in wanted if k not in found and plan.first <= k < plan.steps), None)
    gone = None if missing is None else pruned(plan, name, missing)
    if gone is None:
        return ""
    return f"; step {missing}: {gone.reason}" + (f" (kept if {gone.kept_if})" if gone.kept_if else "")
