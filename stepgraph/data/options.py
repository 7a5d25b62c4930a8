"""Reads one option of a data section, or says in one line what is wrong with it.

Every task reads its options through these few functions, so that a slip is refused with the same words everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean


def only_known(data: Mapping[str, Any], known: Iterable[str], who: str) -> None:
    """Refuse the first key that nobody reads: it is a typing error or a dead setting."""
    known = list(known)
    for key in data:
        if key not in known:
            raise ConfigError(f"{who} has no option '{key}'{did_you_mean(key, known)}; it has {', '.join(known)}")


def one_of(word: object, known: Iterable[str], who: str) -> str:
    known = list(known)
    if isinstance(word, str) and word in known:
        return word
    raise ConfigError(f"{who} is {word!r}{did_you_mean(str(word), known)}; it may be {', '.join(known)}")


def whole(data: Mapping[str, Any], key: str, default: int, low: int, high: int = 1 << 40) -> int:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        top = "" if high == 1 << 40 else f" and at most {high}"
        raise ConfigError(f"data.{key} is {value!r}; it must be a whole number of at least {low}{top}")
    return value


def text(data: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = data.get(key, default)
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"data.{key} is {value!r}; it must be text, so set data.{key}=...")


def flag(data: Mapping[str, Any], key: str, default: bool) -> bool:
    value = data.get(key, default)
    if isinstance(value, bool):
        return value
    raise ConfigError(f"data.{key} is {value!r}; it must be true or false")
