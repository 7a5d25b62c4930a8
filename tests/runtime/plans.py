"""Plans made by hand: the executor is tested without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep, Planned, Pruned
from stepgraph.ir.resource import Resource

Phases = tuple[Planned, ...]


def phase(
    name: str, use: str, after: Iterable[str] = (), for_step: int | None = None, why: str = "work", **words: Any
) -> Planned:
    """A planned phase: ``needs``, ``moves`` and ``copies`` are mappings, everything else is the phase's own."""
    pairs = {word: dict(words.pop(word, {})) for word in ("needs", "moves", "copies")}
    declared = Phase(name=name, use=use, **{word: tuple(p.items()) for word, p in pairs.items()}, **words)
    return Planned(declared, after=tuple(after), for_step=for_step, why=why, **pairs)


@dataclass(frozen=True)
class HandPlan:
    """What an executor asks of a plan. ``of_step`` gives a step's phases."""

    graph: Graph
    of_step: Callable[[int], Phases]
    first: int
    steps: int
    begin: Phases = ()
    finish: Phases = ()
    pruned: Mapping[int, tuple[Pruned, ...]] = field(default_factory=dict)

    @property
    def start(self) -> CompiledStep:
        return CompiledStep(None, 0, self.begin, ())

    @property
    def end(self) -> CompiledStep:
        return CompiledStep(None, -1, self.finish, ())

    @property
    def variants(self) -> list[CompiledStep]:
        return [self.step(k) for k in range(self.first, self.steps)]

    def step(self, k: int) -> CompiledStep:
        return CompiledStep(k, 1, self.of_step(k), self.pruned.get(k, ()))

    def to_dict(self) -> dict[str, Any]:
        return {"schema": 1, "graph": self.graph.name, "run": {"first": self.first, "steps": self.steps}}


def hand_plan(
    step: Phases | Callable[[int], Phases],
    steps: int = 1,
    resources: Iterable[Resource] = (),
    **words: Any,
) -> HandPlan:
    """A plan of ``steps`` steps, all with the same phases unless ``step`` is a function of the step."""
    of_step = step if callable(step) else lambda _: step
    first = words.pop("first", 0)
    shown = dict.fromkeys(planned.phase for k in range(first, steps) for planned in of_step(k))
    start = tuple(planned.phase for planned in words.get("begin", ()))
    graph = Graph(
        name=words.pop("name", "hand"),
        resources={one.name: one for one in resources},
        step=tuple({one.name: one for one in shown}.values()),
        start=start,
    )
    return HandPlan(graph, of_step, first, steps, **words)


WEIGHTS = (
    Resource("prompts", "stream"),
    Resource("policy", "weights", of="trainer", at="device"),
    Resource("engine", "weights", of="engine", at="device"),
    Resource("kv", "scratch", of="engine", at="device"),
    Resource("ckpt", "sink"),
    Resource("scores", "sink"),
)

SYNC = phase("sync", "engine.sync", copies={"engine": "policy"})
GENERATE = phase(
    "generate", "engine.generate", ["sync@previous"], reads=("engine",), updates=("prompts",), writes=("rollouts",)
)
TRAIN = phase(
    "train", "trainer.train", ["generate", "save@previous", "sync@previous"], reads=("rollouts",), updates=("policy",)
)
SAVE = phase("save", "trainer.save", ["train", "save@previous"], reads=("policy",), writes=("ckpt",))
SYNC_AFTER = phase("sync", "engine.sync", ["train", "generate"], copies={"engine": "policy"})
LOOP = (GENERATE, TRAIN, SAVE, SYNC_AFTER)


def loop_plan(steps: int, first: int = 0, **words: Any) -> HandPlan:
    """Generate, train, save, sync: the smallest loop with all kinds of things in it."""
    return hand_plan(LOOP, steps, WEIGHTS, begin=(SYNC,), first=first, **words)
