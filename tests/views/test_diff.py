"""``diff``: whole comparisons as they are printed, and that they tell what differs, where, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stepgraph.compiler import Plan
from stepgraph.errors import ConfigError
from stepgraph.views.diff import Side, compare, diff_text, joined, ranges
from stepgraph.views.rundir import read_plan, read_run

from .questions import golden, recorded, shipped

SIZES = "placement.sizes={policy: 40, engine: 16, kv: 24}"
AUDIT = "graph.step.audit={use: audit.look, reads: [rollouts], writes: [report], when: {every: 4}}"


def side(*overrides: str, step: int | None = None) -> Side:
    plan: Plan = shipped(*overrides)
    # Through JSON: that is how a run directory has it.
    return Side(json.loads(json.dumps(plan.to_dict())), " ".join(overrides), step)


DIFFS: dict[str, Callable[[], tuple[Side, Side]]] = {
    "placements": lambda: (side("run.steps=36"), side("run.steps=36", "placement=split")),
    "sizes": lambda: (side("run.steps=9", SIZES), side("run.steps=9", SIZES, "placement=split")),
    "steps": lambda: (side("run.steps=36", step=8), side("run.steps=36", step=9)),
    "last_step": lambda: (side("run.steps=36", step=34), side("run.steps=36", step=35)),
    "longer": lambda: (side("run.steps=36"), side("run.steps=100")),
    "added": lambda: (
        side("run.steps=12"),
        side("run.steps=12", AUDIT),
    ),
    "use": lambda: (side("run.steps=12"), side("run.steps=12", "graph.step.score.use=judge.score")),
    "ahead": lambda: (side("run.steps=12", "placement=split"),
                      side("run.steps=12", "placement=split", "graph.step.generate.ahead=1")),
    "apart": lambda: (side("run.steps=4"), side("run.steps=12", "run.first=8")),
    "nothing": lambda: (side("run.steps=36"), side("run.steps=36", "graph.step.eval.when.until=99")),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFS)
def test_a_diff_is_told_as_it_is_written_down(name: str) -> None:
    text = diff_text(compare(*DIFFS[name]()))
    assert text == golden(f"diff_{name}", text)


@pytest.mark.parametrize("name", DIFFS)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    """But for the settings, which are the user's own."""
    lines = diff_text(compare(*DIFFS[name]())).splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith(("A: ", "B: "))] == []
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("name", DIFFS)
def test_the_other_way_round_what_was_added_is_removed(name: str) -> None:
    there, back = compare(*DIFFS[name]()), compare(*reversed(DIFFS[name]()))
    assert (there.count("+"), there.count("-"), there.count("~")) == (back.count("-"), back.count("+"), back.count("~"))
    assert there.differs is back.differs


@pytest.mark.parametrize("name", DIFFS)
def test_a_plan_does_not_differ_from_itself(name: str) -> None:
    for one in DIFFS[name]():
        assert not compare(one, one).differs
        assert diff_text(compare(one, one)).splitlines()[2].startswith("No difference: ")


def test_a_change_is_told_for_the_steps_that_it_holds_in() -> None:
    diff = compare(side("run.steps=40"), side("run.steps=40", "graph.step.save.when.every=10"))
    saves = [(block.where, change.sign) for block in diff.blocks for change in block.changes if change.name == "save"]
    assert saves == [("steps 9, 29", "+")]


def test_a_run_directory_is_as_good_as_the_plan_it_holds(tmp_path: Path) -> None:
    plan = shipped("run.steps=36")
    folder = recorded(tmp_path / "run", plan, ran=2)
    found = compare(Side(read_plan(folder), "run"), side("run.steps=36", "placement=split"))
    assert found.blocks == compare(side("run.steps=36"), side("run.steps=36", "placement=split")).blocks


def test_a_million_steps_are_compared_by_variants() -> None:
    diff = compare(side("run.steps=1000001"), side("run.steps=1000001", "placement=kv_only"))
    assert ("steps 0-999999", "reload_engine") in [(b.where, c.name) for b in diff.blocks for c in b.changes]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([3], "step 3"),
        ([0, 1, 2], "steps 0-2"),
        ([9, 19], "steps 9, 19"),
        ([9, 19, 29], "steps 9, 19, 29"),
        ([9, 19, 29, 39, 40], "steps 9, 19, 29, 39-40"),
        ([0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19], "steps 0-1, 3-4, 6-7, 9-10, 12-13, 15-16, ..."),
    ],
)
def test_many_steps_are_told_in_few_words(steps: list[int], words: str) -> None:
    assert ranges(joined((step, 1) for step in steps)) == words


# ---- mistakes ------------------------------------------------------------------------------------------------------


def test_a_step_past_the_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"step=36 is not in run\.steps=36: its steps are 0 to 35"):
        compare(side("run.steps=36", step=3), side("run.steps=36", step=36))


def test_a_step_on_one_side_only_is_refused() -> None:
    with pytest.raises(ConfigError, match="one side only"):
        compare(side("run.steps=36", step=3), side("run.steps=36"))


def file_at(folder: Path) -> Path:
    folder.write_text("")
    return folder


def holding(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "plan.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder, "does not exist: give the run.dir of a run"),
        (file_at, "is a file, no run directory"),
        (lambda folder: folder.parent, "is no run directory, as it has no plan.json"),
        (lambda folder: holding(folder, "{"), "plan.json is no JSON: "),
        (lambda folder: holding(folder, "[]"), "plan.json is no plan of schema 1"),
        (lambda folder: holding(folder, '{"schema": 2}'), "plan.json is no plan of schema 1"),
        (lambda folder: holding(folder, '{"schema": 1}'), "plan.json is no plan of schema 1"),
    ],
)
def test_what_is_no_run_directory_is_refused_in_one_line(
    make: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read_run(make(tmp_path / "run"))
    assert "\n" not in str(error.value)
