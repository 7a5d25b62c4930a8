"""Counts what the loops of miles and slime call, and what of it serves nobody, over the recorded configurations.

``python benchmarks/peers_table.py`` prints the tables of ``docs/peers.md``; ``--write`` puts them there. Every number
comes from plans: a call is declared where ``passes=[]`` has it and left where the passes keep it, and the class of one
that is dropped follows from the plan's code for it and from where in the run it stands.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from stepgraph.adapters import miles, slime
from stepgraph.adapters.recorded import NAMES
from stepgraph.compiler.compile import Done
from stepgraph.compiler.dead import GONE
from stepgraph.compiler.plan import Plan
from stepgraph.compiler.reasons import codes
from stepgraph.compiler.seq import Index

ROOT = Path(__file__).parents[1]
DOC = ROOT / "docs" / "peers.md"
LOOPS = ("miles_sync", "miles_async", "slime_sync", "slime_async")
CLASSES = (
    "last step", "debug exit", "nothing to run", "critic warm-up", "there and back", "overwritten", "never left",
)  # fmt: skip
BEGIN, END = "<!-- tables: python benchmarks/peers_table.py --write -->\n", "<!-- end of tables -->\n"

PlanOf = Callable[[str, int], Plan]


@cache
def configurations(loop: str) -> list[dict[str, Any]]:
    with lzma.open(ROOT / "tests" / "vectors" / f"{loop}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["config"] for line in lines]


def plan_of(loop: str, number: int) -> Plan:
    return (miles if loop in miles.LOOPS else slime).plan(loop, configurations(loop)[number])


# ---- one run -------------------------------------------------------------------------------------------------------


def handoffs(plan: Plan, cut: bool) -> Iterator[tuple[str, str]]:
    """Every declared handoff call: its name as it was recorded, and the class it is dropped for, or nothing."""
    index = Index(plan.seq)
    done = [plan.done[index[at]] for at in range(index.length)]
    for at, step in enumerate(done):
        found = dict(codes(plan.layout, step))
        for i, op in enumerate(step.shape.ops):
            if op.handoff:
                kind = "" if step.kept[i] != GONE else class_of(done, at, i, found, cut)
                yield NAMES.get(op.name, op.name), kind


def class_of(done: list[Done], at: int, i: int, found: dict[str, str], cut: bool) -> str:
    """What kind of waste a dropped call is. ``cut``: whether a debug exit ends the run."""
    code = found[done[at].shape.ops[i].name]
    if at == 0:
        return "nothing to run"
    if code == "same_contents" or (code == "only_feeds_pruned" and "same_contents" in found.values()):
        return "critic warm-up"
    if code == "already_there":
        return "there and back" if sent_away(done, at, i) else "never left"
    if next(others_of(done, at, i, "moves"), None) is not None:
        return "there and back"
    if any(kept != GONE for kept in others_of(done, at, i, "copies")):
        return "overwritten"
    return "debug exit" if cut else "last step"


def others_of(done: list[Done], at: int, i: int, word: str) -> Iterator[int]:
    """What is kept of each later call that moves, or copies into, the same things."""
    mine = dict(getattr(done[at].shape.ops[i].phase, word))
    for k, step in enumerate(done[at:]):
        for j, (op, kept) in enumerate(zip(step.shape.ops, step.kept, strict=True)):
            if (k or j > i) and mine.keys() & dict(getattr(op.phase, word)).keys():
                yield kept


def sent_away(done: list[Done], at: int, i: int) -> bool:
    """Whether the step moved the same things away before, in a call that is dropped as well."""
    step = done[at]
    mine = dict(step.shape.ops[i].phase.moves)
    before = zip(step.shape.ops[:i], step.kept[:i], strict=True)
    return any(kept == GONE and mine.keys() & dict(op.phase.moves).keys() for op, kept in before)


def cut_short(config: dict[str, Any]) -> bool:
    """Whether the loop leaves before ``num_rollout``."""
    total, leaves = config["num_rollout"], config["debug_exit_after_rollout"]
    return leaves is not None and config["start_rollout_id"] + leaves < total


# ---- the tables ----------------------------------------------------------------------------------------------------


def counted(loop: str, plans: PlanOf) -> tuple[Counter[tuple[str, str]], Counter[str], int]:
    """How often each call is left or dropped, in how many configurations a class occurs, how many plans warn."""
    calls: Counter[tuple[str, str]] = Counter()
    runs: Counter[str] = Counter()
    stale = 0
    for number, config in enumerate(configurations(loop)):
        plan = plans(loop, number)
        met = Counter(handoffs(plan, cut_short(config)))
        calls += met
        runs.update({kind for _, kind in met if kind})
        runs["dropped"] += any(kind for _, kind in met)
        stale += any("stale weights" in warning for warning in plan.warnings)
    return calls, runs, stale


def table(loop: str, plans: PlanOf) -> Iterator[str]:
    """The table of one loop: a row a call, and one for how many configurations a class occurs in."""
    calls, runs, stale = counted(loop, plans)
    shown = [kind for kind in CLASSES if runs[kind]]
    yield f"**{loop}**, {len(configurations(loop))} configurations"
    yield ""
    yield f"| handoff call | declared | left | {' | '.join(shown)} |"
    yield "|---|" + "---:|" * (2 + len(shown))
    for name in dict.fromkeys(name for name, _ in calls):
        yield row(name, [sum(n for (who, _), n in calls.items() if who == name), calls[name, ""]], calls, shown)
    totals = Counter({("all", kind): 0 for kind in shown})
    for (_, kind), count in calls.items():
        totals["all", kind] += count
    yield row("all", [sum(calls.values()), totals["all", ""]], totals, shown)
    yield f"| in configurations | | | {' | '.join(str(runs[kind]) for kind in shown)} |"
    yield ""
    dropped = sum(calls.values()) - totals["all", ""]
    yield (
        f"{dropped:,} of {sum(calls.values()):,} handoff calls ({dropped / sum(calls.values()):.0%}) serve nobody, "
        f"in {runs['dropped']} configurations. Stale evals: the plan warns in {stale}."
    )


def row(name: str, numbers: list[int], calls: Counter[tuple[str, str]], shown: list[str]) -> str:
    cells = [*map(str, numbers), *(str(calls[name, kind] or "") for kind in shown)]
    return f"| {name} | {' | '.join(cells)} |"


def tables(plans: PlanOf = plan_of) -> str:
    """All of them, as they stand in the document."""
    return "\n".join("\n".join((*table(loop, plans), "")) for loop in LOOPS)


def write(text: str) -> None:
    before, rest = DOC.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    DOC.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    found = tables()
    write(found) if "--write" in sys.argv[1:] else print(found)
