"""What the loops of miles and slime have in common, as overrides: when the run ends, when it saves, evals and syncs.

Every override sets one word of a graph, a placement or a run; none names a step, so that there are as many of them for
three steps as for a million.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from stepgraph.adapters.arguments import Arguments
from stepgraph.api import read_graph

UNSAID = {"enabled": True, "from": 0, "last": False}
"""What a phase means that does not say so."""

WINDOWED = ("train_critic", "train_actor", "save_rollout_state", "sync_weights", "eval")
"""The phases of an async loop that others are due with, or that are due by themselves."""


def put(path: str, value: Any) -> str:
    """One override. JSON is what both YAML and the command line read.

    >>> put("graph.step.eval.when.every", None)
    'graph.step.eval.when.every=null'
    """
    if isinstance(value, tuple | list):
        return f"{path}=[{','.join(map(str, value))}]"
    return f"{path}={value if isinstance(value, str) else json.dumps(value)}"


def changed(loop: str, words: Iterable[str]) -> list[str]:
    """The overrides that say something else than a graph's file. Those of a placement and a run all say something."""
    graph = read_graph(loop)[0]
    return [word for word in words if not word.startswith("graph.") or says_more(graph, word)]


def says_more(graph: Mapping[str, Any], word: str) -> bool:
    """Whether the file has another value, or none where it would have to have one."""
    path, _, text = word.partition("=")
    *parents, last = path.split(".")[1:]
    node: Any = graph
    for key in parents:
        node = node.get(key) if isinstance(node, Mapping) else None
    found = node.get(last, UNSAID.get(last)) if isinstance(node, Mapping) else UNSAID.get(last)
    return bool(found != yaml.safe_load(text))


def enabled(switches: Mapping[str, bool]) -> Iterator[str]:
    """Phases in and out; an entry is ``step.NAME`` or ``start.NAME``."""
    for name, on in switches.items():
        yield put(f"graph.{name}.enabled", on)


def makes_room(leaves: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Who leaves the device for whom; nobody where that is empty, whatever the placement says."""
    for name, whom in leaves.items():
        yield put(f"placement.makes_room.{name}", whom or None)


def trainer_at(args: Arguments) -> Iterator[str]:
    """Where the models are before anything is called."""
    for name in ("actor", "critic"):
        yield put(f"placement.at.{name}", "host" if args.trainer_leaves else "device")


def sync_run(args: Arguments) -> Iterator[str]:
    """The steps of a loop that does one after the other. One without a step still begins and ends."""
    yield put("run.first", args.start_rollout_id if args.trains else 0)
    yield put("run.steps", args.stop if args.trains else 0)
    yield from epochs(args)


def async_run(args: Arguments) -> Iterator[str]:
    """The steps of a loop that has launched the next rollout by the time it leaves.

    The windows end where the loop leaves, and one step later for what runs ahead; the run goes on to where the
    arguments say, so that its last step is the one they mean.
    """
    yield put("run.first", args.start_rollout_id)
    yield put("run.steps", max(args.total, args.start_rollout_id + 1))
    yield from epochs(args)
    if args.stop < args.total or not args.trains:
        stop = max(args.stop, args.start_rollout_id) if args.trains else args.start_rollout_id
        yield put("graph.step.generate.when.until", stop + 1)
        for name in WINDOWED:
            yield put(f"graph.step.{name}.when.until", stop)


def epochs(args: Arguments) -> Iterator[str]:
    if args.num_rollout_per_epoch is not None:
        yield put("run.steps_per_epoch", args.num_rollout_per_epoch)


def saves(args: Arguments, *, last: bool) -> Iterator[str]:
    """``last``: whether the run ends where the arguments say; a debug exit saves nothing of its own accord."""
    yield from periodic("save_rollout_state", args.save_interval, args)
    if args.save_interval is not None:
        yield put("graph.step.save_rollout_state.when.last", last)


def periodic(phase: str, interval: int | None, args: Arguments) -> Iterator[str]:
    """Both frameworks' rule: every so many steps, and at the end of each epoch; never where there is no interval."""
    yield put(f"graph.step.{phase}.enabled", interval is not None)
    if interval is None:
        return
    yield put(f"graph.step.{phase}.when.every", interval)
    if args.num_rollout_per_epoch is not None:
        yield put(f"graph.step.{phase}.when.epoch_end", True)


def critic(args: Arguments) -> Iterator[str]:
    """With a critic the actor waits for ``num_critic_only_steps``; without one its values are not read."""
    yield from enabled({"step.train_critic": args.use_critic, "step.save_critic": args.use_critic})
    yield put("graph.step.train_actor.when.from", args.num_critic_only_steps)
    if not args.use_critic:
        yield put("graph.step.train_actor.reads", ("rollouts",))
