"""Scorers by name, for questions that come from a file, and the user's own by a dotted path.

A scorer is a plain function of the answer's text and its prompt: no class to derive from, nothing to register.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.runtime.contract import Prompt

Scorer = Callable[[str, Prompt], float]
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def exact(text: str, prompt: Prompt) -> float:
    """1 when the answer is the expected one, blanks at either end aside."""
    return float(text.strip() == prompt.answer.strip())


def contains(text: str, prompt: Prompt) -> float:
    """1 when the expected answer stands somewhere in the text."""
    return float(prompt.answer.strip() in text)


def number(text: str, prompt: Prompt) -> float:
    """1 when the last number of the text is the expected one: "so 1,200.0" is right for "1200"."""
    found, wanted = _numbers(text), _numbers(prompt.answer)
    return float(bool(found and wanted) and found[-1] == wanted[-1])


NAMED: dict[str, Scorer] = {"exact": exact, "contains": contains, "number": number}


def scorer(name: object) -> Scorer:
    """The scorer of that name: one of ours, ``package.module.function``, or ``file.py:function``."""
    if isinstance(name, str) and name in NAMED:
        return NAMED[name]
    if not isinstance(name, str) or ("." not in name and ":" not in name):
        hint = did_you_mean(str(name), NAMED)
        raise ConfigError(f"no scorer {name!r}{hint}; use {', '.join(NAMED)}, or a dotted path to your own function")
    return _imported(name)


def _numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def _imported(path: str) -> Scorer:
    where, _, what = path.rpartition(":" if ":" in path else ".")
    module = _module(path, where)
    found: Any = getattr(module, what, None)
    if not callable(found):
        raise ConfigError(f"scorer '{path}': '{where}' has no function '{what}'{did_you_mean(what, vars(module))}")
    wanted: Scorer = found
    return wanted


def _module(path: str, where: str) -> ModuleType:
    try:
        return _from_file(where) if where.endswith(".py") else import_module(where)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise ConfigError(f"scorer '{path}' cannot be imported: {type(error).__name__}: {error}") from error


def _from_file(where: str) -> ModuleType:
    file = Path(where).expanduser().resolve()
    if not file.is_file():
        raise FileNotFoundError(f"no file '{where}'")
    spec = util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"'{where}' is not a module")
    module = util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    spec.loader.exec_module(module)
    return module
