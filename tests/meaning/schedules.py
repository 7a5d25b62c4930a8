"""When phases are due and how long a run is, as people write it: drawn gates and runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


@st.composite
def gates(draw: st.DrawFn, others: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """A gate, or nothing at all; mostly what people write, with the odd trigger that is named and off."""
    if draw(st.booleans()):
        return None
    small = st.integers(1, 4)
    words: dict[str, st.SearchStrategy[Any]] = {
        "every": st.one_of(small, small, st.none()),
        "last": st.booleans(),
        "first": st.booleans(),
        "steps": st.lists(st.integers(0, 5), max_size=3, unique=True),
        "from": st.integers(0, 3),
        "until": st.integers(1, 5),
        **({"with": st.sampled_from(others)} if others else {}),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(words)), min_size=1, max_size=3, unique=True))
    return {word: draw(words[word]) for word in chosen}


@st.composite
def runs(draw: st.DrawFn, most: int = 5) -> dict[str, Any]:
    """A run's length as steps, or as epochs with a cap; now and then resumed."""
    steps = draw(st.sampled_from([most, *range(1, most), *range(2, most), 0]))
    first = draw(st.integers(0, steps)) if draw(st.integers(0, 3)) == 3 else 0
    if draw(st.integers(0, 5)) == 5:
        return {
            "steps": most,
            "epochs": draw(st.integers(1, 2)),
            "steps_per_epoch": draw(st.integers(1, 2)),
            "first": 0,
        }
    return {"steps": steps, "first": first}
