"""Two plans in one scene: both have the same layout, so that turning from one to the other shows what differs.

A phase has its place in both, also where only one of the two lists has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stepgraph.compiler.plan import Plan
from stepgraph.views.scene import Box, Picture, Scene
from stepgraph.views.scene_plan import Reader, drafts_of, laid_out

SIDES = ("A", "B")


def scene_of_two(plans: tuple[Plan, Plan], titles: tuple[str, str], steps: tuple[int | None, int | None]) -> Scene:
    """Lay out two plans together. ``steps`` are what is compared of each; without any, equal steps are."""
    wanted = [plan.step(step).variant if step is not None else 1 for plan, step in zip(plans, steps, strict=True)]
    drafts = [drafts_of(Reader(*each)) for each in zip(plans, wanted, steps, strict=True)]
    sheets, laid = laid_out([*drafts[0], *drafts[1]])
    first = tuple(named(laid[: len(drafts[0])], SIDES[0]))
    second = tuple(named(laid[len(drafts[0]) :], SIDES[1]))
    pictures = (
        *(beside(one, match(one, second, steps, 0), SIDES[1]) for one in first),
        *(beside(one, match(one, first, steps, 1), SIDES[0]) for one in second),
    )
    return Scene(
        graph=plans[0].graph.name,
        placement="",
        source="",
        first=min(plan.first for plan in plans),
        steps=max(plan.steps for plan in plans),
        sheets=sheets,
        pictures=pictures,
        shown=next((i for i, one in enumerate(first) if one.variant == wanted[0]), 0),
        sides=tuple(f"{side}: {title}" for side, title in zip(SIDES, titles, strict=True)),
    )


def named(pictures: Sequence[Picture], side: str) -> Iterator[Picture]:
    """The pictures of one plan, with its letter."""
    for one in pictures:
        yield replace(one, title=f"{side}: {one.title}", side=side)


def match(one: Picture, others: Sequence[Picture], steps: Sequence[int | None], mine: int) -> Picture | None:
    """What a picture is compared with: the step that was asked for, or the same step, or the same list."""
    asked = steps[1 - mine]
    step = asked if asked is not None else one.spans[0][0] if one.spans else None
    same = (other for other in others if other.section == one.section)
    return next((other for other in same if step is None or one.section != "step" or holds(other, step)), None)


def holds(picture: Picture, step: int) -> bool:
    """Whether a step is one of those that a picture shows."""
    return any(first <= step <= last and (step - first) % every == 0 for first, last, every in picture.spans)


def beside(one: Picture, other: Picture | None, side: str) -> Picture:
    """A picture with what each of its boxes is in the other."""
    if other is None:
        return one
    found = {box.name: box for box in other.boxes}
    return replace(one, boxes=tuple(replace(box, other=told(box, found.get(box.name), side)) for box in one.boxes))


def told(mine: Box, other: Box | None, side: str) -> str:
    """What a phase is in the other plan, where that is not the same."""
    if other is None:
        return f"not in the list of {side}"
    if mine.runs != other.runs:
        return f"runs in {side}" if other.runs else f"not in {side}: {other.reason}"
    if not mine.runs:
        return "" if mine.code == other.code else f"in {side}: {other.reason}"
    if mine.does != other.does:
        return f"in {side}: {other.does}"
    return "" if mine.after == other.after else f"in {side} it waits for {', '.join(other.after) or 'nothing'}"
