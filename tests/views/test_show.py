"""Pictures of plans: what is drawn, that nothing lies on anything else, and that long runs make short files."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import stepgraph
from stepgraph import spec
from stepgraph.api import names
from stepgraph.compiler import Plan
from stepgraph.views.dot import dot
from stepgraph.views.html import html, page_data
from stepgraph.views.layout import WIDE, place
from stepgraph.views.mermaid import mermaid
from stepgraph.views.scene import Picture, Scene, Sheet
from stepgraph.views.scene_json import scene_json
from stepgraph.views.scene_pair import scene_of_two
from stepgraph.views.scene_plan import scene_of
from stepgraph.views.svg import svg

GOLDEN = Path(__file__).parent / "golden"
SIZES = ("placement.sizes={policy: 48, engine: 16, kv: 24}", "placement.capacity={device: 80}")
EVIL = "</script><b>bold</b> \"'\\ & #quot; ]] `x` %% \x00\ud800 end"
WRITERS = {"svg": svg, "mmd": mermaid, "dot": dot}


def shipped(*overrides: str, graph: str = "grpo", steps: int = 36) -> Plan:
    return stepgraph.compile(stepgraph.load(graph, ["placement=colocated", *overrides]), steps=steps)


def made(step: dict[str, Any], steps: int = 3, resources: Any = None, **more: Any) -> Plan:
    phases = {name: {"use": f"{name}.run", **words} for name, words in step.items()}
    return stepgraph.compile(
        spec.parse({"name": "made", "resources": resources or {}, "step": phases, **more}, None, {"steps": steps})
    )


def many(count: int) -> Plan:
    """A step of many phases that read what a few of those before them write."""
    pick, step = random.Random(7), {}
    for i in range(count):
        reads = sorted({f"v{pick.randrange(max(0, i - 12), i)}" for _ in range(2)}) if i else []
        step[f"p{i}"] = (
            {"reads": reads, "writes": [f"v{i}"], "when": {"every": 1 + i % 3}}
            if i % 7 == 6
            else {"reads": reads, "writes": [f"v{i}"]}
        )
    return made(
        {name: {**words, "reads": [r for r in words["reads"] if int(r[1:]) % 7 != 6]} for name, words in step.items()}
    )


SCENES = {"show_step": (SIZES, None), "show_last_step": (SIZES, 35)}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_drawn_like_this(name: str, ending: str) -> None:
    overrides, step = SCENES[name]
    drawn = WRITERS[ending](scene_of(shipped(*overrides), step))
    assert drawn == (GOLDEN / f"{name}.{ending}").read_text(encoding="utf-8")


# ---- what is drawn


def states(picture: Picture) -> dict[str, str]:
    return {box.name: box.state for box in picture.boxes}


def test_every_phase_of_the_list_has_a_box_in_every_variant() -> None:
    plan = shipped()
    steps = [one for one in scene_of(plan).pictures if one.section == "step"]
    assert len(steps) == len(plan.variants) == 4
    for one in steps:
        assert list(states(one)) == [phase.name for phase in plan.graph.step]


def test_the_boxes_say_what_the_plan_says() -> None:
    plan = shipped()
    for one, variant in zip(scene_of(plan).pictures[1:], plan.variants, strict=True):
        assert [b.name for b in one.boxes if b.runs] == [p.name for p in variant.phases]
        assert {b.name: (b.code, b.kept_if) for b in one.boxes if not b.runs} == {
            p.name: (p.code, p.kept_if) for p in variant.pruned
        }
        waits = {(before, p.name) for p in variant.phases for before in p.after if "@" not in before}
        assert {(line.source, line.target) for line in one.lines if line.state == "kept"} == waits


def test_what_does_not_run_is_tied_in_where_it_would_stand() -> None:
    last = scene_of(shipped(), 35).picture
    grey = {(line.source, line.target) for line in last.lines if line.state == "pruned"}
    assert ("save", "offload_policy") in grey
    assert ("sync_weights", "reload_kv") in grey
    assert not any(states(last)[source] == states(last)[target] == "kept" for source, target in grey)


def test_without_a_step_what_the_last_one_leaves_out_is_marked() -> None:
    marked = {box.name for box in scene_of(shipped()).picture.boxes if box.ends}
    assert marked == {"offload_policy", "reload_engine", "sync_weights", "reload_kv"}
    assert not any(box.ends for box in scene_of(shipped(), 0).picture.boxes)


def test_a_step_tells_its_own_reasons() -> None:
    save = next(box for box in scene_of(shipped(), 30).picture.boxes if box.name == "save")
    assert "next in step 35" in save.reason


def test_a_handoff_that_lost_a_part_is_drawn_as_running_with_what_it_lost() -> None:
    step = {
        "use": {"reads": ["x"], "updates": ["y"], "needs": {"x": "device"}},
        "away": {"moves": {"x": "host", "y": "host"}},
        "work": {"updates": ["y"], "needs": {"x": "host"}},
        "back": {"moves": {"x": "device"}},
    }
    plan = made(step, resources={"x": {"kind": "state", "at": "device"}, "y": {"kind": "state", "at": "device"}})
    away = next(box for box in scene_of(plan, 0).picture.boxes if box.name == "away")
    assert (away.state, away.does, away.dropped) == ("kept", "x>host", ("y>host (no consumer)",))


def test_a_phase_that_only_the_run_decides_is_drawn_as_one_that_may_run() -> None:
    box = scene_of(made({"a": {"writes": ["v"], "when": {"file": "now"}}})).picture.boxes[0]
    assert (box.state, box.word, box.reason) == ("maybe", "may run: a.run", "it runs if file=now")


def test_the_strip_follows_every_resource_through_the_step() -> None:
    strip = scene_of(shipped(*SIZES)).picture.strip
    rows = {row.name: [after for _, after in row.places] for row in strip.rows}
    assert strip.phases[:3] == ("generate", "offload_engine", "reload_policy")
    assert rows["policy"] == ["host"] * 2 + ["device"] * 3 + ["host"] * 4
    assert rows["kv"] == ["device"] + ["none"] * 7 + ["device"]
    assert [after for _, after in strip.load] == [40, 0, 48, 48, 48, 0, 16, 16, 40]
    assert (strip.capacity, strip.unknown) == (80, ())


def test_the_highest_load_of_the_strips_is_the_peak_of_the_plan() -> None:
    plan = shipped(*SIZES)
    loads = [load for one in scene_of(plan).pictures for pair in one.strip.load for load in pair]
    assert max(loads) == plan.peak("device")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_in_which_little_happens_has_a_picture(steps: int) -> None:
    plan = made({"a": {"writes": ["x"], "enabled": steps > 0}}, steps=steps)
    scene = scene_of(plan)
    assert [box.name for box in scene.picture.boxes] == ["a"] * steps
    for write in (*WRITERS.values(), html, scene_json):
        assert write(scene)


# ---- two plans in one scene


def pair(a: Plan, b: Plan, steps: tuple[int | None, int | None] = (None, None)) -> dict[str, dict[str, str]]:
    """What differs, by the title of the picture."""
    scene = scene_of_two((a, b), ("one", "two"), steps)
    assert overlapping(scene.sheet) == []
    return {one.title[:12]: {box.name: box.other for box in one.boxes if box.other} for one in scene.pictures}


def test_two_placements_are_compared_step_by_step() -> None:
    found = pair(shipped(), shipped("placement=split"))
    assert found["A: Variant 1"]["reload_policy"] == "not in B: already there: policy is at device"
    assert found["A: Variant 1"]["train"] == "in B it waits for score"
    assert found["B: Variant 1"]["reload_policy"] == "runs in A"
    assert "generate" not in found["A: Variant 1"]


def test_a_phase_of_one_list_alone_is_said_to_be_so() -> None:
    found = pair(shipped("graph.step.audit={use: a.b, reads: [rollouts]}"), shipped())
    assert found["A: Variant 1"] == {"audit": "not in the list of B"}


def test_two_steps_of_one_run_are_compared() -> None:
    found = pair(shipped(), shipped(), (8, 35))
    assert set(found["A: Variant 1"]) == {"save", "offload_policy", "reload_engine", "sync_weights", "reload_kv"}
    assert found["B: Variant 4"]["sync_weights"] == "runs in A"


def test_equal_plans_differ_in_nothing() -> None:
    assert not any(pair(shipped(), shipped()).values())


# ---- the layout


def overlapping(sheet: Sheet) -> list[tuple[str, str]]:
    return [
        (a.name, b.name)
        for a, b in combinations(sheet.boxes, 2)
        if a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height
    ]


def pierced(scene: Scene) -> list[tuple[str, str, str]]:
    """Edges that run through a box that is not theirs, as ``(source, target, box)``."""
    return [
        (line.source, line.target, box.name)
        for picture in scene.pictures
        for line in picture.lines
        for box in scene.sheets[picture.section].boxes
        if box.name not in (line.source, line.target)
        for (x0, y0), (x1, y1) in pairwise(line.route)
        if x0 == x1 and box.x < x0 < box.x + box.width and y0 < box.y + box.height and y1 > box.y
    ]


SYNCHRONOUS = [name for name in names("graphs") if not name.endswith("async")]
PAIRS = [(name, "split") for name in names("graphs")] + [(name, "colocated") for name in SYNCHRONOUS]


@pytest.mark.parametrize(("graph", "placement"), PAIRS)
def test_no_box_overlaps_another_and_no_edge_runs_through_one(graph: str, placement: str) -> None:
    scene = scene_of(shipped(f"placement={placement}", graph=graph))
    for sheet in scene.sheets.values():
        assert overlapping(sheet) == []
    assert pierced(scene) == []


def test_the_edges_of_the_shipped_loop_do_not_cross() -> None:
    scene = scene_of(shipped())
    edges = dict.fromkeys(
        (line.source, line.target) for one in scene.pictures if one.section == "step" for line in one.lines
    )
    assert place({box.name: box.width for box in scene.sheet.boxes}, 40, edges).crossings == 0


def test_crossings_that_need_not_be_are_taken_away() -> None:
    ladder = [(f"a{i}", f"b{9 - i}") for i in range(5)] + [("a0", "b5"), ("b5", "c"), ("a4", "c")]
    boxes = dict.fromkeys((name for edge in ladder for name in edge), 50.0)
    assert place(boxes, 20, ladder).crossings == 0


@pytest.mark.parametrize("seed", range(20))
def test_edges_go_down_and_boxes_keep_apart_in_any_graph(seed: int) -> None:
    pick = random.Random(seed)
    boxes = {f"n{i}": float(pick.randrange(40, 200)) for i in range(40)}
    edges = [(f"n{i}", f"n{j}") for i, j in combinations(range(40), 2) if pick.random() < 0.05]
    placed = place(boxes, 30, edges)
    for (source, target), route in placed.routes.items():
        assert placed.spots[source].layer < placed.spots[target].layer
        assert all(y0 <= y1 for (_, y0), (_, y1) in pairwise(route))
    for a, b in combinations(placed.spots.values(), 2):
        assert a.layer != b.layer or a.x + a.width < b.x or b.x + b.width < a.x
    assert max(sum(s.layer == layer for s in placed.spots.values()) for layer in range(40)) <= WIDE


# ---- size


def test_the_page_of_two_hundred_phases_is_short_and_no_boxes_overlap() -> None:
    scene = scene_of(many(200))
    assert len(html(scene)) < 1_000_000
    assert overlapping(scene.sheet) == []


@pytest.mark.parametrize("every", [(10, 20, 30), (7, 11, 13), (97, 331, 89)])
def test_the_page_of_a_million_steps_is_short(every: tuple[int, int, int]) -> None:
    names = ("eval", "save", "sync_weights")
    gates = [f"graph.step.{name}.when.every={number}" for name, number in zip(names, every, strict=True)]
    assert len(html(scene_of(shipped(*gates, steps=1_000_000)))) < 1_000_000


def test_every_step_of_a_run_is_in_one_picture_of_the_page() -> None:
    plan = shipped("graph.step.eval.when.every=7", steps=100)
    pictures = page_data(scene_of(plan))["pictures"]
    for k in range(100):
        found = [
            one["variant"]
            for one in pictures
            for first, last, every in one["spans"]
            if first <= k <= last and (k - first) % every == 0
        ]
        assert found == [plan.step(k).variant]


# ---- text is text


def hostile() -> Scene:
    step = {
        "make": {"use": f"./a.py:{EVIL}", "doc": EVIL, "writes": ["thing"]},
        "take": {"reads": ["thing"], "when": {"file": EVIL}},
    }
    phases = {name: {"use": "b.take", **words} for name, words in step.items()}
    graph = spec.parse({"name": EVIL, "step": phases}, {"name": EVIL}, {"steps": 3}, source=EVIL)
    return scene_of(stepgraph.compile(graph))


def test_hostile_words_stay_words_in_every_format() -> None:
    scene = hostile()
    root = ElementTree.fromstring(svg(scene))
    assert not [node.tag for node in root.iter() if node.tag.endswith("}b")]
    assert "</script><b>bold</b>" in "".join(root.itertext())
    page = html(scene)
    assert page.count("</script>") == 2
    assert "<b>" not in page
    assert json.loads(scene_json(scene))["graph"] == EVIL


needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz: apt-get install graphviz")


@needs_dot
@pytest.mark.parametrize(
    "scene", [scene_of(shipped()), scene_of(shipped(), 35), hostile()], ids=["step", "last", "hostile"]
)
def test_graphviz_reads_every_dot_file(scene: Scene) -> None:
    read = subprocess.run(["dot", "-Tjson"], input=dot(scene), capture_output=True, text=True, check=True)
    found = json.loads(read.stdout)
    assert read.stderr == ""
    assert [node["name"] for node in found["objects"]] == [box.name for box in scene.picture.boxes]
    assert len(found.get("edges", [])) == len(scene.picture.lines)
