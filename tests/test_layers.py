"""Who may import whom, as docs/architecture.md says; and what a plan costs nobody to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "stepgraph"
LAYERS = (
    {"errors", "paths", "phases", "source", "registry", "own"},
    {"ir"},
    {"spec", "api"},
    {"compiler"},
    {"runtime", "hooks", "styles", "testing"},
    {"views"},
    {"components", "algorithms", "data", "adapters"},
    {"cli", "__init__", "__main__"},
)
"""From the top: a module imports from its own row and from those above it."""

HEAVY = {"torch", "transformers", "ray", "vllm", "deepspeed", "safetensors", "tokenizers", "gguf", "reasoning_gym"}
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    """The row's name of a module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, and whether it does so when it is itself imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "stepgraph"
                else [node.module or ""]
            )
            yield from ((name, id(node) not in late) for name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_only_from_its_own_row_and_those_above(path: Path) -> None:
    ours = [name.split(".")[1] for name, _ in imports(path) if name.startswith("stepgraph.")]
    assert [name for name in ours if RANK.get(name, 0) > RANK[part(path)]] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_frameworks_are_imported_where_they_are_used_and_hydra_by_the_command_line(path: Path) -> None:
    found = {name.split(".")[0] for name, _ in imports(path)}
    free = part(path) in ("components", "algorithms", "data") or path.match("runtime/ray*")
    assert free or not found & HEAVY
    assert part(path) == "cli" or not found & {"hydra", "omegaconf"}


@pytest.mark.parametrize("path", [path for path in MODULES if part(path) == "data"], ids=lambda path: path.name)
def test_data_is_read_without_a_framework(path: Path) -> None:
    assert not {name.split(".")[0] for name, early in imports(path) if early} & HEAVY


@pytest.mark.parametrize(
    "code",
    [
        "import stepgraph, stepgraph.compiler, stepgraph.api",
        "import stepgraph; stepgraph.compile(stepgraph.load('grpo'), steps=3).to_dict()",
        "import stepgraph.views.table, stepgraph.runtime.run, stepgraph.cli",
    ],
)
def test_a_plan_is_made_without_a_framework(code: str) -> None:
    heavy = sorted(HEAVY | {"hydra", "omegaconf", "networkx", "numpy"})
    script = f"{code}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert done.stdout.strip() == "[]"
