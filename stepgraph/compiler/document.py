"""The plan as one JSON document: the schema that other programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepgraph.ir.plan import CompiledStep, Planned, Pruned
from stepgraph.ir.resource import Resource

if TYPE_CHECKING:
    from stepgraph.compiler.plan import Plan, Variant

SCHEMA = 1


def document(plan: Plan) -> dict[str, Any]:
    """Schema 1. Steps are 0-based, ranges closed with a stride; totals count steps only."""
    graph = plan.graph
    return {
        "schema": SCHEMA,
        "graph": graph.name,
        "placement": graph.placement.name,
        "run": {"first": plan.first, "steps": plan.steps},
        "variants": [variant(one) for one in plan.variants],
        "start": outside(plan.start),
        "end": outside(plan.end),
        "resources": {name: resource(r) for name, r in graph.resources.items()},
        "keep": dict(graph.keep),
        "totals": plan.totals,
        "staleness": {"max": plan.staleness},
        "peak": {"device_gib": plan.peak("device"), "host_gib": plan.peak("host")},
        "warnings": list(plan.warnings),
    }


def variant(one: Variant) -> dict[str, Any]:
    steps = [{"from": first, "to": last, "every": stride} for first, last, stride in one.spans]
    return {
        "id": one.id,
        "steps": steps,
        "phases": [planned(p) for p in one.phases],
        "pruned": [gone(p) for p in one.pruned],
    }


def outside(step: CompiledStep) -> dict[str, Any]:
    return {"phases": [planned(p) for p in step.phases], "pruned": [gone(p) for p in step.pruned]}


def planned(one: Planned) -> dict[str, Any]:
    phase = one.phase
    said: dict[str, Any] = {
        "reads": list(phase.reads),
        "writes": list(phase.writes),
        "updates": list(phase.updates),
        "needs": dict(one.needs),
        "moves": dict(one.moves),
        "copies": dict(one.copies),
        "whole": phase.whole,
        "dropped": dict(one.dropped),
        "may_fire": one.may_fire,
        "ahead": phase.ahead,
        "doc": phase.doc,
    }
    head = {
        "name": one.name,
        "kind": one.kind,
        "use": one.use,
        "after": list(one.after),
        "why": one.why,
        "layer": one.layer,
    }
    return head | {word: value for word, value in said.items() if value}


def gone(one: Pruned) -> dict[str, Any]:
    head = {"name": one.name, "code": one.code, "reason": one.reason, "kept_if": one.kept_if}
    return head | {word: dict(value) for word, value in (("moves", one.moves), ("copies", one.copies)) if value}


def resource(one: Resource) -> dict[str, Any]:
    said = {"kind": one.kind, "of": one.of, "at": one.at if one.placed else "", "gib": one.size}
    return {word: value for word, value in said.items() if value not in ("", None)}
