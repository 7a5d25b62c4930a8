"""Signals: the first one asks the run to stop after the step in flight, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AT_ONCE = 130


class StopSignals:
    """Installed for the length of a run, where the run has the main thread (Python allows it nowhere else)."""

    def __init__(self, ask: Callable[[str], None], last_words: Callable[[], None]) -> None:
        self._ask = ask
        self._last_words = last_words
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._handle) for one in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            self._last_words()
            os._exit(AT_ONCE)  # worker threads cannot be ended; a checkpoint that is being written is not yet named
        self._asked = True
        self._ask(signal.Signals(number).name)
