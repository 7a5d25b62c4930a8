"""Hands each line of ``metrics.jsonl`` to a tracker, on a thread of its own, so that none can slow a run or fail it.

A run is worth more than its curves. So a tracker that raises is warned of once, one that is slow loses lines, and one
that hangs is left behind when the run is over.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from stepgraph.errors import ConfigError
from stepgraph.registry import TRACKERS, resolve
from stepgraph.runtime.build import TARGET

ROOM = 10_000
"""Lines that may wait for a tracker; what comes then is dropped, and that is said at the end."""
PATIENCE = 30.0
"""Seconds that a finished run waits for its tracker: some create a database first."""
WORDS = {"start": "run_dir, config", "log": "step, metrics", "finish": "status"}

Job = tuple[str, tuple[Any, ...]]


class Tracker(Protocol):
    """What gets the numbers of a run. Making one must cost nothing: ``start`` does what takes long.

    ``step`` is ``None`` for what ran before the first step or after the last; ``config`` is what the run was composed
    of, with ``run.first`` and ``run.steps`` as they really are.
    """

    def start(self, run_dir: Path, config: Mapping[str, Any]) -> None: ...

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None: ...

    def finish(self, status: str) -> None: ...


def tracker_of(section: Mapping[str, Any]) -> Tracker | None:
    """The tracker that a section of the configuration names, made with its options; ``None`` where it names none."""
    if not section:
        return None
    if not section.get(TARGET):
        raise ConfigError(f"tracker: its section has no {TARGET}; name the class, as in {TARGET}: pkg.mod.Class")
    target = str(section[TARGET])
    options = {str(key): value for key, value in section.items() if key != TARGET}
    made = resolve(target, "tracker", TRACKERS)
    if not callable(made):
        raise ConfigError(f"tracker: {target} is not callable but a {type(made).__name__}")
    try:
        inspect.signature(made).bind(**options)
    except TypeError as error:
        raise ConfigError(f"tracker: {target}: {error}") from None
    return checked(made(**options), target)


def checked(tracker: Any, what: str) -> Tracker:
    """A tracker, or what it lacks to be one."""
    for word, parameters in WORDS.items():
        if not callable(getattr(tracker, word, None)):
            asked = ", ".join(f"{name}({given})" for name, given in WORDS.items())
            raise ConfigError(f"tracker: {what} has no {word}({parameters}); a tracker has {asked}")
    found: Tracker = tracker
    return found


class Tracked:
    """A run's tracker, called by one thread. Without a tracker, nothing happens."""

    def __init__(self, tracker: Tracker | None = None, config: Mapping[str, Any] | None = None) -> None:
        self._tracker, self._config = tracker, config or {}
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # a signal's handler may put: no lock of Python's
        self._thread = Thread(target=self._work, daemon=True, name="tracker")
        self._open = self._broken = False
        self._dropped = 0
        self._warn: Callable[[str], None] = lambda text: None
        self.warnings: list[str] = []

    def start(self, run_dir: Path, warn: Callable[[str], None]) -> None:
        """Begin; ``warn`` is told, at most once, what goes wrong."""
        if self._tracker is None:
            return
        self._warn, self._open = warn, True
        self._jobs.put(("start", (run_dir, self._config)))
        self._thread.start()

    def log(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        """Hand over a line, unless too many wait already."""
        if not self._open:
            return
        if self._jobs.qsize() >= ROOM:
            self._dropped += 1
            return
        self._jobs.put(("log", (step, dict(metrics))))

    def finish(self, status: str, patience: float = PATIENCE) -> None:
        """Say how the run ended, and wait so long for the tracker to have everything. Only the first word counts."""
        if not self._open:
            return
        self._open = False
        self._jobs.put(("finish", (status,)))
        self._jobs.put(None)
        self._thread.join(patience)
        if self._thread.is_alive():
            self._doubt(f"the tracker is not done {patience:g} s after the run: its last lines may be missing")
        elif self._dropped:
            self._doubt(f"the tracker was too slow: {self._dropped} lines are only in metrics.jsonl")

    def _work(self) -> None:
        """Runs on the tracker's thread. One that did not start is asked nothing more."""
        while (job := self._jobs.get()) is not None:
            word, given = job
            if not self._tried(word, given) and word == "start":
                return

    def _tried(self, word: str, given: tuple[Any, ...]) -> bool:
        try:
            getattr(self._tracker, word)(*given)
        except BaseException as error:  # whatever it is, it is the tracker's own
            said = " ".join(str(error).split())
            self._doubt(f"the tracker's {word} failed, the run goes on: {type(error).__name__}: {said}")
            return False
        return True

    def _doubt(self, text: str) -> None:
        if not self._broken:
            self._broken = True
            self.warnings.append(text)
            self._warn(text)


def as_it_runs(config: Mapping[str, Any], first: int, steps: int) -> dict[str, Any]:
    """The configuration with the steps that are really run: a run that goes on begins where it was saved."""
    return {**config, "run": {**(config.get("run") or {}), "first": first, "steps": steps}}
