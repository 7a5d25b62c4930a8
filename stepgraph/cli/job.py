"""What a command is given: the composed configuration, and the user's own words for hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepgraph.cli.schema import Config


@dataclass(frozen=True, slots=True)
class Job:
    """One job of one command. ``choices``: the option taken of each group; ``folder``: the job's own, in a sweep;
    ``options``: the command's own flags; ``sides``: the words after each ``--``.
    """

    config: Config
    choices: Mapping[str, str]
    overrides: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    folder: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sides: tuple[tuple[str, ...], ...] = ()
