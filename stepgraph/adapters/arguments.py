"""The arguments of miles and slime that shape the loop, under those frameworks' own names, checked.

The two drivers are kin: slime's arguments are a subset of miles'. What an argument means for a graph is said in
``miles`` and ``slime``; here it is only made sure that it is known, whole and free of contradictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from stepgraph.errors import ConfigError, did_you_mean

LEVELS = ("kv_cache", "weight")
"""What of the engine, besides its CUDA graphs, ``offload_rollout`` takes off the device."""

ELSEWHERE = (
    "actor_num_gpus_per_node", "actor_num_nodes", "advantage_estimator", "eval_prompt_data", "global_batch_size",
    "hf_checkpoint", "load", "lr", "n_samples_per_prompt", "prompt_data", "rollout_batch_size",
    "rollout_global_dataset", "rollout_max_response_len", "rollout_num_gpus", "save", "seed",
)  # fmt: skip
"""Arguments that say what happens inside a call, not which calls there are."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the drivers read. ``num_rollout_per_epoch`` is no argument there: ``create_rollout_manager`` returns it."""

    start_rollout_id: int = 0
    num_rollout: int | None = None
    num_epoch: int | None = None
    num_rollout_per_epoch: int | None = None
    eval_interval: int | None = None
    save_interval: int | None = None
    skip_eval_before_train: bool = False
    use_critic: bool = False
    num_critic_only_steps: int = 0
    colocate: bool = False
    offload_train: bool | None = None
    offload_rollout: bool | None = None
    offload_rollout_level: tuple[str, ...] = LEVELS
    check_weight_update_equal: bool = False
    update_weights_interval: int = 1
    debug_exit_after_rollout: int | None = None

    @property
    def total(self) -> int:
        """``num_rollout``, or what makes that many epochs."""
        if self.num_rollout is not None:
            return self.num_rollout
        return (self.num_epoch or 0) * (self.num_rollout_per_epoch or 0)

    @property
    def stop(self) -> int:
        """The step after the last that is trained on: a debug exit leaves the loop early."""
        if self.debug_exit_after_rollout is None:
            return self.total
        return min(self.total, self.start_rollout_id + self.debug_exit_after_rollout)

    @property
    def trains(self) -> bool:
        """Whether there is a step at all."""
        return self.total > self.start_rollout_id

    @property
    def trainer_leaves(self) -> bool:
        """``offload_train``, which ``colocate`` implies."""
        return self.colocate if self.offload_train is None else self.offload_train

    @property
    def engine_leaves(self) -> bool:
        """``offload_rollout``, which ``colocate`` implies."""
        return self.colocate if self.offload_rollout is None else self.offload_rollout


NAMES = tuple(field.name for field in fields(Arguments))
FLAGS = ("skip_eval_before_train", "use_critic", "colocate", "check_weight_update_equal")
OPTIONAL_FLAGS = ("offload_train", "offload_rollout")
LEAST = {
    "start_rollout_id": 0, "num_rollout": 0, "num_epoch": 0, "num_rollout_per_epoch": 1, "eval_interval": 1,
    "save_interval": 1, "num_critic_only_steps": 0, "update_weights_interval": 1, "debug_exit_after_rollout": 1,
}  # fmt: skip
MAY_BE_NONE = (
    "num_rollout", "num_epoch", "num_rollout_per_epoch", "eval_interval", "save_interval", "debug_exit_after_rollout",
)  # fmt: skip


def read(config: Mapping[str, Any], framework: str, unsupported: Mapping[str, Any]) -> Arguments:
    """Check a configuration. ``unsupported`` maps arguments that would change the loop to the value that does not."""
    known = (*NAMES, *ELSEWHERE, *unsupported)
    for name, value in config.items():
        if name not in known:
            raise ConfigError(
                f"{framework}: '{name}' is no argument that the loop is known to read{did_you_mean(name, known)}; "
                "take it out where it only says what happens inside a call"
            )
        if name in unsupported and value not in (unsupported[name], None):
            raise ConfigError(
                f"{framework}: {name}={value!r} makes another loop, which has no graph here: "
                f"leave {name} at {unsupported[name]!r}"
            )
    found = Arguments(**{name: checked(framework, name, config[name]) for name in NAMES if name in config})
    refuse_contradictions(framework, found)
    return found


def checked(framework: str, name: str, value: Any) -> Any:
    """One argument as the loop reads it."""
    if name == "offload_rollout_level":
        return levels(framework, value)
    if name in FLAGS or name in OPTIONAL_FLAGS:
        if value is None:
            return None if name in OPTIONAL_FLAGS else False
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{framework}: {name}={value!r} is a flag: give True or False")
    if value is None and name in MAY_BE_NONE:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < LEAST[name]:
        raise ConfigError(f"{framework}: {name}={value!r}: give a whole number of at least {LEAST[name]}")
    return value


def levels(framework: str, value: Any) -> tuple[str, ...]:
    listed: Iterable[Any] = (value,) if isinstance(value, str) else value or ()
    for word in listed:
        if word not in LEVELS:
            raise ConfigError(
                f"{framework}: offload_rollout_level names {word!r}{did_you_mean(str(word), LEVELS)} "
                f"(known: {', '.join(LEVELS)})"
            )
    return tuple(listed)


def refuse_contradictions(framework: str, args: Arguments) -> None:
    """Arguments that cannot all be meant."""
    if args.num_rollout is None and (args.num_epoch is None or args.num_rollout_per_epoch is None):
        raise ConfigError(
            f"{framework}: nothing says how long the run is: give num_rollout, or num_epoch with num_rollout_per_epoch"
        )
    if args.num_critic_only_steps and not args.use_critic:
        raise ConfigError(
            f"{framework}: num_critic_only_steps={args.num_critic_only_steps} without use_critic: "
            "no step would train the critic; set use_critic, or num_critic_only_steps=0"
        )


def refuse_colocation(framework: str, args: Arguments) -> None:
    """The async drivers want devices of their own for the engine."""
    for name in ("colocate", "offload_rollout"):
        if getattr(args, name):
            raise ConfigError(
                f"{framework}: {name} with the async loop, whose engine generates while the trainer works: "
                f"take {name} out, or use {framework}_sync"
            )
