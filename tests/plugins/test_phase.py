"""``@phase``: metadata beside a function, read without running the module, and what YAML overrides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph import phase
from stepgraph.errors import ConfigError, GraphError, StepgraphError
from stepgraph.ir.graph import Graph
from stepgraph.ir.phase import Phase

AUDIT = '''
from stepgraph import phase

@phase(reads=["rollouts"], writes=["report"], when={"every": 2})
def length_audit(rollouts):
    """Report the longest rollout, to catch runaway generation."""
    return {"report": max(len(r.tokens) for r in rollouts)}
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with one function of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.py").write_text(AUDIT)
    return tmp_path


def loaded(*overrides: str) -> Graph:
    return stepgraph.load("grpo", overrides)


def step(graph: Graph, name: str) -> Phase:
    return next(one for one in graph.step if one.name == name)


def test_the_function_stays_what_it_was() -> None:
    @phase(reads=["rollouts"], writes=["report"])
    def count(rollouts: list[int]) -> dict[str, int]:
        return {"report": len(rollouts)}

    @phase
    def nothing() -> None: ...

    assert count([1, 2]) == {"report": 2}
    assert nothing() is None


def test_one_override_and_ten_lines_make_a_phase() -> None:
    plan = stepgraph.compile(loaded("graph.step.audit={use: ./audit.py:length_audit}"), steps=4)
    audit = step(plan.graph, "audit")
    assert (audit.reads, audit.writes, audit.when.every) == (("rollouts",), ("report",), 2)
    assert audit.doc == "Report the longest rollout, to catch runaway generation."
    assert [k for k in range(4) if "audit" in [p.name for p in plan.step(k).phases]] == [1, 3]
    assert next(p for p in plan.step(1).phases if p.name == "audit").after == ("generate",)


def test_what_the_yaml_says_wins_word_by_word() -> None:
    graph = loaded("graph.step.audit={use: ./audit.py:length_audit, writes: [other], when: {last: true}}")
    audit = step(graph, "audit")
    assert (audit.reads, audit.writes, audit.when.every, audit.when.last) == (("rollouts",), ("other",), None, True)


def test_in_start_a_gate_of_the_function_says_nothing() -> None:
    graph = loaded("graph.start.audit={use: ./audit.py:length_audit, reads: [engine]}")
    assert not next(one for one in graph.start if one.name == "audit").when.named


def test_a_dotted_path_and_an_importable_module_are_targets_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").write_text("raise ImportError('a plan need not import this')")
    (here / "pkg" / "mod.py").write_text(AUDIT)
    for target in ("pkg.mod.length_audit", "pkg.mod:length_audit", "audit.length_audit", "audit:length_audit"):
        assert step(loaded(f"graph.step.a={{use: '{target}'}}"), "a").writes == ("report",)


def test_a_plan_reads_the_words_without_running_the_module(here: Path) -> None:
    (here / "audit.py").write_text("import torch\nraise SystemExit('ran')\n" + AUDIT)
    assert step(loaded("graph.step.audit={use: ./audit.py:length_audit}"), "audit").writes == ("report",)


def test_words_that_are_worked_out_are_read_by_importing(here: Path) -> None:
    (here / "audit.py").write_text(AUDIT.replace('["rollouts"]', '["roll" + "outs"]'))
    assert step(loaded("graph.step.audit={use: ./audit.py:length_audit}"), "audit").reads == ("rollouts",)


SPELLINGS = {
    "an alias": ("from stepgraph import phase as step_phase", "@step_phase(reads=['rollouts'], writes=['x'])"),
    "the package": ("import stepgraph as sg", "@sg.phase(reads=['rollouts'], writes=['x'])"),
    "another decorator": (
        "import functools\nfrom stepgraph.phases import phase",
        "@phase(reads=['rollouts'], writes=['x'])\n@functools.cache",
    ),
    "stars": ("from stepgraph import phase", "@phase(**{'reads': ['rollouts'], 'writes': ['x']})"),
}  # fmt: skip


@pytest.mark.parametrize(("imports", "decorator"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_decorator_is_found_however_it_is_spelled(here: Path, imports: str, decorator: str) -> None:
    (here / "other.py").write_text(f"{imports}\n{decorator}\ndef f(rollouts):\n    return {{'x': 1}}\n")
    assert step(loaded("graph.step.a={use: ./other.py:f}"), "a").writes == ("x",)


def test_another_s_decorator_of_the_same_name_is_not_taken_for_ours(here: Path) -> None:
    (here / "other.py").write_text("def phase(**_):\n    return lambda f: f\n\n@phase(writes=['x'])\ndef f(): ...\n")
    assert step(loaded("graph.step.a={use: ./other.py:f}"), "a").writes == ()


def test_a_file_that_changed_is_read_again_and_nothing_is_left_beside_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    override = "graph.step.audit={use: ./audit.py:length_audit}"
    text = AUDIT.replace('["report"]', '["re" + "port"]')
    (here / "audit.py").write_text(text)
    assert step(loaded(override), "audit").writes == ("report",)
    (here / "audit.py").write_text(text.replace('"port"', '"mark"'))
    assert step(loaded(override), "audit").writes == ("remark",)
    assert [path.name for path in here.iterdir()] == ["audit.py"]


def test_a_function_without_words_and_outputs_is_work_that_always_runs(here: Path) -> None:
    (here / "other.py").write_text("def ping(ctx):\n    ctx.log(ping=1)\n")
    plan = stepgraph.compile(loaded("graph.step.ping={use: ./other.py:ping}"), steps=3)
    assert all("ping" in [p.name for p in plan.step(k).phases] for k in range(3))


def test_a_module_that_brings_in_a_framework_at_plan_time_is_warned_of_with_its_cost(here: Path) -> None:
    (here / "vllm.py").write_text("import time\ntime.sleep(0.25)\n")
    (here / "heavy.py").write_text("import vllm\n" + AUDIT.replace('["report"]', '["re" + "port"]'))
    code = (
        "import sys, stepgraph; sys.path.insert(0, '.')\n"
        "graph = stepgraph.load('grpo', ['graph.step.audit={use: ./heavy.py:length_audit}'])\n"
        "plan = stepgraph.compile(graph, steps=2)\n"
        "print(plan.warnings[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here)
    assert done.stdout.strip() in [
        f"step.audit: reading ./heavy.py:length_audit for the plan imported vllm ({seconds} s): "
        "write its @phase in plain literals, or import that inside the function"
        for seconds in ("0.3", "0.4", "0.5", "0.6", "0.7")
    ]


def test_a_target_that_is_not_here_can_be_planned_by_what_the_graph_says_and_is_warned_of() -> None:
    plan = stepgraph.compile(loaded("graph.step.a={use: ./none.py:f, reads: [rollouts]}"), steps=2)
    assert plan.warnings == (
        f"step.a: no file 'none.py' (looked in {Path.cwd()}): planned by what the graph says of it",
    )


REFUSED: dict[str, tuple[str, str, type[StepgraphError]]] = {
    "a file": ("./none.py:f", "step.a: no file 'none.py'", ConfigError),
    "a module": ("no_such.mod.f", "step.a: no module 'no_such' for 'no_such.mod.f'", ConfigError),
    "an entry point": ("bare", "step.a: nothing is called 'bare'; write component.method", ConfigError),
    "a function": ("./audit.py:lenght_audit", "has no 'lenght_audit', did you mean 'length_audit'?", ConfigError),
    "a word": ("./words.py:f", "step.a: @phase has no word 'raeds', did you mean 'reads'?", ConfigError),
    "a value": ("./words.py:g", "step.a.reads is 3: write a list of names", GraphError),
    "syntax": ("./syntax.py:f", "step.a: syntax.py, line 1: invalid syntax", ConfigError),
    "an error": ("./raises.py:f", "step.a: './raises.py:f' cannot be imported: ValueError: no cheese", ConfigError),
    "an import": ("./needs.py:f", "cannot be imported: ModuleNotFoundError: No module named 'not_here'", ConfigError),
}
FILES = {
    "words.py": "from stepgraph import phase\n@phase(raeds=['x'])\ndef f(): ...\n@phase(reads=3)\ndef g(): ...\n",
    "syntax.py": "def f(:\n",
    "raises.py": "f = 1\nraise ValueError('no\\ncheese')\n",
    "needs.py": "import not_here\nf = 1\n",
}


@pytest.mark.parametrize(("target", "message", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_target_is_one_clear_line(here: Path, target: str, message: str, kind: Any) -> None:
    for name, text in FILES.items():
        (here / name).write_text(text)
    with pytest.raises(kind) as caught:
        loaded(f"graph.step.a={{use: '{target}'}}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_phase_that_is_off_needs_no_function() -> None:
    assert not step(loaded("graph.step.a={use: ./none.py:f, enabled: false}"), "a").enabled


def test_a_word_that_is_unknown_at_run_time_is_refused_by_the_decorator() -> None:
    with pytest.raises(TypeError, match="@phase has no word 'raeds'"):
        phase(raeds=["x"])  # type: ignore[call-overload]


# ---- where it stands, and what the compiler says of it -------------------------------------------------------------

MAKERS = """
from stepgraph import phase

