"""What two plans do differently: phases that one runs and the other does not, and what else changed about the rest.

It compares documents (``Plan.to_dict``), so that a run directory's plan is as good as one compiled now. A change is
told once, with the steps in which it holds; what did not change is not told.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from stepgraph.errors import ConfigError

WIDTH = 80
TOLD = ("use", "after", "moves", "copies", "reads", "writes", "updates", "ahead")
"""What is compared of a phase that both run. Its needs follow from these and from the placement."""
ADDED, REMOVED, CHANGED = "+", "-", "~"
SHOWN = 6
"""At most this many ranges of steps are told."""

Document = Mapping[str, Any]
Section = Mapping[str, Any]
"""One step of a document, or its ``start`` or ``end``: ``phases`` and ``pruned``."""
Pair = tuple[int, int]
"""A variant of A and one of B."""
Stretch = tuple[int, int]
"""A first step, and how many."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its document, what it is called, and the step that is asked about, if only one is."""

    document: Document
    title: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs about one phase. ``what`` is the reason, or the old and the new value."""

    sign: str
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Block:
    """Changes that hold in the same steps, which ``where`` names; empty where that is everywhere."""

    where: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """All that differs between two sides."""

    a: Side
    b: Side
    blocks: tuple[Block, ...]

    @property
    def differs(self) -> bool:
        return bool(self.blocks) or resized(self.a, self.b)

    def count(self, sign: str) -> int:
        """How many phases are added, removed or changed; each counts once, by the most that happens to it."""
        signs: dict[str, set[str]] = {}
        for block in self.blocks:
            for change in block.changes:
                signs.setdefault(change.name, set()).add(change.sign)
        return sum(sign in found if sign != CHANGED else found == {CHANGED} for found in signs.values())


def compare(a: Side, b: Side) -> Diff:
    """Compare two plans, or one step of each."""
    if (a.step is None) != (b.step is None):
        raise ConfigError("step=K stands on one side only: give both sides a step, or neither")
    a, b = (replace(side, document=evened(side.document)) for side in (a, b))
    if a.step is not None and b.step is not None:
        changes = changed(step_of(a, a.step), step_of(b, b.step))
        return Diff(a, b, (Block("", tuple(changes)),) if changes else ())
    return Diff(a, b, tuple(blocks(a.document, b.document)))


def evened(document: Document) -> Document:
    """The document with the waits for earlier steps alike in every variant.

    A variant lists those that its surroundings ask for, and one that is not there is no wait: that two variants meet
    different surroundings is no change of a phase.
    """
    met: dict[str, set[str]] = {}
    for one in document["variants"]:
        for phase in one["phases"]:
            met.setdefault(phase["name"], set()).update(name for name in phase["after"] if "@" in name)
    variants = [{**one, "phases": [waiting(phase, met) for phase in one["phases"]]} for one in document["variants"]]
    return {**document, "variants": variants}


def waiting(phase: Mapping[str, Any], met: Mapping[str, set[str]]) -> dict[str, Any]:
    here = [name for name in phase["after"] if "@" not in name]
    return {**phase, "after": [*here, *sorted(met[phase["name"]])]}


def diff_text(diff: Diff) -> str:
    """Tell a diff to a person."""
    return "\n".join(line.rstrip() for line in lines(diff))


# ---- what differs --------------------------------------------------------------------------------------------------


def blocks(a: Document, b: Document) -> Iterator[Block]:
    """``start``, then the steps grouped by what differs in them, the most first, then ``end``."""
    start, end = (changed(a[title], b[title]) for title in ("start", "end"))
    if start:
        yield Block("start", tuple(start))
    yield from step_blocks(a, b)
    if end:
        yield Block("end", tuple(end))


def step_blocks(a: Document, b: Document) -> list[Block]:
    """The changes that hold in the same steps together, those of the most steps first."""
    met = stretches(a, b)
    where: dict[Change, set[Pair]] = {}
    for pair in dict.fromkeys(pair for pair, _, _ in met):
        for change in changed(variant(a, pair[0]), variant(b, pair[1])):
            where.setdefault(change, set()).add(pair)
    grouped: dict[frozenset[Pair], list[Change]] = {}
    for change, pairs in where.items():
        grouped.setdefault(frozenset(pairs), []).append(change)
    order, total = names(a, b), sum(count for _, _, count in met)
    told = []
    for holds, changes in grouped.items():
        found = joined((start, count) for pair, start, count in met if pair in holds)
        many = sum(count for _, count in found)
        mine = tuple(sorted(changes, key=lambda one: order.index(one.name)))
        told.append((-many, found[0], Block("" if many == total else ranges(found), mine)))
    return [block for _, _, block in sorted(told, key=lambda item: item[:2])]


def stretches(a: Document, b: Document) -> list[tuple[Pair, int, int]]:
    """The variants of both in the steps that both have: each pair with its first step and how many it holds for."""
    first, last = shared(a, b)
    mine, theirs = (variant_of(one)[first - offset(one) : max(last - offset(one), 0)] for one in (a, b))
    found, at = [], first
    for pair, same in groupby(zip(mine, theirs, strict=True)):
        count = sum(1 for _ in same)
        found.append((pair, at, count))
        at += count
    return found


def joined(given: Iterable[Stretch]) -> list[Stretch]:
    """Stretches that follow each other made one."""
    found: list[Stretch] = []
    for start, count in given:
        if found and sum(found[-1]) == start:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((start, count))
    return found


def changed(a: Section, b: Section) -> list[Change]:
    """What differs between two steps, in the order of the phases."""
    mine, theirs = by_name(a["phases"]), by_name(b["phases"])
    found: list[Change] = []
    for name in merged(list(mine), list(theirs)):
        if name not in theirs:
            found.append(Change(REMOVED, name, reason(b, name, "B")))
        elif name not in mine:
            found.append(Change(ADDED, name, reason(a, name, "A")))
        else:
            found += [Change(CHANGED, name, what) for what in differing(mine[name], theirs[name])]
    return found


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for key in TOLD:
        if a.get(key) != b.get(key):
            yield f"{key}: {old_new(key, a.get(key), b.get(key))}"


def old_new(key: str, old: Any, new: Any) -> str:
    """What a value was and is; of a list, what did not change is left out."""
    if not isinstance(old or new, list):
        return f"{spelled(key, old)} -> {spelled(key, new)}"
    gone = [one for one in old or () if one not in (new or ())]
    come = [one for one in new or () if one not in (old or ())]
    if gone and come:
        return f"{', '.join(gone)} -> {', '.join(come)}"
    return f"no longer {', '.join(gone)}" if gone else f"also {', '.join(come)}"


def spelled(key: str, value: Any) -> str:
    """A value in the words of the plan's table."""
    if isinstance(value, Mapping):
        return " ".join(f"{v}>>{k}" if key == "copies" else f"{k}>{v}" for k, v in value.items())
    return str(value or "-")


