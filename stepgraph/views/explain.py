"""Why a phase runs or not: its reason, the chain of consumers it stands in, and what would change its fate.

The fate and its reason are the plan's, the chain is found in the edges, and what would change the fate by compiling
again.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepgraph.compiler import reasons
from stepgraph.compiler.plan import Plan
from stepgraph.errors import ConfigError
from stepgraph.ir.phase import Phase
from stepgraph.ir.plan import CompiledStep, Planned, Pruned
from stepgraph.views.chain import Chain, given
from stepgraph.views.edges import Call, Link, length, place, shape
from stepgraph.views.measured import measured
from stepgraph.views.rundir import RunDir
from stepgraph.views.table import count, said
from stepgraph.views.waits import named, phase_of, position_of
from stepgraph.views.ways import Again, Way, keepers, pruners

WIDTH = 80
LABEL = 12
"""The column that the answers start in."""
OVERRIDE = 40
"""An override that is longer has its effect below it."""
USERS = 6
STATES = {"runs": "RUNS", "not_due": "NOT DUE", "disabled": "DISABLED"}
HARD = "\N{NO-BREAK SPACE}"
ARROW = re.compile(r" -\([^)]*\)->")
Fate = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer may draw on besides the plan.

    ``again`` compiles with one override more; ``placements`` are the names that there are; ``overrides`` are the
    user's own words; ``run`` is a run directory to set beside the plan.
    """

    again: Again | None = None
    placements: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    run: RunDir | None = None


def explain_text(plan: Plan, name: str, step: int | None = None, asked: Asked | None = None) -> str:
    """Tell why a phase runs, or does not, in a step: by default in the last one in which it fares unlike in most."""
    phase_of(plan.graph, name)
    if not plan.seq:
        raise ConfigError(f"no phase runs: the run's {plan.steps} steps are done (run.first={plan.first})")
    at = telling_position(plan, name) if step is None else position_of(plan, step)
    return "\n".join(line.rstrip() for line in Answer(plan, name, at, asked or Asked()).lines())


# ---- which step ----------------------------------------------------------------------------------------------------


def telling_position(plan: Plan, name: str) -> int:
    """The last step in which the phase fares unlike in most; the first where it always fares alike."""
    if not plan.variants or name not in {phase.name for phase in plan.graph.step}:
        return outer_position(plan, name)
    usual = max(fates(plan, name).items(), key=lambda item: item[1])[0]
    odd = [one for one in plan.variants if fate(one.phases, one.pruned, name) != usual]
    return max((last for one in odd for _, last, _ in one.spans), default=plan.first) - plan.first + 1


def outer_position(plan: Plan, name: str) -> int:
    """``start`` or ``end``, for a phase that is in no step."""
    sections = ((0, plan.graph.start), (length(plan) - 1, plan.graph.end))
    found = next((at for at, phases in sections if name in {phase.name for phase in phases}), None)
    if found is None:
        raise ConfigError(f"{name} is a phase of the step, and this run has no steps: give run.steps=N")
    return found


def fates(plan: Plan, name: str) -> dict[Fate, int]:
    """How a phase fares, in how many steps."""
    found: Counter[Fate] = Counter()
    for variant in plan.variants:
        found[fate(variant.phases, variant.pruned, name)] += variant.count
    return dict(found)


def fate(phases: Iterable[Planned], pruned: Iterable[Pruned], name: str) -> Fate:
    """How a phase fares: what runs of it, or why nothing does."""
    for one in phases:
        if one.name == name:
            return ("runs", *one.moves.items(), *one.copies.items())
    return next(((gone.code,) for gone in pruned if gone.name == name), ("not_due",))


# ---- the answer ----------------------------------------------------------------------------------------------------


