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

    __slots__ = ("_ends", "body", "count", "length")

    def __init__(self, body: tuple[Node, ...], count: int) -> None:
        self.body = body
        self.count = count
        self.length = count * total(body)
        self._ends: list[int] | None = None

    @property
    def ends(self) -> list[int]:
        """The position after each node of the body."""
        if self._ends is None:
            self._ends = ends(self.body)
        return self._ends


Node = int | Rep
Seq = tuple[Node, ...]


@lru_cache(maxsize=1 << 16)
def rep(body: Seq, count: int) -> Rep:
    """Return the one ``Rep`` of this body and count."""
    return Rep(body, count)


def total(seq: Sequence[Node]) -> int:
    """How many labels the sequence stands for."""
    found = 0
    for node in seq:
        found += 1 if type(node) is int else node.length  # type: ignore[union-attr]
    return found


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
    known: dict[int, dict[Node, tuple[Seq, int]]] = {}

    def visit(node: Node, state: int) -> tuple[Seq, int]:
        if type(node) is int:
            label, after = transfer(node, state)
            return (label,), after
        return unroll(node, state)  # type: ignore[arg-type]

    def body(nodes: Seq, state: int) -> tuple[Seq, int]:
        out: list[Node] = []
        memo = known.setdefault(state, {})
        for node in reversed(nodes) if backward else nodes:
            hit = memo.get(node)
            if hit is None:
                new, after = visit(node, state)
                hit = memo[node] = new[::-1] if backward else new, after
            out += hit[0]
            if hit[1] != state:
                state = hit[1]
                memo = known.setdefault(state, {})
        return (tuple(out[::-1]) if backward else tuple(out)), state

    def unroll(node: Rep, state: int) -> tuple[Seq, int]:
        if node.count == 1:
            new, state = body(node.body, state)
            return whole(new), state
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


def whole(seq: Seq) -> Seq:
    """A chunk as one node, so that a sweep remembers it as a whole."""
    return seq if len(seq) == 1 else (rep(seq, 1),)


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
        self.ends = ends(seq)
        self.length = self.ends[-1] if seq else 0

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.length:
            raise IndexError(position)
        nodes, bounds = self.seq, self.ends
        while True:
            i = bisect_right(bounds, position)
            node = nodes[i]
            if type(node) is int:
                return node
            start = bounds[i - 1] if i else 0
            bounds = node.ends  # type: ignore[union-attr]
            position = (position - start) % bounds[-1]
            nodes = node.body  # type: ignore[union-attr]


def ends(seq: Seq) -> list[int]:
    """The position after each node."""
    return list(accumulate(1 if type(node) is int else node.length for node in seq))  # type: ignore[union-attr]


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
