"""A configuration is closed: a key that nobody reads is refused, however it got there.

Hydra refuses a plain typo, but not one with ``+``, nor one in an experiment's file. What may be there is what is there
when the same choices are composed without the user's settings; a section written as ``{}`` is open on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepgraph.cli.problems import no_such_key

NOT_OURS = ("graph", "placement", "model.config", "data.options", "executor.actors")
"""Sections that the graph's or the executor's check reads, or that are handed on to a library as they are."""


def refuse_unknown_keys(config: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Raise for the first key of ``config`` that ``declared`` does not have."""
    for section, key, known in unknown_keys(config, declared):
        raise no_such_key(section, key, known)


def unknown_keys(
    config: Mapping[str, Any], declared: Mapping[str, Any], section: str = ""
) -> Iterator[tuple[str, str, list[str]]]:
    """Every key that is not declared, with its section and the keys that are.

    >>> list(unknown_keys({"run": {"stpes": 3}}, {"run": {"steps": None}}))
    [('run', 'stpes', ['steps'])]
    """
    for key, value in config.items():
        where = f"{section}.{key}" if section else key
        if key not in declared:
            yield section, key, list(declared)
        elif where not in NOT_OURS and isinstance(value, Mapping) and isinstance(declared[key], Mapping):
            yield from unknown_keys(value, declared[key], where) if declared[key] else ()
