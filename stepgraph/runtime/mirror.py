"""The run as it should be: places, versions, values and cursors, so that a component's word can be checked.

Values live here from their writer to their last reader, and no longer: rollouts are the largest thing on the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from stepgraph.errors import RunError
from stepgraph.ir.graph import Graph
from stepgraph.ir.plan import Planned
from stepgraph.runtime.plans import kind_of, named
from stepgraph.runtime.schedule import Scope, Section, Task

NEVER = -1
"""The version of a copy that was never made, or of contents that were lost."""

Key = tuple[str, Scope]


class Values:
    """Contents by name and by the step they are for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._held: dict[Key, Any] = {}
        self._readers: Counter[Key] = Counter()
        self._closed: set[Scope] = set()
        self._lost: dict[Key, str] = {}

    def expect(self, section: Section, tasks: Iterable[Task]) -> None:
        """Count the readers of a section that was opened. No later one can read the values of its own step."""
        for key in self._reads(section, tasks):
            self._readers[key] += 1
        self._closed.add(section.label if section.step is None else section.step)

    def forget(self, section: Section, tasks: Iterable[Task]) -> None:
        """These were finished, or will never run: what nobody else reads is released."""
        for key in self._reads(section, tasks):
            self._readers[key] -= 1
        self.release()

    def release(self) -> None:
        for key in [key for key in self._held if key[1] in self._closed and self._readers[key] <= 0]:
            del self._held[key]
        settled = [key for key, count in self._readers.items() if count <= 0]
        for key in settled:
            del self._readers[key]

    def drop_step(self, section: Section) -> None:
        """Forget that a finished step was ever there, so that a long run does not grow."""
        scope = section.label if section.step is None else section.step
        self._closed.discard(scope)
        self._held = {key: value for key, value in self._held.items() if key[1] != scope}
        self._lost = {key: who for key, who in self._lost.items() if key[1] != scope}

    def put(self, name: str, scope: Scope, contents: Any) -> None:
        self._held[name, scope] = contents

    def lose(self, name: str, scope: Scope, who: str) -> None:
        """Remember that nobody will write this, and whose it would have been."""
        self._lost[name, scope] = who
        self._held.pop((name, scope), None)

    def get(self, name: str, scope: Scope, reader: str) -> Any:
        """The contents, or an error that says whose they should have been."""
        if (name, scope) in self._held:
            return self._held[name, scope]
        if (name, scope) in self._lost:
            raise RunError(f"{reader}: reads {name} of {self._lost[name, scope]}")
        raise RunError(f"{reader}: reads {name}, but nothing has written it for {_words(scope)}")

    def held(self) -> list[Key]:
        """What is in memory now."""
        return list(self._held)

    def _reads(self, section: Section, tasks: Iterable[Task]) -> Iterable[Key]:
        for planned in (phase for task in tasks for phase in task.phases):
            for name in dict.fromkeys(named(self._graph, (*planned.reads, *planned.updates), "value")):
                yield name, section.scope(planned)


class Mirror:
    """Where everything is, which version it holds, and how far each stream was consumed."""

    def __init__(self, graph: Graph, versions: Mapping[str, int], cursors: Mapping[str, int]) -> None:
        self.graph = graph
        self.places = {name: resource.at for name, resource in graph.resources.items() if resource.placed}
        self.versions = dict(versions)
        self._cursors: dict[str, dict[int, int]] = {name: {-1: cursor} for name, cursor in cursors.items()}

    def check_places(self, phases: Iterable[Planned]) -> None:
        """Refuse a call whose needs do not hold, before its component is asked to work on what is not there."""
        places = dict(self.places)
        for planned in phases:
            for name, place in planned.needs.items():
                here = places.get(name)
                if here is not None and not holds(here, place):
                    raise RunError(f"{planned.name}: needs {name} at {place}, but it is at {here}")
            places.update(planned.moves)

    def versions_after(self, phases: Iterable[Planned]) -> dict[str, int]:
        """What every resource that these phases update, copy or free should hold when they are done."""
        after: dict[str, int] = {}
        for planned in phases:
            for name in named(self.graph, planned.updates, "weights", "state"):
                after[name] = after.get(name, self.versions.get(name, 0)) + 1
            after |= {name: NEVER for name, place in planned.moves.items() if place == "none" and name in self.versions}
            after |= {target: self.versions.get(source, 0) for target, source in planned.copies.items()}
        return after

    def done(self, phases: Iterable[Planned], versions: Mapping[str, int]) -> None:
        """Take over what these phases did."""
        self.versions.update(versions)
        for planned in phases:
            self.places.update(planned.moves)

    def took(self, stream: str, step: int | None, cursor: int) -> None:
        """Remember how far a stream was read for a step. The few latest steps are enough: saves are not older."""
        taken = self._cursors.setdefault(stream, {})
        taken[-1 if step is None else step] = cursor
        while len(taken) > 8:
            del taken[min(taken)]

    def consumed(self, step: int) -> dict[str, int]:
        """Each stream's cursor when ``step`` is done, whatever was taken ahead for later ones."""
        found = {}
        for stream, taken in self._cursors.items():
            upto = [one for one in taken if one <= step]
            if upto:
                found[stream] = taken[max(upto)]
        return found


def holds(here: str, wanted: str) -> bool:
    """Whether a need is met: ``!device`` is met anywhere else."""
    return here != wanted[1:] if wanted.startswith("!") else here == wanted


def stamped(graph: Graph, phases: Iterable[Planned]) -> set[str]:
    """What these phases give a new version to: a component's word about it is checked."""
    updated = {name for planned in phases for name in named(graph, planned.updates, "weights", "state")}
    return updated.union(*(planned.copies for planned in phases))


def version_of(components: Mapping[str, Any], graph: Graph, name: str) -> int | None:
    """What the component says that a resource holds, or ``None`` where it does not say."""
    resource = graph.resources.get(name)
    said = getattr(components.get(resource.of if resource else ""), "version", None)
    return int(said(name)) if callable(said) else None


def carried(graph: Graph) -> list[str]:
    """Resources whose contents go from step to step."""
    return [name for name in graph.resources if kind_of(graph, name) in ("weights", "state")]


def _words(scope: Scope) -> str:
    return f"step {scope}" if isinstance(scope, int) else str(scope)
