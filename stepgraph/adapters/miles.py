"""miles' loops: ``train.py`` is the graph ``miles_sync``, ``train_async.py`` is ``miles_async``.

``overrides`` says what the driver's arguments mean for the graph; ``calls`` gives the compiled calls in the driver's
own words; ``run`` drives miles' own objects through the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepgraph.adapters import overrides as shape
from stepgraph.adapters.arguments import NAMES, Arguments, refuse_colocation
from stepgraph.adapters.drive import drive, known, own_loop
from stepgraph.adapters.framework import Framework, Loop
from stepgraph.adapters.objects import Objects
from stepgraph.adapters.recorded import Words
from stepgraph.compiler.compile import PASSES
from stepgraph.compiler.plan import Plan
from stepgraph.runtime.result import Result

LOOPS = ("miles_sync", "miles_async")
UNSUPPORTED = {"colocate_memory_peak_device": "cpu", "fully_async": False, "save_trigger_sentinel": None}

WORDS = Words(
    stepped=frozenset({"generate", "train_critic", "train_actor", "save_actor", "save_critic", "save_rollout_state"})
    | {"sync_weights", "eval"},
    tagged=frozenset({"offload_engine"}),
)


def overrides(config: Mapping[str, Any], loop: str = "miles_sync") -> list[str]:
    """What these arguments of miles change in a loop's graph, as ``stepgraph.load`` and the command line take it.

    Raises ``ConfigError`` for an argument that is not known, or that contradicts another one.

    >>> overrides({"num_rollout": 3, "eval_interval": 2})[:3]
    ['run.first=0', 'run.steps=3', 'graph.step.save_rollout_state.enabled=false']
    """
    return MILES.overrides(config, loop)


def ignored(config: Mapping[str, Any], loop: str = "miles_sync") -> list[str]:
    """The given arguments that say nothing about the order of this loop's calls."""
    return MILES.ignored(config, loop)


