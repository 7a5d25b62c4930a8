"""The errors that people see: one line each, that says who, what, and the cure.

An error carries its exit code, so that the command line needs no table and every layer can raise the right one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class StepgraphError(Exception):
    """Something the user can mend. Printed as one line, without a traceback."""

    exit_code = 1


class RunError(StepgraphError):
    """A run failed after it was started."""


class ConfigError(StepgraphError):
    """The input is wrong before a graph is looked at: an override, a name, a file, a number."""

    exit_code = 2


class MissingTarget(ConfigError):
    """What a target names is not here: the package is not installed, or the file not there. A plan may do without."""


class GraphError(StepgraphError):
    """A graph or a plan is refused."""

    exit_code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the closest known word, or nothing.

    >>> did_you_mean("polcy", ["policy", "engine"])
    ", did you mean 'policy'?"
    >>> did_you_mean("zzz", ["policy"])
    ''
    """
    close = get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f", did you mean '{close[0]}'?" if close else ""
