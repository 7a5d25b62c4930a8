"""A plan's calls in the words of the drivers they came from: their phase names, steps, memory tags and ``force_sync``.

Nothing is decided here: each call of the plan becomes one call, and what is said of it stands in the call, in its
phase or in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepgraph.compiler.plan import Plan
from stepgraph.ir.graph import Graph

NAMES = {
    "offload_actor_saved": "offload_actor",
    "offload_critic_saved": "offload_critic",
    "offload_train": "offload_actor",
}
"""Phases that the drivers call more than once a step; all others have the drivers' own names (``docs/peers.md``)."""

FORCED = ("save_actor", "save_critic")
"""Calls that take ``force_sync``: true where the save is due because the run ends."""


@dataclass(frozen=True, slots=True)
class Words:
    """A driver's words. ``stepped`` calls are given the step; ``tagged`` ones say which memory they move."""

    stepped: frozenset[str]
    tagged: frozenset[str] = frozenset()


def recorded(plan: Plan, words: Words) -> list[dict[str, Any]]:
    """Every call of the plan, translated."""
    return [translated(plan.graph, call, words) for call in plan.iter_calls()]


def translated(graph: Graph, call: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """One call. What is not said of it is left out."""
    phase, step = call["phase"], call["step"]
    name = NAMES.get(phase, phase)
    found: dict[str, Any] = {"phase": name}
    if name in words.stepped and (step is not None or name == "eval"):
        found["step"] = graph.run.first if step is None else step
    if name in words.tagged:
        found["tags"] = list(call["moves"])
    if name in FORCED and ends_the_run(graph, phase, step, graph.run.total):
        found["force_sync"] = True
    return found


def ends_the_run(graph: Graph, phase: str, step: int, total: int | None) -> bool:
    """Whether a phase is due in the last of ``total`` steps, and would be so whatever its other triggers say."""
    gates = {one.name: one.when for one in graph.step}
    gate = gates[phase]
    while gate.with_ is not None:
        gate = gates[gate.with_]
    return gate.last and total is not None and step == total - 1
