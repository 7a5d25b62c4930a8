"""What each handoff of a colocated run costs on one GPU, and what the last step saves by having none.

``python benchmarks/gpu_handoff.py`` trains a model of random weights, as large as fits, with the embedded engine and
trainer through a compiled plan. Each handoff is timed from outside; the bytes that it reports are compared with what
the driver says, and its rate with a bare copy between the device and pinned memory, all in this process. It exits with
1 where a handoff frees less than it reports, or takes more, and with 0 and one line where there is no CUDA device.

``--device cpu --hidden 256`` tries all of it out without a GPU: the device is then this process's memory, and the host
a file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 1 << 30
SIZES = ((32, 4096), (28, 3072), (24, 2048), (12, 1024))
"""Layers and width: 6.4, 3.2, 1.2 and 0.15 billion weights."""
ON_CPU = (8, 256)
DEVICE_BYTES, HOST_BYTES, WORK = 9, 16, 6 * GIB
"""Of each weight: on the device weights, gradient and AdamW's state in bfloat16; on the host what is put away, twice,
as pinned memory comes in powers of two. ``WORK``: KV cache, activations, and what else is on the device."""
GRAPH = ("placement=colocated", "~graph.step.eval", "~graph.start.eval", "~graph.step.save")
DATA = {"task": "digits", "op": "copy", "length": 3, "batch": 8, "eval_size": 4}
HEADS = ("s", "GiB", "driver", "copied", "GiB/s", "of bare")
SLACK, SHARE = 8 << 20, 0.1
"""How far a handoff may be from the driver: allocators round, and other threads live."""


@dataclass(frozen=True)
class Handoff:
    """One call of a handoff. ``said``: its bytes by resource; ``seen``: those the driver got back, or gave.

    ``copied`` are the bytes of it that were not only dropped. A sync, which moves nothing, says nothing.
    """

    phase: str
    leaves: bool
    seconds: float
    said: Mapping[str, int]
    seen: int
    copied: int

    @property
    def moved(self) -> int:
        return sum(self.said.values())

    @property
    def wrong(self) -> bool:
        """Whether it frees less than it says, or takes more: leaving may free what others have left behind, too."""
        excess = self.moved - self.seen if self.leaves else self.seen - self.moved
        return bool(self.said) and excess > max(SLACK, SHARE * self.moved)


class Meter:
    """Notes every handoff of the components that it is given to."""

    def __init__(self, device: str, drops: Sequence[str] = ("kv",)) -> None:
        self._device, self._drops = device, drops
        self.handoffs: list[Handoff] = []

    def moving(self, phase: str, moves: Mapping[str, str], act: Callable[[], dict[str, int]]) -> dict[str, int]:
        """A handoff that changes places and reports bytes."""
        leaves = "device" not in moves.values()
        said, seconds, taken = self._around(act)
        copied = sum(count for name, count in said.items() if name not in self._drops)
        self.handoffs.append(Handoff(phase, leaves, seconds, said, -taken if leaves else taken, copied))
        return said

    def copying(self, phase: str, size: int, act: Callable[[], None]) -> None:
        """A handoff that copies so many bytes into what is there already."""
        _, seconds, taken = self._around(act)
        self.handoffs.append(Handoff(phase, False, seconds, {}, taken, size))

    def _around(self, act: Callable[[], Any]) -> tuple[Any, float, int]:
        settle(self._device)
        before, begin = used(self._device), time.perf_counter()
        found = act()
        settle(self._device)
        seconds = time.perf_counter() - begin
        return found, seconds, used(self._device) - before


def used(device: str) -> int:
    """Bytes in use on the device, as its driver says; on a CPU, as the system says of this process."""
    import torch

    from stepgraph.components.torch.park import anonymous_bytes

    if device == "cpu":
        return anonymous_bytes()
    free, total = torch.cuda.mem_get_info()
    return total - free


def settle(device: str) -> None:
    """Wait for what the device was told to do."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


def bare_copy(device: str) -> tuple[float, float]:
    """Bytes a second from the device to pinned memory, and back: the best of five, after one."""
    import torch

    size = GIB // 4 if device == "cpu" else GIB
    there = torch.zeros(size, dtype=torch.uint8, device=device)
    pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=device != "cpu")

    def rate(to: Any, source: Any) -> float:
        times = []
        for _ in range(6):
            begin = time.perf_counter()
            to.copy_(source, non_blocking=True)
            settle(device)
            times.append(time.perf_counter() - begin)
        return size / min(times[1:])

    return rate(pinned, there), rate(there, pinned)


def weights_in(layers: int, hidden: int) -> int:
    """Roughly: attention has 4 squares a layer, and what follows it 8."""
    return 12 * hidden * hidden * layers


def fitting(free: int, host: int) -> tuple[int, int] | None:
    """The largest of our models that trains in that much memory."""
    for size in SIZES:
        weights = weights_in(*size)
        if weights * DEVICE_BYTES + WORK <= free and weights * HOST_BYTES <= host:
            return size
    return None


def host_memory() -> int:
    """What the system could give; nothing where it does not say."""
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0)