def reason(section: Section, name: str, side: str) -> str:
    """Why a side does not run a phase, in its plan's words."""
    gone = by_name(section["pruned"]).get(name)
    if gone is None:
        return f"not in {side}"
    code = str(gone["code"])
    said = str(gone["reason"]).partition(";")[0] if code == "not_due" else str(gone["reason"])
    word = code.replace("_", " ")
    return f"{word} in {side}: {said.removeprefix(f'{word}: ')}"


# ---- documents -----------------------------------------------------------------------------------------------------


def by_name(entries: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(one["name"]): one for one in entries}


def merged(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """The names of both in an order that keeps each one's own, as far as they agree."""
    found = list(a)
    for at, name in enumerate(b):
        if name not in found:
            before = [one for one in b[:at] if one in found]
            found.insert(found.index(before[-1]) + 1 if before else 0, name)
    return found


def names(a: Document, b: Document) -> list[str]:
    """Every name in a step of either."""
    found: list[str] = []
    for document in (a, b):
        for one in document["variants"]:
            found = merged(found, list(by_name(one["phases"])))
    return found


def variant_of(document: Document) -> list[int]:
    """The variant of each step, the run's first step first."""
    first, steps = offset(document), int(document["run"]["steps"])
    found = [0] * max(steps - first, 0)
    for one in document["variants"]:
        for given in one["steps"]:
            at = slice(given["from"] - first, given["to"] - first + 1, given["every"])
            found[at] = [int(one["id"])] * len(range(*at.indices(len(found))))
    return found


def offset(document: Document) -> int:
    return int(document["run"]["first"])


def shared(a: Document, b: Document) -> tuple[int, int]:
    """The steps that both runs have: the first one, and the one after the last."""
    return max(offset(a), offset(b)), min(int(a["run"]["steps"]), int(b["run"]["steps"]))


def variant(document: Document, number: int) -> Section:
    return next(one for one in document["variants"] if one["id"] == number)


def step_of(side: Side, step: int) -> Section:
    """One step of a document; one that is not in it is refused."""
    first, steps = offset(side.document), int(side.document["run"]["steps"])
    if not first <= step < steps:
        raise ConfigError(f"step={step} is not in {side.title}: its steps are {first} to {steps - 1}")
    return variant(side.document, variant_of(side.document)[step - first])


def resized(a: Side, b: Side) -> bool:
    """Whether one run has steps that the other has not."""
    return a.step is None and a.document["run"] != b.document["run"]


# ---- in words ------------------------------------------------------------------------------------------------------


def ranges(steps: Sequence[Stretch]) -> str:
    """Many steps in few words: single ones at equal distances are told as such."""
    words: list[str] = []
    at = 0
    while at < len(steps) and len(words) < SHOWN:
        end = even(steps, at)
        first, last = steps[at][0], sum(steps[end - 1]) - 1
        words.append(span(first, last, steps[at + 1][0] - first if end - at > 1 else 1))
        at = end
    more = ["..."] if at < len(steps) else []
    one = len(steps) == 1 and steps[0][1] == 1
    return f"{'step' if one else 'steps'} {', '.join([*words, *more])}"


def even(steps: Sequence[Stretch], at: int) -> int:
    """Where a row of single steps at equal distances ends that begins at ``at``; of fewer than three, after one."""
    end = at
    while end < len(steps) and steps[end][1] == 1:
        if end - at >= 2 and steps[end][0] - steps[end - 1][0] != steps[at + 1][0] - steps[at][0]:
            break
        end += 1
    return end if end - at >= 3 else at + 1


def span(first: int, last: int, stride: int) -> str:
    if stride == 1:
        return str(first) if first == last else f"{first}-{last}"
    if last <= first + 2 * stride:
        return ", ".join(map(str, range(first, last + 1, stride)))
    return f"{first}, {first + stride}, ..., {last}"


def lines(diff: Diff) -> Iterator[str]:
    yield f"A: {diff.a.title}"
    yield f"B: {diff.b.title}"
    if not diff.differs:
        yield "No difference: both run the same phases, and each waits for the same."
        return
    if resized(diff.a, diff.b):
        yield "Steps: " + " -> ".join(length(side.document) for side in (diff.a, diff.b)) + only(diff)
    alone = len(diff.blocks) == 1 and not diff.blocks[0].where
    wide = max((len(change.name) for block in diff.blocks for change in block.changes), default=0)
    for block in diff.blocks:
        yield ""
        if not alone:
            yield block.where[0].upper() + block.where[1:] if block.where else "Every step"
        for change in block.changes:
            yield from change_lines(change, wide)
    yield ""
    yield from textwrap.wrap(tail(diff), WIDTH)


def length(document: Document) -> str:
    run = document["run"]
    return f"{run['first']}-{run['steps'] - 1}" if run["steps"] > run["first"] else "none"


def only(diff: Diff) -> str:
    first, last = shared(diff.a.document, diff.b.document)
    return f" (compared: {first}-{last - 1})" if last > first else " (none in both)"


def change_lines(change: Change, wide: int) -> list[str]:
    what = change.what if change.sign == CHANGED else f"({change.what})"
    head = f"  {change.sign} {change.name:<{wide}}  "
    return textwrap.wrap(
        what,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def tail(diff: Diff) -> str:
    said = f"Diff: {diff.count(ADDED)} added, {diff.count(REMOVED)} removed, {diff.count(CHANGED)} changed"
    numbers = [] if diff.a.step is not None else list(totals(diff.a.document, diff.b.document))
    return "; ".join([said, *numbers]) + "."


def totals(a: Document, b: Document) -> Iterator[str]:
    """What the whole run comes to, where that differs or is worth saying."""
    runs = [one["totals"]["phase_runs"] for one in (a, b)]
    yield f"phase runs {runs[0]:,} -> {runs[1]:,}"
    peaks = [one.get("peak", {}).get("device_gib") for one in (a, b)]
    if None not in peaks:
        yield f"peak {peaks[0]:g} -> {peaks[1]:g} GiB on device"
