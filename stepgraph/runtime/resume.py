"""Where a run begins: components and streams as they were built or as a checkpoint has them, and what each holds."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from stepgraph.errors import RunError
from stepgraph.runtime.checkpoint import Checkpoint, RunState
from stepgraph.runtime.contract import Stream
from stepgraph.runtime.mirror import NEVER, Mirror, carried, version_of
from stepgraph.runtime.plans import RunnablePlan, kept, named, owner

Components = Mapping[str, Any]
Streams = Mapping[str, Stream]


def restored(plan: RunnablePlan, components: Components, streams: Streams, checkpoint: Checkpoint | None) -> Mirror:
    """Load the checkpoint, if there is one, and return the state that the run begins with."""
    state = checkpoint.state if checkpoint else RunState(-1, 0)
    copied = copied_into(plan)
    if checkpoint:
        load(plan, components, checkpoint, [name for name in carried(plan.graph) if name not in copied])
    for name in streams.keys() & state.cursors.keys():
        streams[name].seek(state.cursors[name])
    known = (
        {} if checkpoint is None else {name: number for name, number in state.versions.items() if name not in copied}
    )
    versions = {name: _version(plan, components, name, name in copied, known.get(name)) for name in carried(plan.graph)}
    return Mirror(plan.graph, versions, {name: stream.cursor for name, stream in streams.items()})


def load(plan: RunnablePlan, components: Components, checkpoint: Checkpoint, resources: list[str]) -> None:
    """Ask every component that can, and that something of the checkpoint belongs to, to load it."""
    for component in dict.fromkeys(owner(plan.graph, name) for name in resources):
        body = getattr(components.get(component), "load", None)
        if callable(body):
            part = checkpoint.path / component
            body(part if part.is_dir() else checkpoint.path)


def copied_into(plan: RunnablePlan) -> set[str]:
    """Resources that get their contents from others: a run begins without them."""
    return set(plan.graph.sources)


def streams_of(plan: RunnablePlan, components: Components, known: Container[str] = ()) -> dict[str, Stream]:
    """Every stream that a kept phase takes from, asked for once: whoever asks twice may get one that starts anew."""
    wanted = tuple(dict.fromkeys(name for planned in kept(plan) for name in (*planned.reads, *planned.updates)))
    streams = named(plan.graph, wanted, "stream")
    return {name: stream_of(plan, components, name) for name in streams if name not in known}


def ends(stream: Stream) -> bool:
    """Whether a stream knows its length (``batches``)."""
    return getattr(stream, "batches", None) is not None


def used_up(stream: Stream, cursor: int) -> bool:
    """Whether a stream that knows its length has nothing left when it was read so far."""
    batches: int | None = getattr(stream, "batches", None)
    return batches is not None and cursor >= batches


def stream_of(plan: RunnablePlan, components: Components, name: str) -> Stream:
    """The stream behind a resource: of the component that it belongs to, or of ``data``."""
    provider = components[owner(plan.graph, name) or "data"]
    found: Stream = provider.stream(name) if hasattr(provider, "stream") else provider
    return found


def _version(plan: RunnablePlan, components: Components, name: str, copied: bool, saved: int | None) -> int:
    said = version_of(components, plan.graph, name)
    if saved is not None and said is not None and said != saved:
        who = owner(plan.graph, name)
        raise RunError(
            f"{who} says that {name} holds version {said}, but the checkpoint was made at {saved}: is it saved too?"
        )
    if saved is not None:
        return saved
    return said if said is not None else NEVER if copied else 0
