"""What it takes to bring 100 million weights from one process to another, as ratios against one bare copy of them.

``python benchmarks/transport.py`` prints a table of process times (medians; the channels take turns, so that a busy
machine slows them alike) and exits with 1 where a bound is missed. A receiver that keeps its own weights needs one copy
in the same process, and two across processes. Ray's own ``put`` of the same bytes as one array is what any way through
its object store costs the sender.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
import torch

from stepgraph.runtime.contract import Weights
from stepgraph.runtime.ray_parcel import Packer
from stepgraph.runtime.ray_shm import Buffers

ROUNDS = 9
SHAPES = ((2048, 2048),) * 24 + ((2048,),) * 48
DTYPES = ("float32", "bfloat16")
COPIES = 3.0
"""At most so many bare copies for all of the way through shared memory, which takes two."""


class Receiver:
    """Has weights of its own, and copies into them what arrives."""

    def __init__(self, dtype: str) -> None:
        torch.set_num_threads(1)
        self._mine = tensors(dtype)

    def take(self, parcel: Any) -> float:
        """Process time until all is copied."""
        return spent(lambda: copied(self._mine, dict(parcel.weights().tensors())))

    def total(self) -> float:
        """All weights in one number, to see that they came."""
        return total(self._mine)


def tensors(dtype: str) -> dict[str, Any]:
    """100 million weights, in pieces of the sizes that a model has."""
    return {str(number): torch.rand(shape).to(getattr(torch, dtype)) for number, shape in enumerate(SHAPES)}


def total(weights: Mapping[str, Any]) -> float:
    """The sum of all."""
    return float(sum(one.double().sum() for one in weights.values()))


def copied(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """The bare copy."""
    for name, one in mine.items():
        one.copy_(theirs[name])


def spent(act: Callable[[], Any]) -> float:
    """The process time of one call, in seconds."""
    begin = time.process_time()
    act()
    return time.process_time() - begin


def way(source: Mapping[str, Any], receiver: Any, pack: Callable[[Weights], Any]) -> tuple[float, float]:
    """Send once: the sender's time, and the receiver's."""
    begin = time.process_time()
    parcel = pack(Weights(0, lambda: iter(source.items())))
    return time.process_time() - begin, ray.get(receiver.take.remote(parcel))


def measured(dtype: str) -> bool:
    """One part of the table; whether its bounds held."""
    source, mine = tensors(dtype), tensors(dtype)
    flat = torch.cat([one.flatten() for one in source.values()]).view(torch.uint8).numpy()
    receiver, buffers, packer = ray.remote(Receiver).remote(dtype), Buffers(), Packer()
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "copy, in one process": lambda: (0.0, spent(lambda: copied(mine, source))),
        "shm": lambda: way(source, receiver, buffers.send),
        "object_store": lambda: way(source, receiver, lambda weights: ray.put(packer.send(weights))),
        "put of one array": lambda: (spent(lambda: ray.put(flat)), 0.0),
    }
    rounds = [{name: act() for name, act in ways.items()} for _ in range(ROUNDS + 1)][1:]  # the first takes memory
    if total(source) != ray.get(receiver.total.remote()):
        raise SystemExit("what arrived is not what was sent")
    buffers.close()
    ray.kill(receiver)
    return printed(f"{dtype}, {flat.nbytes / 1e6:,.0f} MB", ways, rounds)


def printed(title: str, ways: Mapping[str, Any], rounds: list[dict[str, tuple[float, float]]]) -> bool:
    """Print a line a way; whether its bounds held."""
    found = {name: [statistics.median(one[name][i] for one in rounds) for i in (0, 1)] for name in ways}
    copy, (sent, _) = sum(found["copy, in one process"]), found["put of one array"]
    good = sum(found["shm"]) <= COPIES * copy and found["shm"][0] <= max(sent, COPIES / 2 * copy)
    print(f"{title:24}{'send':>10}{'receive':>10}{'copies':>10}")
    for name, (send, receive) in found.items():
        mark = ("   ok" if good else "   MISSED") if name == "shm" else ""
        print(f"  {name:22}{send * 1e3:7.1f} ms{receive * 1e3:7.1f} ms{(send + receive) / copy:10.2f}{mark}")
    return good


def main() -> int:
    """Measure, print, and judge."""
    torch.set_num_threads(1)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=2_000_000_000,
    )
    try:
        good = [measured(dtype) for dtype in DTYPES]
    finally:
        ray.shutdown()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