class Answer:
    """One phase at one position of a run, asked about."""

    def __init__(self, plan: Plan, name: str, at: int, asked: Asked) -> None:
        self.plan, self.at, self.asked = plan, at, asked
        self.title = shape(plan, at).title
        self.step = self._step()
        lists = {"start": plan.graph.start, "step": plan.graph.step, "end": plan.graph.end}
        self.phase: Phase = next((p for p in lists[self.title] if p.name == name), phase_of(plan.graph, name))
        self.runs = next((one for one in self.step.phases if one.name == name), None)
        self.gone = next((one for one in self.step.pruned if one.name == name), None)
        self.chain = Chain(plan, self.step, at, self.phase)
        self.offered: list[Way] = []

    def _step(self) -> CompiledStep:
        if self.title == "step":
            return self.plan.step(self.plan.first + self.at - 1)
        return self.plan.start if self.title == "start" else self.plan.end

    def lines(self) -> Iterator[str]:
        yield self.head()
        if self.phase.doc:
            yield from row("it is", self.phase.doc)
        yield from self.kept(self.runs) if self.runs else self.pruned(self.gone)
        if self.asked.run is not None:
            yield from measured(self.step, self.title, self.phase, self.asked.run)
        yield from self.hint()

    def head(self) -> str:
        code = "runs" if self.runs else self.gone.code if self.gone else "not_due"
        left = f"{self.phase.name}  {STATES.get(code, 'PRUNED')} in {place(self.plan, self.at)}{self.elsewhere()}"
        return f"{left:<{WIDTH - 1 - len(self.phase.kind)}} {self.phase.kind}"

    def elsewhere(self) -> str:
        """How the phase fares in the other steps."""
        found, total = fates(self.plan, self.phase.name), self.plan.steps - self.plan.first
        if self.title != "step" or total == 1:
            return ""
        mine = fate(self.step.phases, self.step.pruned, self.phase.name)
        if found.keys() == {mine}:
            return f", as in all {total:,} steps"
        found[mine] -= 1
        others = {one: number for one, number in found.items() if number}
        if len(others) > 1 or mine in others:
            return f" ({', '.join(f'{doing(one, mine)} in {number:,}' for one, number in others.items())})"
        side = " before it" if self.at == total else " after it" if self.at == 1 else ""
        rest = count(total - 1, "step" if side else "other step")
        return f" ({doing(next(iter(others)), mine)} in the {rest}{side})"

    # ---- a phase that runs

    def kept(self, one: Planned) -> Iterator[str]:
        yield from row("because", self.because(one))
        yield from row("without", self.without(one))
        yield from row("chain", self.chain.told(""))
        yield from row("waits for", ", ".join(self.awaited(one)) or "nobody")
        yield from row("feeds", ", ".join(self.fed()) or "no phase")
        if self.asked.again is not None:
            ways = pruners(self.plan, self.at, self.phase, self.asked.again, self.asked.placements)
            yield from self.told_ways("pruned if", ways)

    def without(self, one: Planned) -> str:
        """The parts of a handoff that went while others remain."""
        whole = {**dict(one.phase.moves), **dict(one.phase.copies)}
        return ", ".join(f"{name}>{whole[name]} ({code.replace('_', ' ')})" for name, code in one.dropped.items())

    def because(self, one: Planned) -> str:
        code, _, other = one.why.partition(":")
        if code == "work":
            gate = f" ({reasons.said(self.phase.when)})" if self.phase.when.named else ""
            return f"work: it runs whenever it is due{gate}"
        if code == "kept_at_end":
            return f"kept at the end: the run keeps {self.held()}"
        link = next((use for use in self.chain.uses if use.target.name == other), None)
        return f"feeds {other}" if link is None else f"feeds {named(self.plan, link.target, self.at)}: {link.thing}"

    def held(self) -> str:
        """What the run keeps of what the phase gives."""
        kept = [(name, word) for name, word in self.plan.graph.keep if name in given(self.phase)]
        return " and ".join(name if word == "any" else f"{name} at {word}" for name, word in kept) or "what it gives"

    def awaited(self, one: Planned) -> Iterator[str]:
        """What the phase waits for, less what another implies, each with the things it waits for."""
        found: dict[Call, list[Link]] = {}
        for link in self.chain.links:
            word = link.source.name + ("" if link.source.at == self.at else "@previous")
            if word in one.after:
                found.setdefault(link.source, []).append(link)
        return (self.with_things(call, links) for call, links in found.items())

    def fed(self) -> list[str]:
        """Who takes what it gives, each once."""
        found: dict[str, list[Link]] = {}
        for use in self.chain.uses:
            mine = found.setdefault(use.target.name, [use])
            if mine[0].target == use.target and use not in mine:
                mine.append(use)
        told = [self.with_things(uses[0].target, uses) for uses in found.values()]
        sinks = [name for name in self.phase.writes if self.plan.graph.resources[name].kind == "sink"]
        told += [f"the outside world ({name})" for name in sinks]
        return told if len(told) <= USERS else [*told[:USERS], f"and {len(told) - USERS} more"]

    def with_things(self, call: Call, links: list[Link]) -> str:
        """A neighbour, what goes between, and its step where that is another one."""
        where = [] if call.at == self.at else [place(self.plan, call.at)]
        return f"{call.name} ({', '.join([*things(links), *where])})"

    # ---- a phase that does not

    def pruned(self, gone: Pruned | None) -> Iterator[str]:
        if gone is None:
            yield from row("because", f"not due: it is not in {place(self.plan, self.at)}")
            return
        yield from row("because", said(gone))
        if gone.code not in ("not_due", "disabled"):
            yield from row("chain", self.chain.told(gone.code))
        if self.asked.again is not None:
            ways = keepers(self.plan, self.at, self.phase, self.asked.again, self.asked.placements)
            yield from self.told_ways("kept if", ways)

    # ---- what would change it

    def told_ways(self, label: str, ways: list[Way]) -> Iterator[str]:
        if not ways:
            rest = ": the rest of the graph needs it" if self.runs and not self.phase.handoff else " that was tried"
            yield from row(label, f"no single setting{rest}")
        wide = max((len(way.override) for way in ways if len(way.override) <= OVERRIDE), default=0)
        for at, way in enumerate(ways):
            yield from way_rows(label if at == 0 else "", way, wide, self.runs is not None)
        self.offered = ways

    def hint(self) -> Iterator[str]:
        """The command that shows what the first way does."""
        if not self.offered:
            return
        step = [f"step={self.plan.first + self.at - 1}"] if self.title == "step" else []
        words = shlex.join([*self.asked.overrides, *step])
        more = shlex.quote(self.offered[0].override)
        yield f"Compare: stepgraph diff {words + ' ' if words else ''}-- -- {more}"


