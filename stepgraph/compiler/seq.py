"""Long runs kept short: a sequence of labels in which repetition is written once, and the sweep over it.

A run of a million steps has a handful of different ones, so a run is a list of labels and of ``Rep`` nodes (a body and
how often it comes). ``scan`` carries a state along the sequence, from either end, and rewrites each label with the
state it met. Since states are few, a repetition soon meets a state again, and the rest of it is known: the cost of a
sweep depends on the number of different steps, not on the number of steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

Transfer = Callable[[int, int], tuple[int, int]]
"""``(label, state) -> (new label, next state)``. Both are small integers that stand for interned values."""


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
        found += 1 if isinstance(node, int) else node.length
    return found


def repeat(body: Seq, count: int) -> Seq:
    """``body`` repeated, in the shortest spelling."""
    if count <= 0 or not body:
        return ()
    if count == 1:
        return body
    inner = body[0]
    if len(body) == 1 and not isinstance(inner, int):
        return (rep(inner.body, inner.count * count),)
    return (rep(body, count),)


def scan(seq: Seq, transfer: Transfer, state: int, *, backward: bool = False) -> tuple[Seq, int]:
    """Carry ``state`` along ``seq`` (from its end if ``backward``) and rewrite every label with the state it meets."""
    return _Scan(transfer, backward).through(seq, state)


class _Scan:
    """One sweep. What a node becomes from a state is found once and remembered."""

    def __init__(self, transfer: Transfer, backward: bool) -> None:
        self.transfer, self.backward = transfer, backward
        self.known: dict[int, dict[Node, tuple[Seq, int]]] = {}

    def through(self, nodes: Seq, state: int) -> tuple[Seq, int]:
        backward, known = self.backward, self.known
        out: list[Node] = []
        memo = known.setdefault(state, {})
        for node in reversed(nodes) if backward else nodes:
            hit = memo.get(node)
            if hit is None:
                hit = memo[node] = self.visit(node, state)
            out += hit[0]
            if hit[1] != state:
                state = hit[1]
                memo = known.setdefault(state, {})
        return tuple(out[::-1] if backward else out), state

    def visit(self, node: Node, state: int) -> tuple[Seq, int]:
        """What a node becomes, in the order of the sweep."""
        if isinstance(node, int):
            label, after = self.transfer(node, state)
            return (label,), after
        if node.count == 1:
            new, after = self.through(node.body, state)
            return whole(new), after
        new, after = self.unroll(node, state)
        return (new[::-1] if self.backward else new), after

    def unroll(self, node: Rep, state: int) -> tuple[Seq, int]:
        """Go round until a state comes again; the rest repeats what lies between."""
        met: dict[int, int] = {}
        states: list[int] = [state]
        rounds: list[Seq] = []
        while len(rounds) < node.count and state not in met:
            met[state] = len(rounds)
            new, state = self.through(node.body, state)
            rounds.append(new)
            states.append(state)
        if len(rounds) == node.count:
            return join(rounds, self.backward), state
        start = met[state]
        times, rest = divmod(node.count - start, len(rounds) - start)
        cycle = join(rounds[start:], self.backward)
        parts = [*rounds[:start], repeat(cycle, times), *rounds[start : start + rest]]
        return join(parts, self.backward), states[start + rest]


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
    return (node,) if isinstance(node, int) else node.body


def count_of(node: Node) -> int:
    return 1 if isinstance(node, int) else node.count


def same_body(left: Node, right: Node) -> bool:
    """Whether both are a repetition, or one instance, of the same thing."""
    return body_of(left) == body_of(right)


def labels(seq: Seq) -> list[int]:
    """Every different label, in the order of first appearance."""
    seen: dict[int, None] = {}
    met: set[Rep] = set()

    def walk(nodes: Seq) -> None:
        for node in nodes:
            if isinstance(node, int):
                seen.setdefault(node)
            elif node not in met:
                met.add(node)
                walk(node.body)

    walk(seq)
    return list(seen)


def relabel(seq: Seq, change: Callable[[int], int]) -> Seq:
    """Rewrite every label by itself."""
    return scan(seq, lambda label, state: (change(label), state), 0)[0]


class Index:
    """Finds the label at a position. Building it is one pass over the top level; a look-up, a bisection a level."""

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
            if isinstance(node, int):
                return node
            start = bounds[i - 1] if i else 0
            bounds = node.ends
            position = (position - start) % bounds[-1]
            nodes = node.body


def ends(seq: Seq) -> list[int]:
    """The position after each node."""
    return list(accumulate(1 if isinstance(node, int) else node.length for node in seq))


def spans(seq: Seq, offset: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(label, first position, stride, count)`` for every label; what repeats in two strides comes in pieces."""
    for node in seq:
        if isinstance(node, int):
            yield node, offset, 1, 1
            offset += 1
            continue
        length = total(node.body)
        for label, first, stride, count in spans(node.body):
            yield from _repeated((label, offset + first, stride, count), length, node.count)
        offset += node.length


def _repeated(span: tuple[int, int, int, int], length: int, times: int) -> Iterator[tuple[int, int, int, int]]:
    """A span of a body that comes ``times`` times, every ``length`` steps."""
    label, first, stride, count = span
    if count == 1:
        yield label, first, length, times
    elif count * stride == length:
        yield label, first, stride, count * times
    else:
        for offset in range(count):
            yield label, first + offset * stride, length, times
