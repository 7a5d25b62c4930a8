"""Reads a function's ``@phase`` from its source, without running the module: a plan must not pay for its imports.

Only what is plain is read: a function at the top of the module, undecorated or with one ``@phase`` of literals.
Anything else is answered with ``None``, and the module has to be imported.
"""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.paths import shown
from stepgraph.phases import WORDS, with_doc

Function = ast.FunctionDef | ast.AsyncFunctionDef


def located(module: str) -> Path | None:
    """The file of a module, found without importing any package on the way to it."""
    search: list[str] | None = None
    spec = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def words_in(path: Path, name: str, who: str) -> dict[str, Any] | None:
    """The words of the function called ``name``, or ``None`` where only running the module would tell."""
    tree = parsed(path, who)
    found = [node for node in tree.body if isinstance(node, Function) and node.name == name]
    if not found or _assigned(tree, name):
        return None
    words = _decorated(tree, found[-1], who)
    return None if words is None else with_doc(words, ast.get_docstring(found[-1]))


def parsed(path: Path, who: str) -> ast.Module:
    """The syntax tree of a file, or its mistake in one line."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise ConfigError(f"{who}: {shown(path)}, line {error.lineno}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{who}: cannot read '{shown(path)}': {error}") from None


def _assigned(tree: ast.Module, name: str) -> bool:
    """Whether something at the top gives the name another meaning afterwards."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target))


def _decorated(tree: ast.Module, function: Function, who: str) -> dict[str, Any] | None:
    if not function.decorator_list:
        return {}
    if len(function.decorator_list) > 1:
        return None
    (decorator,) = function.decorator_list
    call = decorator if isinstance(decorator, ast.Call) else ast.Call(func=decorator, args=[], keywords=[])
    if not _is_phase(tree, call.func) or call.args:
        return None
    return _literals(call, who)


def _literals(call: ast.Call, who: str) -> dict[str, Any] | None:
    words: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        if keyword.arg not in WORDS:
            hint = did_you_mean(keyword.arg, WORDS) or f" (known: {', '.join(WORDS)})"
            raise ConfigError(f"{who}: @phase has no word '{keyword.arg}'{hint}")
        try:
            words[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            return None
    return {word: value for word, value in words.items() if value is not None}


def _is_phase(tree: ast.Module, func: ast.expr) -> bool:
    """Whether a decorator is ours, by the names that the module imports it under."""
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        imports = [node for node in tree.body if isinstance(node, ast.Import)]
        packages = {alias.asname or alias.name for node in imports for alias in node.names if alias.name == "stepgraph"}
        return func.attr == "phase" and func.value.id in packages
    froms = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if node.module in ("stepgraph", "stepgraph.phases")]
    names = {alias.asname or alias.name for node in ours for alias in node.names if alias.name == "phase"}
    return isinstance(func, ast.Name) and func.id in names
