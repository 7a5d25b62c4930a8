"""Long runs kept short: a sequence of labels in which repetition is written once, and the sweep over it.

A run of a million steps has a handful of different ones, so a run is a list of labels and of ``Rep`` nodes (a body and
how often it comes). ``scan`` carries a state along the sequence, from either end, and rewrites each label with the state
it met. Since states are few, a repetition soon meets a state again, and the rest of it is known: the cost of a sweep
depends on the number of different steps, not on the number of steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

Transfer = Callable[[int, int], tuple[int, int]]
"""``(label, state) -> (new label, next state)``. Labels and states are small integers that stand for interned values."""


class Rep:
    """``body`` repeated ``count`` times. Equal ones are one object (see ``rep``), so that a sweep can remember them."""

    __slots__ = ("body", "count", "length")

    def __init__(self, body: tuple[Node, ...], count: int) -> None:
        self.body = body
        self.count = count
        self.length = count * total(body)


Node = int | Rep
Seq = tuple[Node, ...]


@lru_cache(maxsize=1 << 16)
def rep(body: Seq, count: int) -> Rep:
    """Return the one ``Rep`` of this body and count."""
    return Rep(body, count)


def total(seq: Sequence[Node]) -> int:
    """How many labels the sequence stands for."""
    return sum(1 if type(node) is int else node.length for node in seq)  # type: ignore[union-attr]


def repeat(body: Seq, count: int) -> Seq:
    """``body`` repeated, in the shortest spelling."""
    if count <= 0 or not body:
        return ()
    if count == 1:
        return body
    if len(body) == 1 and type(body[0]) is not int:
        inner = body[0]
        return (rep(inner.body, inner.count * count),)
    return (rep(body, count),)


def scan(seq: Seq, transfer: Transfer, state: int, *, backward: bool = False) -> tuple[Seq, int]:
    """Carry ``state`` along ``seq`` (from its end if ``backward``) and rewrite every label with the state it meets."""
    memo: dict[tuple[Node, int], tuple[Seq, int]] = {}

    def visit(node: Node, state: int) -> tuple[Seq, int]:
        if type(node) is int:
            label, after = transfer(node, state)
            return (label,), after
        return unroll(node, state)  # type: ignore[arg-type]

    def body(nodes: Seq, state: int) -> tuple[Seq, int]:
        out: list[Node] = []
        for node in reversed(nodes) if backward else nodes:
            key = (node, state)
            hit = memo.get(key)
            if hit is None:
                hit = memo[key] = visit(node, state)
            new, state = hit
            out.extend(new if not backward else new[::-1])
        return (tuple(out[::-1]) if backward else tuple(out)), state

    def unroll(node: Rep, state: int) -> tuple[Seq, int]:
        met: dict[int, int] = {}
        states, rounds = [state], []
        while len(rounds) < node.count and state not in met:
            met[state] = len(rounds)
            new, state = body(node.body, state)
            rounds.append(new)
            states.append(state)
        if len(rounds) == node.count:
            return join(rounds, backward), state
        start = met[state]
        times, rest = divmod(node.count - start, len(rounds) - start)
        cycle = join(rounds[start:], backward)
        parts = [*rounds[:start], repeat(cycle, times), *rounds[start : start + rest]]
        return join(parts, backward), states[start + rest]

    return body(seq, state)


def join(parts: list[Seq], backward: bool) -> Seq:
    """String parts together in the order of the run; a part that only repeats its neighbour joins it."""
    out: list[Node] = []
    for part in reversed(parts) if backward else parts:
        for node in part:
            if out and same_body(out[-1], node):
                out[-1] = repeat(body_of(node), count_of(out[-1]) + count_of(node))[0]
            else:
                out.append(node)
    return tuple(out)


def body_of(node: Node) -> Seq:
    return (node,) if type(node) is int else node.body  # type: ignore[union-attr]


def count_of(node: Node) -> int:
    return 1 if type(node) is int else node.count  # type: ignore[union-attr]


def same_body(left: Node, right: Node) -> bool:
    """Whether both are a repetition, or one instance, of the same thing."""
    return body_of(left) == body_of(right)


def labels(seq: Seq) -> list[int]:
    """Every different label, in the order of first appearance."""
    seen: dict[int, None] = {}
    met: set[Rep] = set()

    def walk(nodes: Seq) -> None:
        for node in nodes:
            if type(node) is int:
                seen.setdefault(node)
            elif node not in met:
                met.add(node)  # type: ignore[arg-type]
                walk(node.body)  # type: ignore[union-attr]

    walk(seq)
    return list(seen)


def relabel(seq: Seq, change: Callable[[int], int]) -> Seq:
    """Rewrite every label by itself."""
    return scan(seq, lambda label, state: (change(label), state), 0)[0]


class Index:
    """Finds the label at a position. Building it costs one pass over the top level; a look-up is a bisection a level."""

    def __init__(self, seq: Seq) -> None:
        self.seq = seq
        self._ends: dict[Seq, list[int]] = {}
        self.length = self.ends(seq)[-1] if seq else 0

    def ends(self, seq: Seq) -> list[int]:
        found = self._ends.get(seq)
        if found is None:
            lengths = (1 if type(node) is int else node.length for node in seq)  # type: ignore[union-attr]
            found = self._ends[seq] = list(accumulate(lengths))
        return found

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.length:
            raise IndexError(position)
        seq, ends = self.seq, self.ends(self.seq)
        while True:
            i = bisect_right(ends, position)
            node = seq[i]
            if type(node) is int:
                return node
            position -= ends[i - 1] if i else 0
            seq = node.body  # type: ignore[union-attr]
            ends = self.ends(seq)
            position %= ends[-1]


def spans(seq: Seq, offset: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(label, first position, stride, count)`` for every label, repetition of repetition spelled out one level."""
    for node in seq:
        if type(node) is int:
            yield node, offset, 1, 1
            offset += 1
            continue
        inner = list(spans(node.body))  # type: ignore[union-attr]
        length = total(node.body)  # type: ignore[union-attr]
        for label, first, stride, count in inner:
            yield from _repeated(label, offset + first, stride, count, length, node.count)  # type: ignore[union-attr]
        offset += node.length  # type: ignore[union-attr]


def _repeated(label: int, first: int, stride: int, count: int, length: int, times: int) -> Iterator[tuple[int, int, int, int]]:
    if count == 1:
        yield label, first, length, times
    elif count * stride == length:
        yield label, first, stride, count * times
    else:
        for offset in range(count):
            yield label, first + offset * stride, length, times
