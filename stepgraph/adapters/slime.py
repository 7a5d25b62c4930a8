"""slime's loops: ``train.py`` is the graph ``slime_sync``, ``train_async.py`` is ``slime_async``.

``overrides`` says what the driver's arguments mean for the graph; ``calls`` gives the compiled calls in the driver's
own words; ``run`` drives slime's own objects through the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

LOOPS = ("slime_sync", "slime_async")
UNSUPPORTED = {"debug_exit_after_rollout": None, "release_train": False}

WORDS = Words(
    stepped=frozenset({"generate", "train_critic", "train_actor", "save_actor", "save_critic", "save_rollout_state"})
    | {"eval"}
)


def overrides(config: Mapping[str, Any], loop: str = "slime_sync") -> list[str]:
    """What these arguments of slime change in a loop's graph, as ``stepgraph.load`` and the command line take it.

    Raises ``ConfigError`` for an argument that is not known, or that contradicts another one.

    >>> overrides({"num_rollout": 3, "eval_interval": 2})[:3]
    ['run.first=0', 'run.steps=3', 'graph.step.save_rollout_state.enabled=false']
    """
    return SLIME.overrides(config, loop)


def ignored(config: Mapping[str, Any], loop: str = "slime_sync") -> list[str]:
    """The given arguments that say nothing about the order of this loop's calls."""
    return SLIME.ignored(config, loop)


def plan(loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> Plan:
    """The compiled loop."""
    return SLIME.plan(loop, config, passes)


def calls(loop: str, config: Mapping[str, Any], passes: Iterable[str] = PASSES) -> list[dict[str, Any]]:
    """What the loop calls with these arguments, in the driver's own words; as it is written where ``passes=[]``."""
    return SLIME.calls(loop, config, passes)


# ---- running it ----------------------------------------------------------------------------------------------------


def run(
    args: Any,
    rollout_manager: Any,
    actor_model: Any,
    critic_model: Any = None,
    num_rollout_per_epoch: int | None = None,
    *,
    loop: str = "slime_sync",
    **options: Any,
) -> Result:
    """Run a loop of slime on slime's own objects: a Ray actor, and groups whose ``async_train`` gives references.

    ``args`` are the driver's; ``options`` go to ``stepgraph.run`` (``run_dir``, ``out``, ...). A call that fails raises
    what it raised.
    """
    config = {**known(args, (*NAMES, *UNSUPPORTED)), "num_rollout_per_epoch": num_rollout_per_epoch}
    objects = Objects(rollout_manager, actor_model, critic_model, telling=False)
    with own_loop() as events:
        return drive(plan(loop, config), events, objects, options)


# ---- what the arguments mean ---------------------------------------------------------------------------------------


def sync_loop(args: Arguments) -> Iterator[str]:
    yield from shape.sync_run(args)
    yield from shape.saves(args, last=True)
    yield from shape.periodic("eval", args.eval_interval, args)
    yield from shape.critic(args)
    yield shape.put("graph.step.save_actor.when.from", args.num_critic_only_steps)
    yield from shape.enabled(handoffs(args))
    yield shape.put("graph.step.clear_critic_memory.when.until", args.num_critic_only_steps)
    yield from shape.enabled(
        {
            "start.check_weights": args.check_weight_update_equal,
            "start.eval": args.eval_interval is not None
            and (args.total == 0 or (args.trains and args.start_rollout_id == 0 and not args.skip_eval_before_train)),
        }
    )
    yield from memory(args)


def handoffs(args: Arguments) -> dict[str, bool]:
    """The engine's handoffs, which ``start`` inherits, and what takes the place of offloading the trainer."""
    engine = ("offload_engine", "reload_engine_weights", "reload_engine_kv")
    clear = ("clear_actor_memory", "clear_critic_memory")
    return {f"step.{name}": args.engine_leaves for name in engine} | {
        f"step.{name}": not args.trainer_leaves for name in clear
    }


def memory(args: Arguments) -> Iterator[str]:
    """Who holds what: a model that does not sleep after its work leaves the allocator's cache behind."""
    for name in ("train_critic", "train_actor"):
        if not args.trainer_leaves:
            yield shape.put(f"graph.step.{name}.moves.cache", "device")
    for name in ("train_critic", "train_actor", "save_actor", "save_critic"):
        if not args.engine_leaves:
            yield shape.put(f"graph.step.{name}.needs", None)
    for name in ("weights", "kv_cache", "cuda_graph"):
        yield shape.put(f"placement.at.{name}", "none" if args.engine_leaves else "device")
    yield from shape.makes_room({"trainer": ("engine",) if args.trainer_leaves else (), "engine": ()})
    yield from shape.trainer_at(args)


def async_loop(args: Arguments) -> Iterator[str]:
    refuse_colocation("slime", args)
    yield from shape.async_run(args)
    yield from shape.saves(args, last=True)
    yield from shape.periodic("eval", args.eval_interval, args)
    yield shape.put("graph.step.sync_weights.when.every", args.update_weights_interval)
    yield from shape.critic(args)
    yield shape.put("graph.step.save_actor.when.from", args.num_critic_only_steps)
    yield from shape.enabled({"start.check_weights": args.check_weight_update_equal})
    yield from shape.makes_room({"trainer": (), "engine": ()})


SLIME = Framework(
    "slime",
    # What a loop does not read besides. An async one takes colocation at False only, see ``refuse_colocation``.
    {
        "slime_sync": Loop(sync_loop, ("offload_rollout_level", "update_weights_interval")),
        "slime_async": Loop(
            async_loop,
            ("colocate", "offload_rollout", "offload_rollout_level", "offload_train", "skip_eval_before_train"),
        ),
    },
    UNSUPPORTED,
    WORDS,
)
