"""What a person reads: one plain line a step, and at the end what happened, what it saved, and how to go on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from math import floor, log10
from typing import TextIO

from stepgraph.runtime.result import Failure, Result, Saved
from stepgraph.runtime.timing import Ran, StepTime

SYNC, HANDOFF, IDLE = "sync", "handoff", "idle"
WIDTH = 100
SLACK = 8
"""A line may be so much longer before anything is left out of it."""
SMALL = 0.05
"""What takes less than this part of its step may be summed as ``other``, where the line is long."""
SHOWN = (("reward/mean", "reward"), ("eval/reward", "eval"), ("policy/kl", "kl"))
"""Metrics that a step's line shows where a component logged them, and the word for each."""


class Report:
    """Prints lines, each flushed, so that a log file is never behind."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line, file=self._out or sys.stdout, flush=True)

    def line(self, line: str) -> None:
        self.lines([line])


def duration(seconds: float) -> str:
    """Seconds with one decimal, or, where it is less than one second, with the digits that count.

    >>> [duration(x) for x in (18.43, 0.5, 0.0123, 0.0042, 0.0)]
    ['18.4', '0.50', '0.012', '0.004', '0.0']
    """
    if seconds >= 1 or seconds < 5e-5:
        return f"{seconds:.1f}"
    digits = 2 if seconds >= 0.01 else 1
    return f"{seconds:.{min(4, digits - 1 - floor(log10(seconds)))}f}"


def number(value: float) -> str:
    """A metric in few characters."""
    return f"{value:.3g}" if value != round(value) or abs(value) >= 1e6 else f"{value:.0f}"


def step_line(step: int, total: int, time: StepTime, metrics: Mapping[str, float], variant: int) -> str:
    """One step in one line, of ``WIDTH`` columns where that can be: what is small is then summed as ``other``."""
    head = f"step {step + 1}/{total} {duration(time.seconds)}s | "
    shown = shown_metrics(metrics)
    tail = (f" | {shown}" if shown else "") + f" | variant {variant}"
    return head + _fit(time, WIDTH - len(head) - len(tail)) + tail


def outer_line(label: str, time: StepTime, metrics: Mapping[str, float]) -> str:
    """What ran before the first step or after the last one, in one line."""
    head = f"{label} {duration(time.seconds)}s | "
    shown = shown_metrics(metrics)
    tail = f" | {shown}" if shown else ""
    return head + _fit(time, WIDTH - len(head) - len(tail)) + tail


def shown_metrics(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{word} {number(metrics[key])}" for key, word in SHOWN if key in metrics)


def parts_of(time: StepTime) -> dict[str, float]:
    """Work by name, then ``sync``, ``handoff`` and ``idle``."""
    parts = {ran.name: 0.0 for ran in time.phases if ran.kind == "work"}
    for ran in time.phases:
        word = _word(ran)
        parts[word] = parts.get(word, 0.0) + ran.seconds
    last: dict[str, float] = {word: parts.pop(word) for word in (SYNC, HANDOFF) if word in parts}
    return parts | last | {IDLE: time.idle}


def _word(ran: Ran) -> str:
    if ran.kind == "work":
        return ran.name
    return SYNC if ran.copies else HANDOFF


def _fit(time: StepTime, room: int) -> str:
    left, other = parts_of(time), 0.0
    text = _spell(left, other)
    if len(text) <= room + SLACK:
        return text
    for name in _small(time, left):
        if len(text) <= room:
            break
        spent = left.pop(name)
        other += spent if name != IDLE else 0.0
        text = _spell(left, other)
    return text


def _small(time: StepTime, parts: Mapping[str, float]) -> list[str]:
    """What may be left out, in that order: work, then handoffs, then idle time; the smallest first."""
    small = [name for name, seconds in parts.items() if seconds < SMALL * time.seconds]
    return sorted(small, key=lambda name: (name == IDLE, name in (SYNC, HANDOFF), parts[name]))


def _spell(parts: Mapping[str, float], other: float) -> str:
    words = [f"{name} {duration(seconds)}" for name, seconds in parts.items()]
    if other:
        words.insert(len(words) - (IDLE in parts), f"other {duration(other)}")
    return " ".join(words)


def saved_words(saved: Saved, last: int) -> str:
    """``saved ~5.3 s: 4 handoffs in the last step (measured medians)``; only the count where nothing was measured."""
    if not saved.handoffs:
        return ""
    if saved.steps == (last,):
        where = "in the last step"
    else:
        where = f"in {len(saved.steps)} steps" if len(saved.steps) != 1 else f"in step {saved.steps[0] + 1}"
    count = f"{saved.handoffs} {'handoff' if saved.handoffs == 1 else 'handoffs'}"
    if not saved.measured:
        return f"{count} not run {where}"
    unknown = saved.handoffs - saved.measured
    rest = f"; {unknown} never ran and are not counted" if unknown else ""
    return f"saved ~{duration(saved.seconds)} s: {count} {where} (measured medians{rest})"


def last_lines(result: Result) -> list[str]:
    """The end of a run: a failure in full, what is owed, and the line that says the status."""
    lines = [f"owed: {owed}" for owed in result.owed]
    if result.failure is not None:
        lines += failure_lines(result.failure)
    return [*lines, last_line(result)]


def last_line(result: Result) -> str:
    """The status, what was pruned over the run, and the time that this saved."""
    if result.status == "already_complete":
        return f"already_complete: all {result.total} steps were done before; nothing was started"
    if not result.run_dir:
        return f"{result.status}: the plan is empty; nothing was started"
    done = f"{result.first + result.steps} of {result.total} steps"
    parts = [f"{done} in {span(result.seconds)}", f"{result.pruned} phase runs pruned"]
    saved = saved_words(result.saved, result.first + result.steps - 1)
    return f"{result.status}: " + "; ".join([*parts, saved] if saved else parts)


def failure_lines(failure: Failure) -> list[str]:
    """What failed, after what, where the traceback is, what is safe, and how to go on."""
    place = f" in {failure.place}" if failure.place else ""
    lines = [f"FAILED  {failure.phase}{place}: {failure.message.removeprefix(f'{failure.phase}: ')}"]
    if failure.before:
        lines.append("  before   " + ", ".join(f"{name} {duration(seconds)} s" for name, seconds in failure.before))
    facts = (("at", failure.at), ("log", failure.log), ("safe", failure.safe), ("go on", failure.go_on))
    return lines + [f"  {word:<8} {text}" for word, text in facts if text]


def place_of(step: int, total: int) -> str:
    """``step 7/36``, counted from 1."""
    return f"step {step + 1}/{total}"


def span(seconds: float) -> str:
    """A longer time in words."""
    if seconds < 120:
        return f"{duration(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