def model_of(layers: int, hidden: int, dtype: str, threads: int) -> dict[str, Any]:
    """A model section: random weights, and a tokenizer that needs no file."""
    heads = max(hidden // 64, 1)
    config = {
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": hidden * 8 // 3 // 64 * 64,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
    return {"name": "handoff", "config": config, "tokenizer": "digits", "dtype": dtype, "threads": threads}


def parts_of(shared: Any, kv_tokens: int, meter: Meter) -> dict[str, Any]:
    """The components of a run, whose handoffs are metered."""
    from stepgraph.components.torch import TorchEngine, TorchTrainer
    from stepgraph.data import Data, Rewards

    class Engine(TorchEngine):
        def offload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
            return meter.moving(ctx.phase, moves, lambda: super(Engine, self).offload(ctx, moves))

        def reload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
            return meter.moving(ctx.phase, moves, lambda: super(Engine, self).reload(ctx, moves))

        def sync(self, ctx: Any, weights: Mapping[str, Any]) -> None:
            size = sum(tensor.nbytes for tensor in self._names.values())
            meter.copying(ctx.phase, size, lambda: super(Engine, self).sync(ctx, weights))

    class Trainer(TorchTrainer):
        def offload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
            return meter.moving(ctx.phase, moves, lambda: super(Trainer, self).offload(ctx, moves))

        def reload(self, ctx: Any, moves: Mapping[str, str]) -> dict[str, int]:
            return meter.moving(ctx.phase, moves, lambda: super(Trainer, self).reload(ctx, moves))

    return {
        "trainer": Trainer(shared, lr=1e-6, places={"policy": "host"}),
        "engine": Engine(shared, group=4, kv_tokens=kv_tokens, places={"engine": "host", "kv": "none"}),
        "rewards": Rewards(shared),
        "data": Data(shared, **shared.data),
    }


def table(handoffs: Sequence[Handoff], bare: tuple[float, float]) -> Iterator[str]:
    """One line a handoff: medians, without the first time where there are more, as that takes memory for the first."""
    yield f"{'handoff':16}{'times':>6}{'first s':>9}" + "".join(f"{word:>8}" for word in HEADS)
    for phase in dict.fromkeys(one.phase for one in handoffs):
        mine = [one for one in handoffs if one.phase == phase]
        seconds, last = statistics.median(one.seconds for one in mine[1:] or mine), mine[-1]
        rate, limit = last.copied / seconds, bare[0] if phase.startswith("offload") else bare[1]
        numbers = f"{last.moved / GIB:8.3f}{last.seen / GIB:8.3f}{last.copied / GIB:8.3f}"
        share = f"{rate / GIB:8.2f}{rate / limit:8.0%}" if last.copied else f"{'-':>8}{'-':>8}"
        yield f"{phase:16}{len(mine):6}{mine[0].seconds:9.3f}{seconds:8.3f}{numbers}{share}"


def saved(plan: Any, handoffs: Sequence[Handoff]) -> str:
    """What the last step leaves out, by what it took in the steps before."""
    took = {one.phase: [other for other in handoffs if other.phase == one.phase] for one in handoffs}
    gone = [one.name for one in plan.step(plan.steps - 1).pruned if one.name in took]
    seconds = sum(statistics.median(one.seconds for one in took[name]) for name in gone)
    size = sum(took[name][-1].copied for name in gone)
    return f"the last step leaves out {', '.join(gone)}: {seconds:.3f} s, {size / GIB:.3f} GiB not copied"


def trained(words: argparse.Namespace, size: tuple[int, int], folder: Path) -> tuple[Any, Meter, Any]:
    """Run it. Returns the plan, what was metered, and the run's result."""
    import stepgraph
    from stepgraph.runtime.contract import Shared

    plan = stepgraph.compile(stepgraph.load("grpo", [*GRAPH, f"run.steps={words.steps}"]))
    threads = 1 if words.device == "cpu" else os.cpu_count() or 1
    shared = Shared(model_of(*size, words.dtype, threads), DATA, 0, folder, words.device)
    meter = Meter(words.device)
    result = stepgraph.run(plan, parts_of(shared, words.kv_tokens, meter), run_dir=folder)
    return plan, meter, result


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description="what handoffs cost on a GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--hidden", type=int, help="the model's width, a multiple of 64")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--kv-tokens", type=int, default=4096)
    parser.add_argument("--dtype", default="", help="bfloat16; on a CPU float32")
    words = parser.parse_args(given)
    words.dtype = words.dtype or ("float32" if words.device == "cpu" else "bfloat16")
    return words


def chosen(words: argparse.Namespace) -> tuple[int, int] | str:
    """Layers and width; or why there can be no run."""
    try:
        import torch
    except ImportError:
        return "no torch here: pip install 'stepgraph[torch]'"
    if words.device == "cuda" and not torch.cuda.is_available():
        return "no CUDA device here, so nothing to measure; --device cpu --hidden 256 tries the script out"
    found: tuple[int, int] | None = ON_CPU
    if words.device == "cuda":
        found = fitting(torch.cuda.mem_get_info()[0], host_memory())
    if found is None and not (words.layers and words.hidden):
        return "not enough free memory for any of our models: give a smaller one with --layers and --hidden"
    layers, hidden = found or (0, 0)
    return words.layers or layers, words.hidden or hidden


def main(given: Sequence[str]) -> int:
    """Measure, print, and judge."""
    words = arguments(given)
    size = chosen(words)
    if isinstance(size, str):
        print(size)
        return 0
    bare = bare_copy(words.device)
    with tempfile.TemporaryDirectory() as folder:
        plan, meter, result = trained(words, size, Path(folder) / "run")
    if result.status != "completed":
        return 1
    print(f"\n{size[0]} layers of {size[1]} in {words.dtype}: about {weights_in(*size) / 1e6:,.0f} million weights")
    print(f"a bare copy: {bare[0] / GIB:.2f} GiB/s to the host, {bare[1] / GIB:.2f} GiB/s to the device")
    print("\n".join([*table(meter.handoffs, bare), saved(plan, meter.handoffs)]))
    wrong = [one for one in meter.handoffs if one.wrong]
    for one in wrong:
        print(f"WRONG: {one.phase} reports {one.moved / GIB:.3f} GiB, the driver saw {one.seen / GIB:.3f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
