"""The frameworks' own objects as components of a run: a rollout manager, an actor and a critic model.

Their methods may be plain, coroutines, or of Ray actors (``.remote``); all of them are called by the names that the
drivers use. Nothing here knows what runs when: the executor calls, and waits for, what the plan says.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepgraph.adapters.recorded import ends_the_run
from stepgraph.ir.graph import Graph
from stepgraph.runtime.contract import Context, Prompt, Weights


@dataclass(frozen=True)
class Objects:
    """What a driver works with. ``telling``: miles names memory tags to an offload, and the step to a sync."""

    rollout_manager: Any
    actor_model: Any
    critic_model: Any = None
    telling: bool = True
    check_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Caller:
    """Calls the frameworks' methods from the executor's threads, and awaits what is awaitable on ``loop``."""

    loop: asyncio.AbstractEventLoop

    def __call__(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """Call and wait for the answer. A list of references, which slime's groups give, is waited for and kept."""
        given = self.begin(target, method, *args, **options)
        if inspect.isawaitable(given):
            return self.wait(given)
        if isinstance(given, list) and given and all(map(inspect.isawaitable, given)):
            self.wait(_all(given))
        return given

    def begin(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        body = getattr(target, method)
        return getattr(body, "remote", body)(*args, **options)

    def wait(self, given: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(_one(given), self.loop).result()


async def _one(given: Any) -> Any:
    return await given


async def _all(given: list[Any]) -> None:
    await asyncio.gather(*given)


@dataclass
class Progress:
    """What the drivers keep in local variables: the run's end, and how often each model was updated.

    A model may wake and sleep inside a call, on devices that it shares with the other one: they take turns, even where
    the plan, which knows of places between calls only, lets them overlap.
    """

    graph: Graph
    total: int
    updates: Counter[str] = field(default_factory=Counter)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def forced(self, ctx: Context) -> bool:
        """``force_sync``: whether this save is the run's last, so that nobody would wait for a late one."""
        return ctx.step is not None and ends_the_run(self.graph, ctx.phase, ctx.step, self.total)

    def rollout(self, ctx: Context) -> int:
        """``rollout_id``: what runs before the first step is given the first step's."""
        return self.graph.run.first if ctx.step is None else ctx.step


@dataclass(frozen=True)
class RolloutManager:
    """The engines and the data source behind them."""

    objects: Objects
    call: Caller
    progress: Progress

    @property
    def target(self) -> Any:
        return self.objects.rollout_manager

    def generate(self, ctx: Context, prompts: Prompts) -> dict[str, Any]:
        prompts.take()
        return {"rollouts": self.call(self.target, "generate", self.progress.rollout(ctx))}

    def eval(self, ctx: Context) -> dict[str, Any]:
        return {"scores": self.call(self.target, "eval", self.progress.rollout(ctx))}

    def save(self, ctx: Context, prompts: Prompts) -> None:
        self.call(self.target, "save", self.progress.rollout(ctx))

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self.call(self.target, "offload", **({"tags": list(moves)} if self.objects.telling else {}))

    def onload_weights(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self.call(self.target, "onload_weights")

    def onload_kv(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self.call(self.target, "onload_kv")

    def check_weights(self, ctx: Context) -> None:
        self.call(self.target, "check_weights", action="compare", **self.objects.check_options)

    def dispose(self, ctx: Context) -> None:
        self.call(self.target, "dispose")


@dataclass(frozen=True)
class Model:
    """An actor or a critic; ``name`` is its resource."""

    objects: Objects
    call: Caller
    progress: Progress
    name: str

    @property
    def target(self) -> Any:
        return getattr(self.objects, f"{self.name}_model")

    def train(self, ctx: Context, rollouts: Any, values: Any = None) -> dict[str, Any]:
        return self._trained(ctx, "train", rollouts, values)

    def async_train(self, ctx: Context, rollouts: Any, values: Any = None) -> dict[str, Any]:
        return self._trained(ctx, "async_train", rollouts, values)

    def save_model(self, ctx: Context) -> None:
        self._call("save_model", ctx.step, force_sync=self.progress.forced(ctx))

    def offload(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self._call("offload")

    def onload(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self._call("onload")

    def clear_memory(self, ctx: Context, moves: Mapping[str, str]) -> None:
        self._call("clear_memory")

    def update_weights(self, ctx: Context, weights: Mapping[str, Weights]) -> None:
        told = {"rollout_id": ctx.step} if self.objects.telling and ctx.step is not None else {}
        self._call("update_weights", **told)

    def _trained(self, ctx: Context, method: str, rollouts: Any, values: Any) -> dict[str, Any]:
        options = {} if values is None else {"external_data": values}
        given = self._call(method, ctx.step, rollouts, **options)
        self.progress.updates[self.name] += 1
        return {"values": given} if self.name == "critic" else {}

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        with self.progress.turn:
            return self.call(self.target, method, *args, **options)


@dataclass(frozen=True)
class Sources:
    """What a sync copies from. The models send their weights themselves; a plan only wants to know which version."""

    progress: Progress

    def weights(self, name: str) -> Weights:
        return Weights(self.progress.updates[name], _nothing)


def _nothing() -> Iterator[tuple[str, Any]]:
    return iter(())


@dataclass
class Prompts:
    """The data source's cursor: the rollout manager keeps the prompts, a plan only counts the batches."""

    cursor: int = 0

    def take(self) -> list[Prompt]:
        self.cursor += 1
        return []

    def seek(self, cursor: int) -> None:
        self.cursor = cursor
