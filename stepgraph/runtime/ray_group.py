"""A component as a group of actors: every member gets each call, and a call is over when it is over for all of them.

The members of a trainer meet in collective operations, so one that fails leaves the others waiting for ever. Whoever
has not answered a little later is ended, and the error that is told is that of the one who failed by itself.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from stepgraph.errors import ConfigError, RunError
from stepgraph.ir.plan import Planned
from stepgraph.runtime.call import Call, Outcome, Returned
from stepgraph.runtime.plans import RunnablePlan, kept, named, owner
from stepgraph.runtime.ray_host import Remote
from stepgraph.runtime.ray_room import COUNT, count_of
from stepgraph.runtime.ray_wire import Answer, Surface
from stepgraph.runtime.workers import NotRun, Reported

RANKS = "ranks"
"""The attribute by which a component's class says that it can be one of several: it looks at ``shared.rank``."""
DIVIDES = "divides"
"""Its methods of which each member does its part, and gives a part of each value, a list."""
UNDIVIDED = "undivided"
"""The hooks that need all of what such a method works on."""
OF_OTHERS = re.compile(r"connection (was )?(reset|closed|refused|aborted)|broken pipe|gloo|nccl|process ?group", re.I)
"""What the libraries of collective operations say when it was another member that failed."""
KILLED = "ray.kill"
"""What Ray says of an actor that was ended from here, and not of one that died before that."""


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """One that performs calls: an actor of the run. ``late`` is what to add to its clock to have the driver's."""

    label: str
    actor: Any
    surface: Surface
    late: float = 0.0

    def submit(self, order: Any, given: Sequence[Any], returns: int) -> Any:
        return self.actor.perform.options(num_returns=returns).remote(order, *given)

    def timed(self, answer: Answer) -> Answer:
        """By the driver's clock."""
        return replace(answer, began=answer.began + self.late, ended=answer.ended + self.late)


@dataclass(frozen=True, slots=True)
class Group:
    """The members of a component in the order of their ranks, and what it says that they share out."""

    name: str
    members: tuple[Any, ...]
    divides: tuple[str, ...] = ()
    title: str = ""

    @property
    def first(self) -> Any:
        return self.members[0]

    @property
    def several(self) -> bool:
        return len(self.members) > 1

    def shares_out(self, planned: Planned) -> bool:
        return self.several and planned.use.partition(".")[2] in self.divides


@dataclass(frozen=True, slots=True)
class Pieces:
    """References to the parts of a value, by rank. Whoever reads the value puts them together."""

    refs: tuple[Any, ...]


def pieces_of(contents: Any) -> tuple[Any, ...]:
    """The references that contents are sent as."""
    return contents.refs if isinstance(contents, Pieces) else (contents,)


# ---- what a group cannot be ----------------------------------------------------------------------------------------