def doing(one: Fate, mine: Fate) -> str:
    """How a phase fares elsewhere, in a word or two."""
    if one == mine:
        return "as well"
    code, words = str(one[0]), str(one[0]).replace("_", " ")
    if code == mine[0]:
        return f"{words} otherwise"
    return "pruned" if code not in STATES and mine[0] in STATES else words


def things(links: list[Link]) -> list[str]:
    """What stands on the edges from one phase to another: what is taken where anything is, else what is in the way."""
    taken = [link.thing for link in links if link.how in ("reads", "place", "room")]
    return list(dict.fromkeys(taken or [links[0].thing]))


def row(label: str, text: str) -> list[str]:
    """A label and its answer; no answer, no row."""
    if not text:
        return []
    lines = textwrap.wrap(
        arrows_whole(text),
        WIDTH,
        initial_indent=f"  {label:<{LABEL - 2}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(HARD, " ") for line in lines]


def arrows_whole(text: str) -> str:
    """The text with spaces that no line breaks at, inside ``(...)`` of an arrow and before it."""
    return ARROW.sub(lambda found: found[0].replace(" ", HARD), text)


def way_rows(label: str, way: Way, wide: int, runs: bool) -> list[str]:
    """An override, and beside it what it does; below it, where it is long."""
    back = f"brings back {', '.join(way.back)}" if way.back else ""
    out = f"takes out {', '.join(way.out)}" if way.out else ""
    text = "; ".join(filter(None, (out, back) if runs else (back, out)))
    head = f"  {label:<{LABEL - 2}}{way.override:<{wide}}"
    if len(way.override) > wide:
        return [
            head,
            *textwrap.wrap(text, WIDTH, initial_indent=" " * (LABEL + 2), subsequent_indent=" " * (LABEL + 2)),
        ]
    return textwrap.wrap(text, WIDTH, initial_indent=f"{head}  ", subsequent_indent=" " * (LABEL + wide + 2))
