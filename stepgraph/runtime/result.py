"""How a run ended: what ``stepgraph.run`` returns, and what a failure is known to have left safe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepgraph.errors import RunError
from stepgraph.ir.plan import Pruned

EXIT_CODES = {"completed": 0, "completed_with_warnings": 0, "stopped": 0, "already_complete": 0, "failed": 1}

NOT_DUE = ("not_due", "disabled")
"""Codes of what was never asked for, so that its absence saves nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first error: where, what ran before it, what is safe, and the command that goes on.

    ``at`` is the last line of the user's own code that it went through.
    """

    phase: str
    step: int | None
    error: BaseException
    place: str = ""
    at: str = ""
    before: tuple[tuple[str, float], ...] = ()
    log: str = ""
    safe: str = ""
    go_on: str = ""

    @property
    def message(self) -> str:
        """The error in one line."""
        text = " ".join(str(self.error).split())
        kind = type(self.error).__name__
        if isinstance(self.error, RunError):
            return text
        return f"{kind}: {text}" if text else kind


@dataclass(frozen=True, slots=True)
class Saved:
    """Time that pruned handoffs did not take: ``seconds`` for the ``measured`` of the ``handoffs``, in ``steps``."""

    handoffs: int = 0
    measured: int = 0
    seconds: float = 0.0
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """``steps`` were done here: ``first`` up to, not including, ``first + steps``; ``total``: of the whole run."""

    status: str
    first: int = 0
    steps: int = 0
    total: int = 0
    run_dir: Path | None = None
    pruned: int = 0
    saved: Saved = Saved()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


def whole_handoffs(pruned: tuple[Pruned, ...], kept: set[str]) -> list[str]:
    """The handoffs that were pruned whole because nobody wanted what they do."""
    names = dict.fromkeys(one.name for one in pruned if one.code not in NOT_DUE and one.name not in kept)
    return list(names)
