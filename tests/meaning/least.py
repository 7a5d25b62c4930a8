"""The least number of handoff parts that must remain, found exactly, and whether any single part could go.

A dynamic programme over where everything is and what it holds, call by call. Nothing is clever, so it can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

from .machine import Call, Seen, State, Violation, World, advance, begin, kept_at_end, on_device, run

Pair = tuple[str, str]
Reached = dict[Any, tuple[int, State]]
Fits = Callable[[frozenset[str]], bool]


def anything(here: frozenset[str]) -> bool:
    """Where nobody minds what shares the device."""
    return True


def parts(one: Call) -> list[tuple[str, Pair]]:
    """The parts of a handoff: one entry of its moves or its copies each."""
    return [(word, pair) for word in ("moves", "copies") for pair in one.get(word, {}).items()]


def weight(calls: Sequence[Call]) -> int:
    """The number of handoff parts; work that may go counts as one."""
    return sum(cost(one) for one in calls)


def cost(one: Call) -> int:
    if one["kind"] == "handoff":
        return len(parts(one))
    return 1 if one.get("pure") else 0


def needs_now(one: Call, moves: Mapping[str, str]) -> dict[str, str]:
    """What a handoff still needs when only some of its parts remain.

    Its own needs hold for any part. A need that the placement added is there for things that want the device to
    themselves: it remains only while a part that remains puts one of those on the device, or the handoff's own needs
    want one there.
    """
    on = {name for name, place in [*moves.items(), *one["own"].items()] if place == "device"}
    still = {name: "!device" for name, askers in one["room"].items() if on.intersection(askers)}
    return {**one["own"], **still}


def only(one: Call, remaining: Sequence[tuple[str, Pair]]) -> dict[str, Any]:
    """A handoff with only these parts."""
    moves = dict(pair for word, pair in remaining if word == "moves")
    copies = dict(pair for word, pair in remaining if word == "copies")
    return {**one, "moves": moves, "copies": copies, "needs": needs_now(one, moves)}


def choices(one: Call) -> Iterator[tuple[int, Call | None]]:
    """Every way one call may remain, and what it costs. Work that is not pure has one."""
    if one["kind"] == "work":
        yield cost(one), one
        if one.get("pure"):
            yield 0, None
        return
    every = parts(one)
    sizes = (0, len(every)) if one.get("whole") else range(len(every) + 1)
    for remaining in chain.from_iterable(combinations(every, size) for size in sizes):
        yield len(remaining), only(one, remaining) if remaining else None


def least(world: World, calls: Sequence[Call], fits: Fits = anything) -> int:
    """The least weight with which observers see what they see in the declared list, and the device holds what fits."""
    seen = run(world, calls)
    wanted = wanted_from(calls, seen)
    reached: Reached = {"begin": (0, begin(world))}
    for index, one in enumerate(calls):
        reached = fitting(one_call(world, reached, one, seen, wanted[index + 1]), fits)
    return min(price for price, state in reached.values() if keeps(world, state, seen))


def one_call(world: World, reached: Reached, one: Call, seen: Seen, wanted: set[str]) -> Reached:
    """From each state that can be reached before a call, every state that can be reached after it, at least price."""
    out: Reached = {}
    options = list(choices(one))
    for price, state in reached.values():
        for extra, option in options:
            after = attempt(world, state, option, seen)
            if after is None:
                continue
            where = forget(after, wanted)
            if where not in out or out[where][0] > price + extra:
                out[where] = (price + extra, after)
    return out


def fitting(reached: Reached, fits: Fits) -> Reached:
    return {where: found for where, found in reached.items() if fits(on_device(found[1]))}


def attempt(world: World, state: State, option: Call | None, seen: Seen) -> State | None:
    """The state after a call, or nothing where it cannot run there, or where it is work and finds something else."""
    after, found = state.copy(), Seen()
    try:
        if option is not None:
            advance(world, after, option, found)
    except Violation:
        return None
    return after if all(seen.work[who] == what for who, what in found.work.items()) else None


def wanted_from(calls: Sequence[Call], seen: Seen) -> list[set[str]]:
    """For each place in the list, the contents that somebody finds there or later."""
    out = [set(seen.kept.values())]
    for one in reversed(calls):
        found = seen.work.get((one["phase"], one["slot"]), ()) if one["kind"] == "work" else ()
        out.append(out[-1] | {token for _, token in found})
    return out[::-1]


def forget(state: State, wanted: set[str]) -> tuple[Any, ...]:
    """Contents that nobody will look for are all alike, and a value that nobody will look for is not there."""
    lost = [what for what, token in state.token.items() if isinstance(what, tuple) and token not in wanted]
    for what in lost:
        del state.token[what]
    state.token.update({what: "stale" for what, token in state.token.items() if token not in wanted})
    return tuple(sorted(state.place.items())), tuple(sorted((str(what), token) for what, token in state.token.items()))


def keeps(world: World, state: State, seen: Seen) -> bool:
    try:
        return kept_at_end(world, state) == seen.kept
    except Violation:
        return False


def same(world: World, calls: Sequence[Call], seen: Seen, fits: Fits) -> bool:
    """Whether observers see in these calls what ``seen`` tells; work that is pure may be missing."""
    try:
        mine = run(world, calls)
    except Violation:
        return False
    agreed = all(seen.work.get(who) == what for who, what in mine.work.items())
    return agreed and mine.sinks == seen.sinks and mine.kept == seen.kept and all(map(fits, mine.together))


def removable(world: World, calls: Sequence[Call], seen: Seen, fits: Fits = anything) -> list[tuple[str, Any, Any]]:
    """The single parts, whole handoffs and pure work that could still go without anybody telling."""
    out = []
    for index, one in enumerate(calls):
        for what, smaller in smaller_by_one(one):
            rest = [*calls[:index], *([smaller] if smaller else []), *calls[index + 1 :]]
            if same(world, rest, seen, fits):
                out.append((one["phase"], one["slot"], what))
    return out


def smaller_by_one(one: Call) -> Iterator[tuple[Any, Call | None]]:
    if one["kind"] == "work":
        if one.get("pure"):
            yield "all of it", None
        return
    every = parts(one)
    if one.get("whole"):
        yield "all of it", None
        return
    for part in every:
        rest = [other for other in every if other != part]
        yield part, only(one, rest) if rest else None
