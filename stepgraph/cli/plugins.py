"""``stepgraph show plugins``: what other packages offer, and why one that is broken cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from stepgraph.registry import GROUPS, Plugin
from stepgraph.registry import plugins as installed


def plugins() -> int:
    """Print every entry point of ours, by group."""
    for line in _lines(installed()):
        print(line)
    return 0


def _lines(found: list[Plugin]) -> Iterator[str]:
    if not found:
        yield f"no plug-ins are installed (entry points {', '.join(GROUPS)})"
    width = max((len(one.name) for one in found), default=0)
    for group, members in groupby(found, key=lambda one: one.group):
        yield group
        for one in members:
            yield f"  {one.name:<{width}}  {one.package}  {one.target}{_more(one)}"


def _more(one: Plugin) -> str:
    if one.error:
        return f"  BROKEN: {one.error}"
    return f"  ({one.says})" if one.says else ""
