"""What was pruned over the steps that ran, counted as they end, so that the last line can say what it saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from stepgraph.ir.plan import CompiledStep
from stepgraph.runtime.result import Saved, whole_handoffs


class Tally:
    """Counts pruned phase runs, and which handoffs were pruned in which step."""

    def __init__(self) -> None:
        self.pruned = 0
        self._handoffs: Counter[str] = Counter()
        self._steps: set[int] = set()

    def add(self, compiled: CompiledStep, handoffs: frozenset[str]) -> int:
        """Count a step that is done; returns how many of its phases were pruned whole."""
        kept = {planned.name for planned in compiled.phases}
        whole = {one.name for one in compiled.pruned if one.name not in kept}
        gone = [name for name in whole_handoffs(compiled.pruned, kept) if name in handoffs]
        self.pruned += len(whole)
        self._handoffs.update(gone)
        if gone and compiled.step is not None:
            self._steps.add(compiled.step)
        return len(whole)

    def saved(self, median: Callable[[str], float | None]) -> Saved:
        """The time that the pruned handoffs would have taken, from what the same ones took in other steps."""
        costs = {name: median(name) for name in self._handoffs}
        known = {name: cost for name, cost in costs.items() if cost is not None}
        seconds = sum(cost * self._handoffs[name] for name, cost in known.items())
        measured = sum(self._handoffs[name] for name in known)
        return Saved(self._handoffs.total(), measured, seconds, tuple(sorted(self._steps)))
