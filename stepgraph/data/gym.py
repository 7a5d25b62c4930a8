"""Any data set of reasoning-gym, by its name, scored by its own scorer.

The package generates its questions from a seed and a position, which is just what a stream needs. It is imported only
when such a task is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from stepgraph.data.options import text as text_option
from stepgraph.data.options import whole
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.runtime.contract import Prompt

OPTIONS = ("dataset", "options", "max_new_tokens")
ENDLESS = 2**31 - 1
HELD_OUT_SEED = 1_000_003  # far from any run's seed, so that an evaluation's questions are its own
TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Gym:
    """One data set, twice: with the run's seed, and with another one for the held-out questions."""

    train: Any
    test: Any
    answer_tokens: int
    size: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any], seed: int) -> Gym:
        name, options = text_option(data, "dataset"), data.get("options") or {}
        tokens = whole(data, "max_new_tokens", 16, low=1)
        return cls(_open(name, options, seed), _open(name, options, seed + HELD_OUT_SEED), tokens)

    def prompt(self, index: int) -> Prompt:
        return _ask(self.train[index % ENDLESS], index)

    def held_out(self, count: int) -> list[Prompt]:
        return [_ask(self.test[i], -1 - i) for i in range(count)]

    def score(self, text: str, prompt: Prompt) -> float:
        """The data set's own score of what stands between answer tags, or of the whole text where there are none."""
        tagged = TAGGED.findall(text)
        answer = tagged[-1] if tagged else text
        return float(self.train.score_answer(answer.strip(), dict(prompt.meta)))


def _ask(entry: Mapping[str, Any], index: int) -> Prompt:
    return Prompt(text=entry["question"], answer=str(entry["answer"]), index=index, meta=entry)


def _open(name: str, options: Mapping[str, Any], seed: int) -> Any:
    known: Mapping[str, Any] = _factory().DATASETS
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"reasoning-gym has no data set '{name}' (data.dataset){hint}; it has {len(known)} of them")
    settings = _settings(name, known[name][1], options)
    try:
        return _factory().create_dataset(name, seed=seed, size=ENDLESS, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"reasoning-gym refuses data.options of '{name}': {error}") from error


def _settings(name: str, config: type, options: object) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise ConfigError(f"data.options is {options!r}; it must map the options of '{name}' to values")
    known = [f.name for f in fields(config) if f.name not in ("seed", "size")]
    for key in options:
        if key not in known:
            hint = did_you_mean(str(key), known)
            raise ConfigError(f"'{name}' of reasoning-gym has no option '{key}'{hint}; it has {', '.join(known)}")
    return {str(key): value for key, value in options.items()}


def _factory() -> Any:
    try:
        return import_module("reasoning_gym.factory")
    except ImportError as error:
        raise ConfigError("data.task=reasoning_gym needs a package: pip install reasoning-gym") from error
