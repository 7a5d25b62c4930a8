"""Phases of one's own in a graph as it is written: what their functions say is filled in, and where they stand.

It happens before the grammar is checked, so that a word from ``@phase`` is checked as one from the YAML is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from stepgraph.errors import GraphError, MissingTarget
from stepgraph.registry import CONTENTS, listed, words_of
from stepgraph.source import located

Step = Mapping[str, Any]


@dataclass(slots=True)
class Found:
    """What there is to say of the functions of a graph: warnings, and targets that are not here."""

    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def completed(graph: Mapping[str, Any]) -> tuple[dict[str, Any], Found]:
    """A graph as written, with what its phases' functions say of themselves."""
    found, said = dict(graph), Found()
    for title in ("start", "step", "end"):
        section = graph.get(title)
        if isinstance(section, Mapping):
            found[title] = {name: _filled(spec, f"{title}.{name}", said) for name, spec in section.items()}
    step = found.get("step")
    if isinstance(step, Mapping):
        lasting = _lasting(graph.get("resources"))
        _refuse_circle(step, lasting)
        found["step"] = {name: _placed(step, name, lasting) for name in step}
        said.notes += _late(step, lasting)
    return found, said


def is_own(use: Any) -> bool:
    """Whether a target is a function's and not ``component.method``.

    >>> is_own("./audit.py:audit"), is_own("pkg.mod.audit"), is_own("audit"), is_own("engine.generate")
    (True, True, True, False)
    """
    parts = use.split(".") if isinstance(use, str) and use else []
    return bool(parts) and not (len(parts) == 2 and all(part.isidentifier() for part in parts))


def _filled(spec: Any, where: str, said: Found) -> Any:
    """One phase with what its function says. One that is not here can be planned by what the graph says of it."""
    if not isinstance(spec, Mapping) or spec.get("enabled") is False:
        return spec
    use, says_nothing = spec.get("use"), not any(spec.get(word) for word in CONTENTS)
    if not (is_own(use) or (says_nothing and _in_module(use))):
        return spec
    try:
        words, note = words_of(str(use), where)
    except MissingTarget as error:
        if says_nothing:
            raise
        words, note = {}, ""
        said.missing.append(str(error))
    said.notes += [note] if note else []
    once = () if where.startswith("step.") else ("when", "ahead")
    return {**{word: value for word, value in words.items() if word not in once}, **spec}


def _in_module(use: Any) -> bool:
    """Whether ``name.name`` is a function in a module, for a phase that says nothing else."""
    return isinstance(use, str) and use.count(".") == 1 and located(use.partition(".")[0]) is not None


def _lasting(resources: Any) -> set[str]:
    """The resources that are no values."""
    given = resources if isinstance(resources, Mapping) else {}
    kinds = {name: spec.get("kind", "value") if isinstance(spec, Mapping) else spec for name, spec in given.items()}
    return {name for name, kind in kinds.items() if kind != "value"}


def _free(spec: Any) -> bool:
    """Whether it is a function of one's own that nobody said a place for."""
    own = isinstance(spec, Mapping) and is_own(spec.get("use"))
    return own and not any(spec.get(word) for word in ("before", "after", "ahead"))


def _placed(step: Step, name: str, lasting: set[str]) -> Any:
    """A function that makes what an earlier phase reads goes right before that one: where it is would be refused."""
    spec = step[name]
    made = set(listed(spec, "writes")) - lasting if _free(spec) else set()
    earlier = dict(_until(step, name))
    readers = [other for other, one in earlier.items() if made & set(listed(one, "reads")) and not one.get("ahead")]
    makers = [other for other, one in earlier.items() if made & set(listed(one, "writes"))]
    return {**spec, "before": readers[:1]} if readers and not makers else spec


def _refuse_circle(step: Step, lasting: set[str]) -> None:
    """Refuse functions that wait for each other's values: no order of the list would do."""
    makers = {made: name for name, spec in _phases(step) for made in set(listed(spec, "writes")) - lasting}
    waits = {name: {makers[one] for one in listed(spec, "reads") if one in makers} for name, spec in _phases(step)}
    try:
        TopologicalSorter({name: others - {name} for name, others in waits.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        if any(is_own(step[name].get("use")) and not step[name].get("ahead") for name in circle):
            shown = " -> ".join(f"step.{name}" for name in circle)
            raise GraphError(
                f"{shown}: each reads what the one before it writes, a circle; what crosses steps is a state"
            ) from None


def _late(step: Step, lasting: set[str]) -> Iterator[str]:
    """Functions that change what nobody reads afterwards: legal, and surely meant to stand elsewhere."""
    for name, spec in step.items():
        changed = set(listed(spec, "updates")) - lasting if _free(spec) else set()
        earlier = dict(_until(step, name))
        readers = [other for other, one in _phases(step) if changed & set(listed(one, "reads")) and other != name]
        if readers and all(other in earlier for other in readers):
            what, cure = ", ".join(sorted(changed)), f"graph.step.{name}.before={readers[0]}"
            yield f"step.{name} changes {what} when everybody has read it: {cure} puts it before them"


def _until(step: Step, name: str) -> Iterator[tuple[str, Step]]:
    for other, spec in _phases(step):
        if other == name:
            return
        yield other, spec


def _phases(step: Step) -> Iterator[tuple[str, Step]]:
    return ((name, spec) for name, spec in step.items() if isinstance(spec, Mapping))
