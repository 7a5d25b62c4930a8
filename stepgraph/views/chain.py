"""The chain a phase stands in: who gives what it takes, and who takes what it gives, on to whoever works with it.

For a phase that runs the chain is of what runs. For one that was pruned it is of the list as declared, and ends where
nobody wants the rest, or says who gives the same already.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from stepgraph.compiler import reasons
from stepgraph.compiler.lower import Copy, Move
from stepgraph.compiler.plan import Plan
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep
from stepgraph.views.edges import Call, Edges, Link, calls
from stepgraph.views.waits import earlier, named

NEAR = 2
"""How many steps ahead users are looked for at first; where nobody is near, they are looked for further."""
FAR = 256
HOPS = 8
NOBODY = "nothing"


class Chain:
    """What is around one phase at one position of a run."""

    def __init__(self, plan: Plan, step: CompiledStep, at: int, phase: Phase) -> None:
        self.plan, self.step, self.at, self.phase = plan, step, at, phase
        self.runs = next((one for one in step.phases if one.name == phase.name), None)

    @cached_property
    def edges(self) -> Edges:
        return Edges(self.plan, self._back(), self.at + NEAR, declared=self.runs is None)

    def _back(self) -> int:
        """The position of the earliest run that the phase waits for."""
        names = [name.partition("@")[0] for name in (self.runs.after if self.runs else ()) if "@" in name]
        call = next((one for one in calls(self.plan, self.at) if one.name == self.phase.name), None)
        latest = [found[0][0] for name in names if call and (found := earlier(self.plan, name, call))]
        return min(latest, default=self.at - 1)

    @cached_property
    def call(self) -> Call | None:
        return self.edges.find(self.at, self.phase.name)

    @property
    def links(self) -> list[Link]:
        """What the phase waits for directly, the most telling first."""
        return self.edges.links[self.call] if self.call else []

    @cached_property
    def uses(self) -> list[Link]:
        """Who takes what the phase gives."""
        if self.call is None:
            return []
        return list(self.edges.uses(self.call)) or list(self._far(self.at).uses(self.call))

    def _far(self, at: int) -> Edges:
        return Edges(self.plan, at, at + FAR, declared=self.runs is None)

    # ---- in words

    def told(self, code: str) -> str:
        """The chain of a phase that runs (``code`` is empty), or of one pruned for a reason."""
        if code in ("already_there", "same_contents"):
            return self.instead(code)
        before = self.links[:1]
        after = [] if code == "no_consumer" else self.onward(pruned=bool(code))
        return self.spelled([*before, *after], self.ending(after[-1].target if after else None))

    def spelled(self, links: list[Link], ending: str) -> str:
        names = [links[0].source, *(link.target for link in links)] if links else [self.call] if self.call else []
        words = [named(self.plan, one, self.at) + self.mark(one) for one in names]
        arrows = [f" -({link.thing})-> " for link in links]
        return "".join(word + arrow for word, arrow in zip(words, [*arrows, ending], strict=True))

    def mark(self, call: Call) -> str:
        """Another phase of the chain that is pruned as well is marked."""
        return " (pruned)" if call.name != self.phase.name and self.is_pruned(call) else ""

    def is_pruned(self, call: Call) -> bool:
        return call.at == self.at and any(one.name == call.name for one in self.step.pruned)

    def onward(self, pruned: bool) -> list[Link]:
        """From the phase to its first user and, through handoffs, on to who works with it; or through pruned ones."""
        found: list[Link] = []
        uses = self.uses
        while len(found) < HOPS:
            link = next((one for one in uses if not pruned or self.is_pruned(one.target)), None)
            if link is None:
                break
            found.append(link)
            if not link.target.op.handoff:
                break
            uses = list(self._far(link.target.at).uses(link.target))
        return found

    def ending(self, last: Call | None) -> str:
        """How the chain ends: with work it just ends; what it keeps or tells the outside world is said."""
        phase = last.op.phase if last else self.phase
        if last is not None and not phase.handoff:
            return ""
        sinks = [name for name in phase.writes if self.plan.graph.resources[name].kind == "sink"]
        if sinks:
            return f" -({', '.join(sinks)})-> the outside world"
        kept = [name for name, _ in self.plan.graph.keep if name in given(phase)]
        if kept and self.runs:
            return f" -({', '.join(kept)})-> the end of the run"
        what = ", ".join(f"{name} at {word}" if word else name for name, word in given(phase).items())
        return f" -({what})-> {NOBODY}" if what else f" -> {NOBODY}"

    # ---- what is given already

    def instead(self, code: str) -> str:
        """Where what the phase would give is from, and who takes it: of the first part that is given already."""
        part, name = next((part, name) for part, name in self.parts() if self.code(part) == code)
        held = self.held(name) if isinstance(part, Move) else ""
        user = next((link.target for link in self.uses if link.name == name), None)
        thing = f"{name} at {held}" if held else name
        giver = self.giver(name, contents=isinstance(part, Copy))
        start = f"{name} starts at {held} -> " if held else f"-({thing})-> "
        end = named(self.plan, user, self.at) + self.mark(user) if user else NOBODY
        return f"{giver} -({thing})-> {end}" if giver else f"{start}{end}"

    def parts(self) -> Iterator[tuple[Move | Copy, str]]:
        """Each part of the phase, with the resource that it is about."""
        if self.call is None:
            return
        op = self.call.op
        yield from zip(op.moves, (name for name, _ in op.phase.moves), strict=True)
        yield from zip(op.copies, (target for target, _ in op.phase.copies), strict=True)

    def code(self, part: Move | Copy) -> str:
        """Why a part went."""
        assert self.call is not None
        done, i = self.plan.done[self.plan._index[self.at]], self.call.i
        wanted = done.aim.wanted[i] | self.plan.layout.none
        return reasons.part_code(done, i, wanted, reasons.before(done, i), part)

    def held(self, name: str) -> str:
        """Where a resource is right before the phase."""
        assert self.call is not None
        facts = reasons.before(self.plan.done[self.plan._index[self.at]], self.call.i)
        return self.plan.layout.word(name, facts.places)

    def giver(self, name: str, contents: bool) -> str:
        """Who last moved a resource, or copied into it, before the phase."""
        assert self.call is not None
        for at in range(self.at, max(self.at - FAR, 0) - 1, -1):
            for one in reversed(list(calls(self.plan, at))):
                does = name in dict(one.op.phase.copies) if contents else one.moved(name)
                if does and (one.at, one.i) < (self.at, self.call.i):
                    return named(self.plan, one, self.at)
        return ""


def given(phase: Phase) -> dict[str, str]:
    """What a phase gives: a place for each resource it moves, and contents."""
    contents = dict.fromkeys((*phase.writes, *phase.updates, *dict(phase.copies)), "")
    return {**dict(phase.moves), **contents}
