"""Starts DeepSpeed: one process of a group, or, where nobody made a group, a group of one.

On a CPU DeepSpeed would first compile an extension for shared-memory messages, for half a minute or more. It does
without: that extension is said to be unavailable before DeepSpeed asks.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore

from stepgraph.errors import ConfigError, RunError

COMPILED = "deepspeed_shm_comm"


def load(device: torch.device) -> Any:
    """The module ``deepspeed``, in a process group."""
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")
    deepspeed = _imported()
    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__[COMPILED] = False
    _join(device)
    _must_be_alone()
    deepspeed.init_distributed(dist_backend=_backend(device), verbose=False)
    return deepspeed


def built(module: Any, optimizer: Any, config: dict[str, Any], device: torch.device) -> Any:
    """DeepSpeed's engine around a model and an optimizer of ours."""
    deepspeed = load(device)
    try:
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    except (ValueError, RuntimeError, AssertionError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise RunError(f"trainer cannot start DeepSpeed: {' '.join(lines)[:400]}") from error
    return engine


def _imported() -> Any:
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    try:
        import deepspeed
    except ImportError as error:
        cure = "pip install 'stepgraph[deepspeed]'"
        raise ConfigError(f"trainer needs deepspeed, which cannot be imported ({error}): {cure}") from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    return deepspeed


def _join(device: torch.device) -> None:
    if distributed.is_initialized():
        return
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group(_backend(device))
    else:
        distributed.init_process_group(_backend(device), store=HashStore(), rank=0, world_size=1)


def _must_be_alone() -> None:
    ranks = distributed.get_world_size()
    if ranks > 1:
        raise ConfigError(f"trainer deepspeed trains on one rank, and this process is one of {ranks}; start it alone")


def _backend(device: torch.device) -> str:
    return "gloo" if device.type == "cpu" else "nccl"
