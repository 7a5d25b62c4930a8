"""Every refusal, word for word: one line that says who, what, and the cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph import spec
from stepgraph.errors import ConfigError, GraphError, StepgraphError

W = {"a": "weights", "b": "weights", "s": {"kind": "scratch", "at": "none"}, "log": "sink", "data": "stream"}


def refusal(
    graph: dict[str, Any], placement: Any = None, run: Any = None, kind: type[StepgraphError] = GraphError, **more: Any
) -> str:
    """The message of the refusal, which is a line."""
    with pytest.raises(kind) as refused:
        stepgraph.compile(spec.parse(graph, placement, {"steps": 2, **(run or {})}, **more))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def phase(**words: Any) -> dict[str, Any]:
    """A graph of one phase ``p``."""
    return {"resources": W, "step": {"p": {"use": "x.run", **words}}}


def steps(**phases: dict[str, Any]) -> dict[str, Any]:
    return {"resources": W, "step": {name: {"use": f"{name}.run", **words} for name, words in phases.items()}}


PHASE_KEYS = (
    "use, reads, writes, updates, needs, moves, copies, whole, pure, when, ahead, enabled, doc, on_error, retries, "
    "timeout_s, before, after, hooks, options"
)

GRAMMAR = [
    (
        {"stpe": {}},
        "graph has an unknown key 'stpe', did you mean 'step'? (known: name, doc, resources, places, keep, "
        "start, step, end)",
    ),
    ({"zzz": {}}, "graph has an unknown key 'zzz' (known: name, doc, resources, places, keep, start, step, end)"),
    ({"step": [1]}, "graph.step is [1]: write a mapping, {name: ...}"),
    ({"step": "a"}, "graph.step is 'a': write a mapping, {name: ...}"),
    ({"resources": 3}, "graph.resources is 3: write a mapping, {name: ...}"),
    ({"places": 3}, "graph.places is 3: write a list of names, [a, b]"),
    ({"places": ["any"]}, "graph.places: 'any' means any place there is: call it something else"),
    (
        {"places": ["!host"]},
        "graph.places: '!host' is no name: use lower-case letters, digits and _, a letter first",
    ),
    ({"places": {"disk": 1}}, "graph.places is {'disk': 1}: write a list of names, [a, b]"),
    (
        {"resources": {"A": "sink"}},
        "graph.resources.A: 'A' is no name: use lower-case letters, digits and _, a letter first",
    ),
    (
        {"resources": {"a": "wieghts"}},
        "graph.resources.a.kind is 'wieghts', did you mean 'weights'? (known: value, weights, state, scratch, "
        "stream, sink)",
    ),
    (
        {"resources": {"a": {"knd": "sink"}}},
        "graph.resources.a has an unknown key 'knd', did you mean 'kind'? (known: kind, of, at, doc)",
    ),
    (
        {"resources": {"a": {"kind": "sink", "at": "host"}}},
        "graph.resources.a is a sink and has no place: take 'at' out",
    ),
    (
        {"resources": {"a": {"kind": "state", "at": "hots"}}},
        "graph.resources.a.at is 'hots', did you mean 'host'? (known: device, host, none)",
    ),
    (phase(writes=["No"]), "graph: the value: 'No' is no name: use lower-case letters, digits and _, a letter first"),
    ({"step": {"p": None}}, "step.p is empty: say what it uses, or take it out with '~graph.step.p'"),
    (
        {"step": {"p-1": {"use": "x.y"}}},
        "step.p-1: 'p-1' is no name: use lower-case letters, digits and _, a letter first",
    ),
    (phase(raeds=["a"]), f"step.p has an unknown key 'raeds', did you mean 'reads'? (known: {PHASE_KEYS})"),
    (phase(reads=[1]), "step.p.reads is [1]: write a list of names, [a, b]"),
    (phase(before=[1]), "step.p.before is [1]: write a list of names, [a, b]"),
    (phase(after={"a": 1}), "step.p.after is {'a': 1}: write a list of names, [a, b]"),
    (phase(needs={"a": 3}), "step.p.needs.a is 3: write a name"),
    (phase(moves=["a"]), "step.p.moves is ['a']: write a mapping, {name: ...}"),
    (phase(whole="yes"), "step.p.whole is 'yes': write true or false"),
    (phase(pure=1), "step.p.pure is 1: write true or false"),
    (phase(enabled="no"), "step.p.enabled is 'no': write true or false"),
    (phase(ahead=-1), "step.p.ahead=-1 is less than 0: give a whole number of at least 0"),
    (phase(ahead="1"), "step.p.ahead='1' is not a whole number: give one of at least 0"),
    (phase(retries=True), "step.p.retries=True is not a whole number: give one of at least 0"),
    (phase(on_error="wrn"), "step.p.on_error is 'wrn', did you mean 'warn'? (known: fail, warn)"),
    (phase(timeout_s=0), "step.p.timeout_s is 0: give a number above 0"),
    (phase(timeout_s="5"), "step.p.timeout_s is '5': give a number above 0"),
    (phase(hooks=[1]), "step.p.hooks is [1]: write a mapping, {name: ...}"),
    (phase(options=1), "step.p.options is 1: write a mapping, {name: ...}"),
    (phase(use=None), "step.p says nothing to run: give it use: component.method, or a target of your own"),
    (
        phase(when={"evry": 2}),
        "step.p.when has an unknown key 'evry', did you mean 'every'? (known: every, steps, first, last, "
        "epoch_end, with, from, until, file, signal, minutes, metric)",
    ),
    (phase(when=3), "step.p.when is 3: write a mapping, {name: ...}"),
    (phase(when={"every": -2}), "step.p.when.every=-2 is less than 1: give a whole number of at least 1"),
    (phase(when={"every": 2.5}), "step.p.when.every=2.5 is not a whole number: give one of at least 1"),
    (phase(when={"steps": 3}), "step.p.when.steps is 3: write a list of step numbers, [3, 7]"),
    (phase(when={"steps": ["x"]}), "step.p.when.steps='x' is not a whole number: give one of at least 0"),
    (phase(when={"last": "yes"}), "step.p.when.last is 'yes': write true or false"),
    (phase(when={"with": 3}), "step.p.when.with is 3: write a phase's name"),
    (phase(when={"from": -1}), "step.p.when.from=-1 is less than 0: give a whole number of at least 0"),
    (phase(when={"until": "x"}), "step.p.when.until='x' is not a whole number: give one of at least 0"),
    (phase(when={"with": "zz"}), "step.p.when.with: no phase 'zz' in the step"),
    (phase(when={"with": "p"}), "step.p.when.with goes in a circle: p -> p"),
    (
        steps(train={}, look={"when": {"with": "trian"}}),
        "step.look.when.with: no phase 'trian' in the step, did you mean 'train'?",
    ),
    (steps(a={"when": {"with": "b"}}, b={"when": {"with": "a"}}), "step.a.when.with goes in a circle: a -> b -> a"),
    (steps(a={"before": "b", "after": "b"}, b={}), "step.a is to stand after ['b'] and before ['b']: no such place"),
    (steps(a={"after": "bx"}, bb={}), "step.a is to stand beside 'bx', which is no phase of step"),
    (
        steps(a={"after": "trian"}, train={}),
        "step.a is to stand beside 'trian', which is no phase of step, did you mean 'train'?",
    ),
    (
        steps(a={"after": "b"}, b={"after": "a"}),
        "step: a, b each wait for the place of another: say where one of them stands in the list",
    ),
    ({"step": {}, "start": {"evl": None}}, "start.evl is empty and the step has no phase 'evl'"),
    (
        {**steps(eval={}), "start": {"evla": None}},
        "start.evla is empty and the step has no phase 'evla', did you mean 'eval'?",
    ),
    (
        {**steps(eval={}), "end": {"eval": {"when": {"last": True}}}},
        "end.eval has a 'when', but end runs once: use 'enabled'",
    ),
]

NAMES = [
    (phase(reads=["zz"]), "step.p reads 'zz', which no phase writes"),
    (
        steps(w={"writes": ["rollouts"]}, r={"reads": ["rolouts"]}),
        "step.r reads 'rolouts', which no phase writes, did you mean 'rollouts'?",
    ),
    (phase(reads=["log"]), "step.p takes 'log' back from the outside world: a sink is only written"),
    (phase(updates=["log"]), "step.p takes 'log' back from the outside world: a sink is only written"),
    (phase(writes=["a"], updates=["a"]), "step.p both writes and updates 'a': 'updates' says both"),
    (phase(needs={"polcy": "device"}), "step.p.needs.polcy: no resource 'polcy' (declare it under graph.resources)"),
    (
        {"resources": {"policy": "weights"}, "step": {"p": {"use": "x.y", "moves": {"polcy": "device"}}}},
        "step.p.moves.polcy: no resource 'polcy', did you mean 'policy'? (declare it under graph.resources)",
    ),
    (
        phase(moves={"log": "device"}),
        "step.p.moves.log: 'log' is a sink and has no place (weights, state and scratch have)",
    ),
    (phase(needs={"a": "devcie"}), "step.p.needs.a is 'devcie', did you mean 'device'? (known: device, host, none)"),
    (phase(needs={"a": "!devcie"}), "step.p.needs.a is 'devcie', did you mean 'device'? (known: device, host, none)"),
    (phase(moves={"a": "!host"}), "step.p.moves.a is '!host', did you mean 'host'? (known: device, host, none)"),
    (phase(copies={"b": "c"}), "step.p.copies: no resource 'c' (declare it under graph.resources)"),
    (
        phase(copies={"data": "a"}),
        "step.p.copies: 'data' is a stream and has no place (weights, state and scratch have)",
    ),
    (phase(copies={"s": "a"}), "step.p.copies: 's' is scratch, whose contents never matter: copy weights or state"),
    (phase(copies={"a": "a"}), "step.p copies 'a' onto itself: name two resources"),
    (phase(copies={"a": "b", "b": "a"}), "step.p copies into and from 'a' in one phase: make them two phases"),
    (
        phase(copies={"b": "a"}, moves={"a": "none"}),
        "step.p frees 'a' and copies it in one phase: make them two phases",
    ),
    ({"resources": W, "keep": {"c": "any"}}, "graph.keep.c: no resource 'c' (declare it under graph.resources)"),
    (
        {"resources": W, "keep": {"a": "an"}},
        "graph.keep.a is 'an', did you mean 'any'? (known: device, host, none, any)",
    ),
    (
        {"resources": W, "keep": {"log": "any"}},
        "graph.keep.log: 'log' is a sink and has no place (weights, state and scratch have)",
    ),
]

PLACED = {"resources": {"policy": {"kind": "weights", "of": "trainer"}, "log": "sink"}}
PLACEMENTS = [
    (
        {"makes_rom": {}},
        "placement has an unknown key 'makes_rom', did you mean 'makes_room'? (known: name, doc, makes_room, at, "
        "sizes, capacity)",
    ),
    ({"makes_room": ["a"]}, "placement.makes_room is ['a']: write a mapping, {name: ...}"),
    ({"makes_room": {"trainer": 3}}, "placement.makes_room.trainer is 3: write a list of names, [a, b]"),
    (
        {"makes_room": {"trainr": ["policy"]}},
        "placement.makes_room names 'trainr', which is no component or resource of the graph, did you mean 'trainer'?",
    ),
    (
        {"makes_room": {"trainer": ["zzz"]}},
        "placement.makes_room names 'zzz', which is no component or resource of the graph (known: policy, trainer)",
    ),
    ({"at": {"polcy": "host"}}, "placement.at: no resource 'polcy', did you mean 'policy'?"),
    ({"at": {"policy": "hots"}}, "placement.at.policy is 'hots', did you mean 'host'? (known: device, host, none)"),
    ({"at": {"log": "host"}}, "placement.at.log: 'log' is a sink and has no place (weights, state and scratch have)"),
    ({"sizes": {"plicy": 3}}, "placement.sizes: no resource 'plicy', did you mean 'policy'?"),
    ({"sizes": {"policy": -3}}, "placement.sizes.policy is -3: give a number above 0"),
    ({"sizes": {"policy": "big"}}, "placement.sizes.policy is 'big': give a number above 0"),
    (
        {"sizes": {"log": 3}},
        "placement.sizes.log: 'log' is a sink and has no place (weights, state and scratch have)",
    ),
    (
        {"capacity": {"devcie": 3}},
        "placement.capacity is 'devcie', did you mean 'device'? (known: device, host, none)",
    ),
    ({"capacity": {"device": 0}}, "placement.capacity.device is 0: give a number above 0"),
]

RUNS = [
    (
        {"stpes": 3},
        "run has an unknown key 'stpes', did you mean 'steps'? (known: steps, first, epochs, steps_per_epoch, extend)",
    ),
    ({"steps": -1}, "run.steps=-1 is less than 0: give a whole number of at least 0"),
    ({"steps": "many"}, "run.steps='many' is not a whole number: give one of at least 0"),
    ({"first": 1.5}, "run.first=1.5 is not a whole number: give one of at least 0"),
    ({"epochs": 2}, "run.epochs is given without run.steps_per_epoch: say how many steps make an epoch"),
    ({"epochs": -2, "steps_per_epoch": 1}, "run.epochs=-2 is less than 0: give a whole number of at least 0"),
    ({"steps_per_epoch": 0}, "run.steps_per_epoch=0 is less than 1: give a whole number of at least 1"),
]


def by_message(given: list[tuple[Any, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("given", "message"), given, ids=[message[:60] for _, message in given])


@by_message(GRAMMAR)
def test_what_the_grammar_does_not_know_is_refused(given: dict[str, Any], message: str) -> None:
    assert refusal(given) == message


@by_message(NAMES)
def test_names_that_do_not_fit_together_are_refused(given: dict[str, Any], message: str) -> None:
    assert refusal(given) == message


@by_message(PLACEMENTS)
def test_a_placement_that_says_nothing_true_is_refused(given: dict[str, Any], message: str) -> None:
    assert refusal(PLACED, given) == message


@by_message(RUNS)
def test_a_run_that_is_no_run_is_refused_as_configuration(given: dict[str, Any], message: str) -> None:
    assert refusal({}, run=given, kind=ConfigError) == message


def test_staleness_is_a_number_of_updates() -> None:
    given: Any = "1"
    message = "max_staleness='1' is not a whole number: give one of at least 0"
    assert refusal({}, kind=ConfigError, max_staleness=given) == message
    assert (
        refusal({}, kind=ConfigError, max_staleness=-1)
        == "max_staleness=-1 is less than 0: give a whole number of at least 0"
    )


def test_the_end_of_an_epoch_needs_the_length_of_one() -> None:
    message = "step.p.when.epoch_end needs the length of an epoch: give run.steps_per_epoch=N"
    assert refusal(phase(when={"epoch_end": True}), kind=ConfigError) == message


# ---- the typestate walk --------------------------------------------------------------------------------------------

HOST = {"a": {"kind": "weights", "of": "left"}, "b": {"kind": "weights", "of": "right"}}
NONE = {"a": {"kind": "weights", "at": "none"}, "b": "weights"}
ROOM = {"name": "shared", "makes_room": {"right": ["left"]}}


def walk(resources: dict[str, Any], **phases: dict[str, Any]) -> dict[str, Any]:
    return {**steps(**phases), "resources": resources}


TYPESTATE = [
    (
        walk(HOST, train={"needs": {"a": "device"}}),
        "train in step 0 needs a at device, but it is at host (it starts there): no phase moves a there: add one "
        "with moves: {a: device}, or start with placement.at.a=device",
    ),
    (
        walk(HOST, train={"needs": {"a": "device"}}, load={"moves": {"a": "device"}}),
        "train in step 0 needs a at device, but it is at host (it starts there): let load run before it, or "
        "start with placement.at.a=device",
    ),
    (
        walk(
            HOST,
            load={"moves": {"a": "device"}, "when": {"first": True}},
            train={"needs": {"a": "device"}},
            off={"moves": {"a": "host"}},
        ),
        "train in step 1 needs a at device, but it is at host (since off in step 0): let load run before it",
    ),
    (
        walk(HOST, look={"needs": {"a": "!host"}}),
        "look in step 0 needs a at device or none, but it is at host (it starts there): no phase moves a there: "
        "add one with moves: {a: device}, or start with placement.at.a=device",
    ),
    (
        walk(NONE, read={"reads": ["a"]}),
        "read in step 0 needs a at device or host, but it is at none (it starts there): no phase moves a there: "
        "add one with moves: {a: device}, or start with placement.at.a=device",
    ),
    (
        walk(NONE, on={"moves": {"a": "host"}}, read={"reads": ["a"]}),
        "read in step 0 takes a, which nothing has given contents yet: add a phase that copies or writes a",
    ),
    (
        walk(HOST, read={"reads": ["b"]}, sync={"copies": {"b": "a"}}),
        "read in step 0 takes b, which nothing has given contents yet: let sync run before it (an entry under "
        "graph.start does so once, before the first step)",
    ),
    (
        walk(
            HOST,
            off={"moves": {"a": "none"}},
            on={"moves": {"a": "host"}},
            read={"reads": ["a"]},
            fill={"writes": ["a"]},
        ),
        "read in step 0 takes a, whose contents are lost since off in step 0: let fill run before it",
    ),
    (
        walk(HOST, off={"moves": {"a": "none"}}, on={"moves": {"a": "host"}}, sync={"copies": {"b": "a"}}),
        "sync in step 0 takes a, whose contents are lost since off in step 0: add a phase that copies or writes a",
    ),
    (
        walk(NONE, fill={"writes": ["a"]}, on={"moves": {"a": "host"}}),
        "fill in step 0 gives contents to a, which is freed (at none): let on run before it, or start with "
        "placement.at.a=device",
    ),
    (
        walk(HOST, free={"reads": ["b"], "moves": {"a": "none"}}),
        "free in step 1 frees a, which is at none (since free in step 0) already: free it once a step",
    ),
    (
        steps(read={"reads": ["x"]}, write={"writes": ["x"]}),
        "read in step 0 reads x before write writes it: let write stand before read",
    ),
    (
        steps(write={"writes": ["x"], "when": {"every": 2}}, read={"reads": ["x"]}),
        "read in step 0 reads x, which write does not write in this step: give read when: {with: write}",
    ),
    (
        steps(write={"writes": ["x"], "enabled": False}, read={"reads": ["x"]}),
        "read in step 0 reads x, which write writes, and it is disabled: enable it, or disable read too",
    ),
    (
        steps(write={"writes": ["x"]}, read={"reads": ["x"], "ahead": 1}),
        "read in start reads x 1 ahead, but write writes it 0 ahead: let both run as far ahead",
    ),
    (
        steps(write={"writes": ["x"]}, read={"reads": ["x"], "ahead": 1, "when": {"from": 1}}),
        "read in step 0 reads x 1 ahead, but write writes it 0 ahead: let both run as far ahead",
    ),
    (
        {"resources": {"x": "value"}, "step": {"read": {"use": "r.run", "reads": ["x"]}}},
        "read in step 0 reads x, which no phase writes",
    ),
    (
        steps(count={"updates": ["seen"]}),
        "count in step 0 updates seen, which no phase writes: what crosses steps is a state, "
        "graph.resources.seen=state",
    ),
    (
        steps(one={"writes": ["x"]}, two={"writes": ["x"]}),
        "two in step 0 writes x, which one writes too: a value has one writer a step; let one of them use 'updates'",
    ),
    (
        {**walk(HOST, off={"moves": {"a": "host"}, "reads": ["a"]}), "keep": {"a": "device"}},
        "keep wants a at device when the run ends, but it is at host: move it back under graph.end, or keep it "
        "where it is (graph.keep.a=any)",
    ),
    (
        {**walk(HOST, off={"moves": {"a": "none"}}), "keep": {"a": "any"}},
        "keep wants the contents of a when the run ends, but they are lost: let no phase free it, or take it out "
        "with graph.keep.a=null",
    ),
    (
        {**walk(HOST), "end": {"look": {"use": "l.run", "needs": {"a": "device"}}}},
        "look in end needs a at device, but it is at host (it starts there): no phase moves a there: add one "
        "with moves: {a: device}, or start with placement.at.a=device",
    ),
]


@by_message(TYPESTATE)
def test_a_list_that_cannot_run_is_refused_where_it_goes_wrong(given: dict[str, Any], message: str) -> None:
    assert refusal(given) == message


def test_room_that_the_placement_asks_for_is_named_as_the_placements() -> None:
    graph = walk(HOST, on={"moves": {"b": "device"}}, load={"moves": {"a": "device"}}, train={"needs": {"a": "device"}})
    assert refusal(graph, ROOM) == (
        "train in step 0 needs b off the device (placement shared), but it is at device (since on in step 0): "
        "no phase moves b there: add one with moves: {b: host}"
    )
    assert "(placement makes_room)" in refusal(graph, {"makes_room": ROOM["makes_room"]})


def test_a_refusal_deep_in_a_long_run_names_its_step() -> None:
    graph = walk(HOST, look={"needs": {"a": "device"}, "when": {"steps": [90_000]}})
    assert refusal(graph, run={"steps": 100_000}).startswith("look in step 90000 needs a at device, but it is at host")


# ---- loading -------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one graph of its own and no other in sight but the packaged ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPGRAPH_PATH", raising=False)
    return tmp_path


def unloaded(graph: Any, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        stepgraph.load(graph, overrides)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_graph_file_that_is_not_there_is_refused(here: Path) -> None:
    assert (
        unloaded("no/such.yaml") == "there is no graph file 'no/such.yaml': give a path that exists, or a graph's name"
    )


def test_a_graph_nobody_has_is_refused_with_the_nearest_name(here: Path) -> None:
    assert unloaded("gropo").startswith("there is no graph 'gropo', did you mean 'grpo'? (known: grpo")


def test_a_placement_nobody_has_is_refused_with_the_nearest_name(here: Path) -> None:
    message = "there is no placement 'spilt', did you mean 'split'? (known: colocated, kv_only, split)"
    assert unloaded("grpo", "placement=spilt") == message


def test_a_file_that_is_no_yaml_is_refused_in_one_line(here: Path) -> None:
    (here / "bad.yaml").write_text("step: {\n  a: [\n")
    assert unloaded("bad.yaml").startswith("bad.yaml is no YAML: while parsing a flow node")


def test_a_file_that_holds_a_list_is_refused(here: Path) -> None:
    (here / "list.yaml").write_text("- a\n")
    assert unloaded("list.yaml") == "list.yaml holds no mapping: a graph is name, resources, keep, start, step, end"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("graph.step.eval", "'graph.step.eval' is no override: write key=value, or ~key to take one out"),
        (
            "rnu.steps=3",
            "'rnu.steps' has no meaning for a graph, did you mean 'run'? (known: graph, placement, run, max_staleness)",
        ),
        ("engine=vllm", "'engine' has no meaning for a graph (known: graph, placement, run, max_staleness)"),
        ("~graph.step.evl", "'~graph.step.evl': there is no such key to take out, did you mean 'eval'?"),
        ("~graph.stop.eval", "'~graph.stop.eval': there is no such key to take out"),
        ("run=3", "'run=3' says nothing of a key: write run.KEY=VALUE"),
        ("graph=ppo", "'graph=ppo' says nothing of a key: write graph.KEY=VALUE"),
        ("~placement", "'~placement' takes a whole section out: name a key in it, ~placement.KEY"),
        ("~max_staleness", "'~max_staleness' takes a whole section out: name a key in it, ~max_staleness.KEY"),
    ],
)
def test_an_override_that_means_nothing_is_refused(override: str, message: str) -> None:
    assert unloaded("grpo", override) == message


def test_an_override_whose_value_is_no_yaml_is_refused_in_one_line(here: Path) -> None:
    found = unloaded("grpo", "graph.step.eval={")
    assert found.startswith("'graph.step.eval={' is no override: while parsing a flow node")