@phase(reads=["rewards"], writes=["scaled"])
def scale(rewards):
    return {"scaled": [2 * r for r in rewards]}

@phase(updates=["rewards"])
def clip(rewards):
    return {"rewards": [min(r, 1) for r in rewards]}

@phase(reads=["late"], writes=["early"])
def first(late):
    return {"early": late}

@phase(reads=["early"], writes=["late"])
def second(early):
    return {"late": early}
"""


def names(graph: Graph) -> list[str]:
    return [one.name for one in graph.step]


def test_a_phase_stands_between_two_others_by_its_reads_and_writes_alone(here: Path) -> None:
    (here / "makers.py").write_text(MAKERS)
    graph = loaded("graph.step.scale={use: ./makers.py:scale}", "graph.step.train.reads=[rollouts, scaled]")
    assert names(graph)[names(graph).index("score") :][:3] == ["score", "scale", "train"]
    train = next(p for p in stepgraph.compile(graph, steps=2).step(0).phases if p.name == "train")
    assert "scale" in train.after


def test_a_phase_that_changes_what_all_have_read_is_warned_of_with_the_cure(here: Path) -> None:
    (here / "makers.py").write_text(MAKERS)
    plan = stepgraph.compile(loaded("graph.step.clip={use: ./makers.py:clip}"), steps=2)
    cure = "graph.step.clip.before=train"
    assert plan.warnings == (f"step.clip changes rewards when everybody has read it: {cure} puts it before them",)
    mended = loaded("graph.step.clip={use: ./makers.py:clip}", cure)
    assert names(mended)[names(mended).index("clip") + 1] == "train"
    assert stepgraph.compile(mended, steps=2).warnings == ()


def test_a_phase_is_replaced_by_its_name_and_keeps_what_the_graph_says(here: Path) -> None:
    (here / "score.py").write_text("def score(rollouts):\n    return {'rewards': [0.0 for _ in rollouts]}\n")
    score = step(loaded("graph.step.score.use=./score.py:score"), "score")
    assert (score.use, score.reads, score.writes) == ("./score.py:score", ("rollouts",), ("rewards",))


WRONG = {
    "a removed writer": (["~graph.step.score"], "step.train reads 'rewards', which no phase writes"),
    "two writers of one value": (
        ["graph.step.a={use: ./audit.py:length_audit}", "graph.step.b={use: ./audit.py:length_audit}"],
        "b in step 1 writes report, which a writes too: a value has one writer a step",
    ),
    "a cycle": (
        ["graph.step.a={use: ./makers.py:first}", "graph.step.b={use: ./makers.py:second}"],
        "step.a -> step.b -> step.a: each reads what the one before it writes, a circle",
    ),
    "a place that nobody gives": (
        ["graph.step.a={use: ./audit.py:length_audit, needs: {policy: device}}"],
        "a in step 1 needs policy at device, but it is at host (since offload_policy in step 1)",
    ),
    "a name": (["graph.step.Audit={use: ./audit.py:length_audit}"], "step.Audit: 'Audit' is no name"),
    "a slot": (
        ["graph.step.generate.hooks.rewrad=./audit.py:length_audit"],
        "step.generate.hooks: engine.generate has no slot 'rewrad', did you mean 'reward'? "
        "(slots: rollout, reward, filter)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "message"), WRONG.values(), ids=WRONG)
def test_a_graph_that_cannot_be_is_refused_in_one_line(here: Path, overrides: list[str], message: str) -> None:
    (here / "makers.py").write_text(MAKERS)
    with pytest.raises(GraphError) as caught:
        stepgraph.compile(loaded("placement=colocated", *overrides), steps=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
