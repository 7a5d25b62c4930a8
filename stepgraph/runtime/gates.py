"""Gates that only the run can decide: a file that was touched, a signal, minutes that passed, a metric.

The compiler planned such a phase in every step that it may fire in. Here each is decided once, when its turn comes.
"""

from __future__ import annotations

import operator
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from stepgraph.compiler.expand import gate
from stepgraph.errors import ConfigError, did_you_mean
from stepgraph.ir.phase import Phase
from stepgraph.runtime.plans import RunnablePlan

RULES: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Gates:
    """Decides whether a phase that may fire does. ``metrics`` gives the latest numbers."""

    def __init__(self, plan: RunnablePlan, run_dir: Path, metrics: Callable[[], Mapping[str, float]]) -> None:
        self._plan, self._run_dir, self._metrics = plan, run_dir, metrics
        self._phases = {phase.name: phase for phase in plan.graph.step}
        self._open = {phase.name for phase in plan.graph.step if self._decider(phase) is not None}
        self._decided: dict[tuple[str, int], bool] = {}
        self._since = dict.fromkeys(self._open, time.monotonic())
        self._seen = {name: self._touched(self._phases[name]) for name in self._open}
        self._signals: dict[str, int] = {}
        self._before: dict[int, Any] = {}

    def decided(self, name: str) -> bool:
        """Whether the plan alone says when the phase is due."""
        return name not in self._open

    def fires(self, name: str, step: int | None) -> bool:
        """Whether the phase runs in this step; where nothing is left to decide, it does."""
        if step is None or name not in self._open:
            return True
        decider = self._decider(self._phases[name])
        fixed = gate(self._phases[name], self._plan.graph, self._plan.first, self._plan.steps)
        if decider is None or fixed.fires(step) or not fixed.may_fire(step):
            return True
        key = (decider.name, step)
        if key not in self._decided:
            self._decided = {known: value for known, value in self._decided.items() if known[1] >= step - 1}
            self._decided[key] = self._decide(decider)
        return self._decided[key]

    def __enter__(self) -> Gates:
        if threading.current_thread() is threading.main_thread():
            wanted = {value for name in self._open for key, value in self._phases[name].when.runtime if key == "signal"}
            self._before = {getattr(signal, one): signal.signal(getattr(signal, one), self._handle) for one in wanted}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _decider(self, phase: Phase) -> Phase | None:
        """The phase whose own triggers decide: for ``with``, the one that it goes with."""
        if phase.when.may_fire:
            return phase
        other = self._phases.get(phase.when.with_ or "")
        return self._decider(other) if other is not None else None

    def _decide(self, phase: Phase) -> bool:
        fired = any(self._trigger(phase, key, value) for key, value in phase.when.runtime)
        if fired:
            self._since[phase.name], self._seen[phase.name] = time.monotonic(), self._touched(phase)
            self._signals = {one: n for one, n in self._signals.items() if ("signal", one) not in phase.when.runtime}
        return fired

    def _trigger(self, phase: Phase, key: str, value: str) -> bool:
        if key == "file":
            return self._touched(phase) > self._seen[phase.name]
        if key == "minutes":
            return time.monotonic() - self._since[phase.name] >= 60 * float(value)
        if key == "signal":
            return self._signals.get(value, 0) > 0
        name, compare, limit = rule(value, phase.name)
        found = self._metrics().get(name)
        return found is not None and compare(found, limit)

    def _touched(self, phase: Phase) -> int:
        """When the phase's file was last written; a relative one lies in the run directory."""
        files = [self._run_dir / value for key, value in phase.when.runtime if key == "file"]
        return max((file.stat().st_mtime_ns for file in files if file.exists()), default=0)

    def _handle(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        self._signals[name] = self._signals.get(name, 0) + 1


def check_gates(plan: RunnablePlan) -> None:
    """Refuse a gate that cannot be understood, before anything starts."""
    for phase in plan.graph.step:
        for key, value in phase.when.runtime:
            check_trigger(phase.name, key, value)


def check_trigger(phase: str, key: str, value: str) -> None:
    """Refuse a trigger that cannot be understood."""
    if key == "metric":
        rule(value, phase)
    if key == "minutes" and not _number(value):
        raise ConfigError(f"{phase}.when.minutes: {value!r} is not a number")
    if key == "signal" and value not in signal.Signals.__members__:
        raise ConfigError(f"{phase}.when.signal: no signal {value!r}{did_you_mean(value, signal.Signals.__members__)}")


def rule(text: str, phase: str) -> tuple[str, Callable[[float, float], bool], float]:
    """Read ``reward/mean > 0.9``."""
    for sign, compare in RULES.items():
        name, found, limit = text.partition(sign)
        if found and _number(limit):
            return name.strip(), compare, float(limit)
    raise ConfigError(f"{phase}.when.metric: cannot read {text!r}; write a rule such as 'reward/mean > 0.9'")


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
