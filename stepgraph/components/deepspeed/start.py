"""Starts DeepSpeed: one process of a group that meets where it was told, or a group of one.

On a CPU DeepSpeed would first compile an extension for shared-memory messages, for half a minute or more. It does
without: that extension is said to be unavailable before DeepSpeed asks.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore, Store, TCPStore

from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Shared

COMPILED = "deepspeed_shm_comm"


def load(device: torch.device, shared: Shared) -> Any:
    """The module ``deepspeed``, in a process group."""
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")
    deepspeed = _imported()
    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__[COMPILED] = False
    _join(device, shared)
    _must_be_all(shared)
    deepspeed.init_distributed(dist_backend=_backend(device), verbose=False)
    return deepspeed


def built(module: Any, optimizer: Any, config: dict[str, Any], device: torch.device, shared: Shared) -> Any:
    """DeepSpeed's engine around a model and an optimizer of ours. Every rank asks for it, and waits for the others."""
    deepspeed = load(device, shared)
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


def _join(device: torch.device, shared: Shared) -> None:
    if distributed.is_initialized():
        return
    if shared.ranks == 1 and "WORLD_SIZE" in os.environ:
        distributed.init_process_group(_backend(device))
        return
    store = HashStore() if shared.ranks == 1 else met(shared)
    distributed.init_process_group(_backend(device), store=store, rank=shared.rank, world_size=shared.ranks)


def met(shared: Shared) -> Store:
    """What the ranks find each other by: it is there when all of them are."""
    host, _, port = shared.meeting.rpartition(":")
    if not port.isdigit():
        raise ConfigError(
            f"trainer is rank {shared.rank} of {shared.ranks}, but where they meet is {shared.meeting!r}; "
            "executor=ray with executor.actors.trainer.count says HOST:PORT to each"
        )
    return TCPStore(host, int(port), shared.ranks, is_master=shared.rank == 0)


def _must_be_all(shared: Shared) -> None:
    """A launcher that starts several processes of a whole run is not what makes ranks here."""
    ranks = distributed.get_world_size()
    if ranks != shared.ranks:
        raise ConfigError(
            f"trainer is built for {shared.ranks} rank(s), and this process is one of {ranks}; start it alone, and "
            "have several with executor=ray executor.actors.trainer.count=N"
        )


def _backend(device: torch.device) -> str:
    return "gloo" if device.type == "cpu" else "nccl"
