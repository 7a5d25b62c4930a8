"""The record of a run: what was planned, each thing that happened, and each step's numbers, on disk as they come.

``events.jsonl`` has one object a line, ``event`` says which: ``run``, ``start`` and ``end`` of a phase, ``retry``,
``skip``, ``slow``, ``warning``, ``checkpoint``, ``step``, ``stop``, ``finish``. ``t`` is seconds since the run
began (monotonic), ``wall`` seconds since the epoch.
A resumed run appends: where a step stands twice, the later line counts.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from stepgraph.runtime.checkpoint import clean, replace_durably
from stepgraph.runtime.plans import RunnablePlan
from stepgraph.runtime.rundir import RESULT
from stepgraph.runtime.trace import TRACE, TraceFile
from stepgraph.runtime.tracking import Tracked

Watch = Callable[[Mapping[str, Any]], None]
HURRY = 2.0
"""Seconds that a run which ends at once waits for what it leaves behind."""


class Journal:
    """Writes the run directory. Opening it is the first thing that leaves a trace on disk."""

    def __init__(
        self,
        run_dir: Path,
        plan: RunnablePlan,
        config_text: str = "",
        watch: Watch | None = None,
        tracked: Tracked | None = None,
    ) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        clean(run_dir)
        (run_dir / RESULT).unlink(missing_ok=True)
        (run_dir / "plan.json").write_text(json.dumps(plan.to_dict(), indent=1) + "\n", encoding="utf-8")
        if config_text:
            (run_dir / "config.yaml").write_text(config_text, encoding="utf-8")
        self.run_dir = run_dir
        self.began = time.monotonic()
        self._watch, self._tracked = watch, tracked or Tracked()
        self._lock = Lock()
        self._events = (run_dir / "events.jsonl").open("a", encoding="utf-8")
        self._metrics = (run_dir / "metrics.jsonl").open("a", encoding="utf-8")
        self.trace = TraceFile(run_dir / TRACE)

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    def event(self, event: str, **fields: Any) -> None:
        """Record that something happened."""
        record = self._record(event, fields)
        with self._lock:
            self._write(record)
        if self._watch:
            self._watch(record)

    def last_words(self, why: str) -> None:
        """The process ends at once: a signal's handler says so, which may have interrupted whoever holds the lock."""
        if self._lock.acquire(timeout=HURRY):
            self._write(self._record("stop", {"why": why}))
        self._tracked.finish("killed", HURRY)

    def metrics(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Record the numbers of a step, here and with the tracker."""
        self._metrics.write(_line({"step": step, **values}))
        self._metrics.flush()
        self._tracked.log(step, values)

    def result(self, **fields: Any) -> None:
        """Record how the run ended, in one move."""
        replace_durably(self.run_dir / RESULT, json.dumps(_plain(fields), indent=1) + "\n")

    def _record(self, event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"event": event, "t": round(self.now(), 6), "wall": round(time.time(), 3), **fields}

    def _write(self, record: Mapping[str, Any]) -> None:
        self._events.write(_line(record))
        self._events.flush()

    def close(self) -> None:
        self._events.close()
        self._metrics.close()
        self.trace.close()


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(_plain(record), default=str) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as words, so that every line can be read back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
