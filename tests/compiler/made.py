"""Small graphs for the compiler's tests, and a plan's calls in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import stepgraph
from stepgraph import spec
from stepgraph.compiler import PASSES, Plan
from stepgraph.ir.graph import Graph

COLOCATED = {"name": "colocated", "makes_room": {"trainer": ["engine"], "engine": ["trainer"]}}


def graph(
    step: Mapping[str, Any],
    resources: Mapping[str, Any] | None = None,
    placement: Any = None,
    run: Any = None,
    **more: Any,
) -> Graph:
    """A graph of these phases; who says nothing of ``use`` is a component of its own."""
    phases = {name: {"use": f"{name}.run", **words} for name, words in step.items()}
    return spec.parse({"name": "made", "resources": resources or {}, "step": phases, **more}, placement, run)


def plan(
    step: Mapping[str, Any], resources: Mapping[str, Any] | None = None, steps: int = 1, first: int = 0, **more: Any
) -> Plan:
    """The plan of a graph of these phases."""
    passes, at = more.pop("passes", PASSES), more.pop("at", None)
    return stepgraph.compile(graph(step, resources, **more), steps=steps, first=first, passes=passes, at=at)


def grpo(*overrides: str, steps: int = 3, first: int = 0, placement: str = "colocated") -> Plan:
    """The shipped loop."""
    return stepgraph.compile(stepgraph.load("grpo", [f"placement={placement}", *overrides]), steps=steps, first=first)


def ran(made: Plan, k: int) -> list[str]:
    """The phases of a step."""
    return [one.name for one in made.step(k).phases]


def brief(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Calls as text: ``0 wake a>device`` and ``- sync a<b``."""
    return [" ".join([where(one["step"]), one["phase"], *parts(one)]) for one in calls]


def where(step: int | None) -> str:
    return "-" if step is None else str(step)


def parts(call: Mapping[str, Any]) -> list[str]:
    moves = [f"{name}>{place}" for name, place in call.get("moves", {}).items()]
    return moves + [f"{target}<{source}" for target, source in call.get("copies", {}).items()]
