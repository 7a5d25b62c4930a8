"""The one place that decides how many threads torch computes with.

One by default: a second thread spins while it waits, and on a busy machine that made the same work seven times slower.
"""

from __future__ import annotations

import os

import torch

from stepgraph.errors import ConfigError

VARIABLE = "STEPGRAPH_THREADS"


def set_threads(wanted: int | None = None) -> int:
    """Use ``wanted`` threads (model.threads), else what ``STEPGRAPH_THREADS`` says, else one. Returns the number."""
    threads = _number(os.environ.get(VARIABLE, "1")) if wanted is None else wanted
    if threads < 1:
        raise ConfigError(f"{threads} threads cannot compute anything; set model.threads or {VARIABLE} to 1 or more")
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    return threads


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{VARIABLE} is {text!r}; it must be a whole number") from error