def check_groups(plan: RunnablePlan, targets: Mapping[str, Any], actors: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what cannot be several actors, or cannot be done by several, before anything is started."""
    for name in actors:
        count = count_of(name, actors)
        if count > 1 and name not in targets:
            raise ConfigError(f"executor.actors.{name}.{COUNT}={count}: only a component can be several actors")
        if count > 1:
            _check_component(plan, name, targets[name], f"executor.actors.{name}.{COUNT}")


def _check_component(plan: RunnablePlan, name: str, target: Any, word: str) -> None:
    what = getattr(target, "__name__", repr(target))
    if not getattr(target, RANKS, False):
        raise ConfigError(
            f"{name}: {what} does not know that it can be one of several: each would do all of the work; set {word}=1, "
            f"or choose a class that divides it, and says so with `{RANKS} = True`"
        )
    for planned in kept(plan):
        if planned.phase.component == name:
            _check_phase(planned, target, word)
        for stream in named(plan.graph, (*planned.reads, *planned.updates), "stream"):
            if (owner(plan.graph, stream) or "data") == name:
                raise ConfigError(f"{name}: has the stream {stream}, which has one cursor: set {word}=1")


def _check_phase(planned: Planned, target: Any, word: str) -> None:
    if planned.use.partition(".")[2] not in getattr(target, DIVIDES, ()):
        if planned.phase.retries:
            raise ConfigError(
                f"{planned.name}: has retries, but one actor that tries again alone would wait for the others; "
                f"take them out, or set {word}=1"
            )
        return
    for slot in planned.phase.hooks:
        if slot in getattr(target, UNDIVIDED, ()):
            raise ConfigError(
                f"{planned.name}.hooks.{slot}: needs the whole batch, and each of several actors has a part of it; "
                f"set {word}=1, or take the hook out"
            )


# ---- what the members say ------------------------------------------------------------------------------------------


class Blame(IntEnum):
    """Whose error it was. The lowest of a call's errors is the one to tell."""

    DIED = 0
    OWN = 1
    ENDED = 2
    OF_OTHERS = 3
    NOT_RUN = 4


@dataclass(frozen=True, slots=True)
class Word:
    """What came of one member of a call."""

    member: Any
    answer: Answer | None = None
    error: BaseException | None = None
    blame: Blame = Blame.OWN


def blamed(text: str) -> Blame:
    """Whose error one is, by what it says."""
    return Blame.OF_OTHERS if OF_OTHERS.search(text) else Blame.OWN


def cause(words: Iterable[Word]) -> Word | None:
    """The error that the others follow from, where there is any. Among equals it is the one that came first."""
    failed = [word for word in words if word.error is not None]
    return min(failed, key=lambda word: word.blame, default=None)


class Gathering:
    """Waits until all members of a call have said something; ``over`` gets the words in the order in which they came.

    Where one failed and others are silent for ``grace`` seconds, they are ended: ``end`` gets the one that failed, and
    those who had their say.
    """

    def __init__(
        self,
        count: int,
        over: Callable[[list[Word]], None],
        end: Callable[[Word, list[Any]], None],
        grace: float | None,
    ) -> None:
        self._count, self._over, self._end, self._grace = count, over, end, grace
        self._lock = threading.Lock()
        self._words: list[Word] = []
        self._timer: threading.Timer | None = None

    def heard(self, word: Word) -> None:
        with self._lock:
            self._words.append(word)
            whole = len(self._words) == self._count
            if not whole and word.error is not None and self._timer is None and self._grace is not None:
                self._timer = threading.Timer(self._grace, self._late, [word])
                self._timer.daemon = True
                self._timer.start()
        if whole:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._over(self._words)

    def _late(self, failed: Word) -> None:
        with self._lock:
            if len(self._words) == self._count:
                return
            heard = [word.member for word in self._words]
        self._end(failed, heard)


def joined(call: Call, group: Group, words: Sequence[Word], found: Word | None) -> Outcome:
    """The outcome of a call from what its members said: the first one's, once all have done their part."""
    said = {member: answer for member, answer in _in_order(group, words).items() if not answer.skipped}
    if found is not None and not said:
        return _not_begun(call, group, found)
    first = next(iter(said.values()))
    error = found.error if found else _apart(call, list(said.values()))
    return Reported(
        call.task,
        min(answer.began for answer in said.values()),
        max(answer.ended for answer in said.values()),
        group.title,
        returned=Returned(sinks=first.sinks, bytes=_least(said.values())),
        cursors=first.cursors,
        warnings=tuple(_told(group, said)),
        error=error,
        attempts=max(answer.attempts for answer in said.values()),
        saved=error is None and all(answer.saved for answer in said.values()),
    )


def logged(group: Group, words: Sequence[Word], divided: bool) -> list[Mapping[str, float]]:
    """The numbers of a call: the first member's, or, where each did its part, the means of theirs."""
    answers = list(_in_order(group, words).values())
    if not divided:
        return [numbers for answer in answers[:1] for numbers in answer.metrics]
    seen: dict[str, list[float]] = {}
    for answer in answers:
        last = {name: value for numbers in answer.metrics for name, value in numbers.items()}
        for name, value in last.items():
            seen.setdefault(name, []).append(value)
    return [{name: sum(values) / len(values) for name, values in seen.items()}] if seen else []


def _in_order(group: Group, words: Sequence[Word]) -> dict[Any, Answer]:
    found = {id(word.member): word.answer for word in words}
    answers = {member: found.get(id(member)) for member in group.members}
    return {member: answer for member, answer in answers.items() if answer is not None}


def _not_begun(call: Call, group: Group, found: Word) -> Outcome:
    now = time.monotonic()
    return Outcome(call.task, now, now, group.title, error=found.error)


def _apart(call: Call, answers: Sequence[Answer]) -> RunError | None:
    """Members that took different numbers of batches have no batch in common any more."""
    if all(answer.cursors == answers[0].cursors for answer in answers):
        return None
    said = "; ".join(f"rank {rank}: {dict(answer.cursors)}" for rank, answer in enumerate(answers))
    return RunError(f"{call.task.name}: its actors took different numbers of batches ({said}); each must take the same")


def _least(answers: Iterable[Answer]) -> dict[str, int]:
    """Sizes are those of one device, so it matters what happened on the one where the least did."""
    found: dict[str, int] = {}
    for answer in answers:
        for name, count in answer.bytes.items():
            found[name] = min(count, found.get(name, count))
    return found


def _told(group: Group, said: Mapping[Any, Answer]) -> Iterable[str]:
    for member, answer in said.items():
        for text in answer.warnings:
            yield f"{text} ({member.label})" if group.several else text


# ---- what the driver asks ------------------------------------------------------------------------------------------


class Everyone(Remote):
    """A component of several actors as the driver sees it. It asks all of them, as an answer may take them all (a
    checkpoint is loaded by everyone), and takes the first one's.
    """

    def __init__(self, group: Group, grace: float, end: Callable[[Word, list[Any]], None]) -> None:
        super().__init__(group.name, group.first.actor, group.first.surface, "")
        self._members, self._grace, self._end = group.members, grace, end

    def _asked(self, word: str, *args: Any, **named: Any) -> Any:
        asked = {member.actor.ask.remote(word, args, named): member for member in self._members}
        found, _ = together(asked, self._grace, self._end)[0]
        return found


def together(asked: Mapping[Any, Any], grace: float, end: Callable[[Word, list[Any]], None]) -> list[Any]:
    """What every member answers, or the error that the others' follow from."""
    ray: Any = importlib.import_module("ray")
    over = threading.Event()
    words: list[Word] = []

    def finish(found: list[Word]) -> None:
        words.extend(found)
        over.set()

    gathering = Gathering(len(asked), finish, end, grace)
    for ref, member in asked.items():
        ref.future().add_done_callback(lambda future, member=member: gathering.heard(_asked_word(ray, member, future)))
    over.wait()
    failed = cause(words)
    if failed is not None and failed.error is not None:
        raise failed.error
    answers: list[Any] = ray.get(list(asked))
    return answers


def word_of_death(member: Any, error: BaseException) -> Word:
    """What is heard of a member whose process is gone."""
    where = member.surface.where
    if KILLED in str(error):
        return Word(member, None, RunError(f"did not answer when others failed, and was ended [{where}]"), Blame.ENDED)
    return Word(
        member, None, RunError(f"its {where.partition(' ')[0]} died: {first_words(error)} [{where}]"), Blame.DIED
    )


def _asked_word(ray: Any, member: Any, future: Any) -> Word:
    error = future.exception()
    if error is None:
        return Word(member)
    if isinstance(error, ray.exceptions.RayTaskError):
        raised = getattr(error, "cause", None) or error
        return Word(member, None, raised, blamed(f"{type(raised).__name__}: {raised}"))
    return word_of_death(member, error)


def not_run(call: Call, why: str) -> NotRun:
    return NotRun(f"{call.task.name}: {why}")


def first_words(error: BaseException | None) -> str:
    """The first line of what Ray says: the others are for its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