def plan(loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> Plan:
    """The compiled loop."""
    return MILES.plan(loop, config, passes)


def calls(loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> list[dict[str, Any]]:
    """What the loop calls with these arguments, in the driver's own words; as it is written where ``passes=[]``."""
    return MILES.calls(loop, config, passes)


# ---- running it ----------------------------------------------------------------------------------------------------

CHECK_OPTIONS = {
    "allow_quant_error": "check_weight_update_allow_quant_error",
    "selector": "check_weight_update_selector",
    "skip_list": "check_weight_update_skip_list",
}
"""What ``check_weights`` is told besides its action, where the arguments have it."""


def run(
    args: Any,
    rollout_manager: Any,
    actor_model: Any,
    critic_model: Any = None,
    num_rollout_per_epoch: int | None = None,
    *,
    loop: str = "miles_sync",
    **options: Any,
) -> Result:
    """Run a loop of miles on miles' own objects, whose methods may be coroutines or those of Ray actors.

    ``args`` are the driver's; ``options`` go to ``stepgraph.run`` (``run_dir``, ``out``, ...). A call that fails raises
    what it raised. Coroutines are awaited on a loop of their own: inside a running one, await ``run_async``.
    """
    compiled, objects = prepared(args, Objects(rollout_manager, actor_model, critic_model), num_rollout_per_epoch, loop)
    with own_loop() as events:
        return drive(compiled, events, objects, options)


async def run_async(
    args: Any,
    rollout_manager: Any,
    actor_model: Any,
    critic_model: Any = None,
    num_rollout_per_epoch: int | None = None,
    *,
    loop: str = "miles_sync",
    **options: Any,
) -> Result:
    """``run`` for a driver that is a coroutine itself: what it calls is awaited on the driver's own event loop."""
    compiled, objects = prepared(args, Objects(rollout_manager, actor_model, critic_model), num_rollout_per_epoch, loop)
    events = asyncio.get_running_loop()
    return await asyncio.to_thread(drive, compiled, events, objects, {"signals": False, **options})


def prepared(args: Any, objects: Objects, per_epoch: int | None, loop: str) -> tuple[Plan, Objects]:
    """The plan that a driver's arguments ask for, and its objects with what they are to be told."""
    config = {**known(args, (*NAMES, *UNSUPPORTED)), "num_rollout_per_epoch": per_epoch}
    given = known(args, CHECK_OPTIONS.values())
    check = {option: given[name] for option, name in CHECK_OPTIONS.items() if name in given}
    return plan(loop, config), replace(objects, check_options=check)


# ---- what the arguments mean ---------------------------------------------------------------------------------------


def sync_loop(args: Arguments) -> Iterator[str]:
    yield from shape.sync_run(args)
    yield from shape.saves(args, last=args.stop == args.total)
    yield from shape.periodic("eval", args.eval_interval, args)
    yield from shape.critic(args)
    yield shape.put("graph.step.save_actor.when.from", args.num_critic_only_steps)
    yield from shape.enabled(engine(args) | trainer(args))
    yield from shape.enabled(
        {
            "start.check_weights": args.check_weight_update_equal,
            "start.eval": args.eval_interval is not None
            and (args.total == 0 or (args.trains and not args.skip_eval_before_train)),
        }
    )
    tail = not args.use_critic
    yield from shape.enabled({"step.offload_train": tail and args.trainer_leaves})
    yield from shape.enabled({"step.clear_actor_memory": tail and not args.trainer_leaves})
    if tail and not args.trainer_leaves:
        yield shape.put("graph.step.train_actor.moves.cache", "device")
    yield from sync_rooms(args)


def engine(args: Arguments) -> dict[str, bool]:
    """The engine's handoffs, which ``start`` inherits."""
    names = ("offload_engine", "reload_engine_weights", "reload_engine_kv")
    return {f"step.{name}": args.engine_leaves for name in names}


def trainer(args: Arguments) -> dict[str, bool]:
    """The handoffs between actor and critic, and around their saves."""
    names = (
        "offload_critic", "offload_actor", "reload_actor", "offload_actor_saved", "reload_critic",
        "offload_critic_saved",
    )  # fmt: skip
    return {f"step.{name}": args.use_critic and args.trainer_leaves for name in names}


def sync_rooms(args: Arguments) -> Iterator[str]:
    """Who leaves for whom: the trainer for the engine, and of the engine what ``offload_rollout_level`` names."""
    leaves = {"cuda_graph": True, "kv_cache": "kv_cache" in args.offload_rollout_level}
    leaves["weights"] = "weight" in args.offload_rollout_level
    for name, on in leaves.items():
        if not on:
            yield shape.put(f"graph.step.offload_engine.moves.{name}", None)
        yield shape.put(f"placement.at.{name}", "none" if args.engine_leaves else "device")
    engine = {name: ("trainer",) if on and args.engine_leaves else () for name, on in leaves.items()}
    trainer: dict[str, tuple[str, ...]] = {"trainer": ("engine",) if args.trainer_leaves else (), "engine": ()}
    yield from shape.makes_room(trainer | engine | turns(args))
    yield from shape.trainer_at(args)


def turns(args: Arguments) -> dict[str, tuple[str, ...]]:
    """Actor and critic take turns on the trainer's devices where the loop offloads them."""
    both = args.use_critic and args.trainer_leaves
    return {"actor": ("critic",) if both else (), "critic": ("actor",) if both else ()}


def async_loop(args: Arguments) -> Iterator[str]:
    refuse_colocation("miles", args)
    yield from shape.async_run(args)
    yield from shape.saves(args, last=True)
    yield from shape.periodic("eval", args.eval_interval, args)
    yield shape.put("graph.step.sync_weights.when.every", args.update_weights_interval)
    yield from shape.critic(args)
    yield from shape.enabled(trainer(args))
    yield from shape.enabled(
        {
            "start.check_weights": args.check_weight_update_equal,
            "start.eval": args.eval_interval is not None
            and args.start_rollout_id == 0
            and not args.skip_eval_before_train,
        }
    )
    yield from shape.makes_room({"trainer": (), "engine": ()} | turns(args))
    yield from shape.trainer_at(args)


MILES = Framework(
    "miles",
    # What a loop does not read besides. An async one takes colocation at False only, see ``refuse_colocation``.
    {
        "miles_sync": Loop(sync_loop, ("update_weights_interval",)),
        "miles_async": Loop(async_loop, ("colocate", "offload_rollout", "offload_rollout_level")),
    },
    UNSUPPORTED,
    WORDS,
)
