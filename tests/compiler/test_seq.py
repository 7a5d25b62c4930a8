"""Sequences with repetition written once, held against the plain lists they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.compiler.seq import Index, Rep, Seq, join, labels, relabel, rep, repeat, scan, spans, total, whole

LABELS = st.integers(0, 2)


def seqs(depth: int = 2) -> st.SearchStrategy[Seq]:
    node: st.SearchStrategy[int | Rep] = LABELS
    if depth:
        node = st.one_of(LABELS, st.builds(rep, seqs(depth - 1).filter(bool), st.integers(1, 7)))
    return st.lists(node, max_size=4).map(tuple)


def plain(seq: Seq) -> list[int]:
    """The labels one by one."""
    out: list[int] = []
    for node in seq:
        out += [node] if isinstance(node, int) else plain(node.body) * node.count
    return out


def swept(listed: list[int], transfer, state: int, backward: bool) -> tuple[list[int], int]:
    out = []
    for label in reversed(listed) if backward else listed:
        new, state = transfer(label, state)
        out.append(new)
    return out[::-1] if backward else out, state


@given(seqs(), st.lists(st.integers(0, 4), min_size=15, max_size=15), st.booleans(), st.integers(0, 4))
def test_a_sweep_gives_what_a_sweep_over_the_plain_list_gives(
    seq: Seq, table: list[int], backward: bool, state: int
) -> None:
    def transfer(label: int, number: int) -> tuple[int, int]:
        return label * 5 + number, table[label * 5 + number]

    found, end = scan(seq, transfer, state, backward=backward)
    assert (plain(found), end) == swept(plain(seq), transfer, state, backward)


@given(seqs())
def test_a_sweep_over_a_counter_that_never_repeats_is_right_too(seq: Seq) -> None:
    found, end = scan(seq, lambda label, number: (number, number + 1), 0)
    assert plain(found) == list(range(total(seq)))
    assert end == total(seq)


@given(seqs())
def test_the_length_is_that_of_the_plain_list(seq: Seq) -> None:
    assert total(seq) == len(plain(seq))


@given(seqs())
def test_a_position_is_found_without_unrolling(seq: Seq) -> None:
    index = Index(seq)
    assert [index[at] for at in range(index.length)] == plain(seq)


@pytest.mark.parametrize("position", [-1, 6])
def test_a_position_outside_is_an_index_error(position: int) -> None:
    index = Index((rep((0, 1), 3),))
    with pytest.raises(IndexError):
        index[position]


@given(seqs(3), st.integers(0, 9))
def test_spans_cover_every_position_once_with_its_label(seq: Seq, offset: int) -> None:
    covered = [(first + i * stride, label) for label, first, stride, count in spans(seq, offset) for i in range(count)]
    assert sorted(covered) == list(enumerate(plain(seq), offset))


@given(seqs())
def test_labels_are_listed_in_the_order_they_first_come(seq: Seq) -> None:
    assert labels(seq) == list(dict.fromkeys(plain(seq)))


@given(seqs())
def test_relabelling_changes_each_label_by_itself(seq: Seq) -> None:
    assert plain(relabel(seq, lambda label: label + 10)) == [label + 10 for label in plain(seq)]


@given(seqs(), st.integers(-1, 6))
def test_repeating_is_multiplying_the_list(seq: Seq, count: int) -> None:
    assert plain(repeat(seq, count)) == plain(seq) * count


@given(st.lists(seqs(), max_size=4), st.booleans())
def test_joining_is_adding_the_lists(parts: list[Seq], backward: bool) -> None:
    ordered = parts[::-1] if backward else parts
    assert plain(join(parts, backward)) == [label for part in ordered for label in plain(part)]


@given(seqs().filter(bool))
def test_a_chunk_is_one_node_that_stands_for_the_same(seq: Seq) -> None:
    assert len(whole(seq)) == 1
    assert plain(whole(seq)) == plain(seq)


def test_equal_repetitions_are_one_object() -> None:
    assert rep((0, 1), 4) is rep((0, 1), 4)
    assert repeat((rep((0, 1), 4),), 3) == (rep((0, 1), 12),)


def test_neighbours_that_repeat_the_same_join() -> None:
    assert join([(0,), (0,), (rep((0,), 3),)], False) == (rep((0,), 5),)


def test_a_sweep_over_a_billion_steps_visits_few() -> None:
    visited = []

    def transfer(label: int, number: int) -> tuple[int, int]:
        visited.append(label)
        return number, min(number + 1, 3)

    found, end = scan((rep((rep((0,), 1000),), 10**6),), transfer, 0)
    assert (total(found), end) == (10**9, 3)
    assert len(visited) < 10
    assert [Index(found)[at] for at in (0, 1, 2, 3, 10**9 - 1)] == [0, 1, 2, 3, 3]
