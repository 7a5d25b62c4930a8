"""Weights from a trainer's GPU to vLLM by vLLM's own weight transfer: NCCL between GPUs, CUDA IPC on one.

The sender drives it and asks the engine for its part, so the weights have come when the phase that syncs begins, and
that one only seals them. From its first question on, the engine holds no version, so one that is left half-way refuses
to generate.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from stepgraph.components.torch.match import refuse_other_model
from stepgraph.components.torch.residency import Residency
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.transport import CURE, Channel, Link


@dataclass(frozen=True, slots=True)
class Arrived(Weights):
    """Weights that the receiver has already."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Says which weights have come."""

    version: int

    def weights(self) -> Weights:
        return Arrived(self.version, lambda: iter(()))


@dataclass(frozen=True, slots=True)
class Push:
    """A channel to one receiver, by a backend of vLLM's."""

    name: str
    receiver: str

    def sender(self, others: Mapping[str, Any]) -> Pusher:
        return Pusher(self.name, self.receiver, others[self.receiver])


@dataclass(frozen=True, slots=True)
class Nccl:
    """Between the GPUs of two actors, on any machines."""

    def between(self, link: Link) -> Channel | None:
        _refuse("nccl", link)
        if link.shared_gpu:
            raise ConfigError(f"transport=nccl is between GPUs, but {link} share one: transport=ipc, or {CURE}")
        return _pushed("nccl", link)


@dataclass(frozen=True, slots=True)
class Ipc:
    """On one GPU that two actors share."""

    def between(self, link: Link) -> Channel | None:
        _refuse("ipc", link)
        if link.shared_gpu is False:
            raise ConfigError(f"transport=ipc is on one GPU, but {link} have each their own: transport=nccl, or {CURE}")
        return _pushed("ipc", link)


class Pusher:
    """Sends weights with vLLM's sending end, which is opened at the first sync and lasts as long as the run."""

    def __init__(self, backend: str, name: str, receiver: Any) -> None:
        if not hasattr(receiver, "open_transfer"):
            raise RunError(f"transport={backend} needs vLLM, but {name} takes no weights from it: {CURE}")
        self._backend, self._receiver = backend, receiver
        self._engine: Any = None
        self._source: Any = None

    def send(self, weights: Weights) -> Sealed:
        source = self._source_of(weights)
        meta = source.metadata()
        self._receiver.open_transfer(self._backend, {one.name: one.shape for one in meta})
        self._opened().send_weights()
        source.weights = None
        return Sealed(weights.version)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()

    def _source_of(self, weights: Weights) -> Any:
        """What vLLM takes weights from: one for all syncs, each of which has weights of its own."""
        if self._source is None:
            self._source = _source_class()()
        self._source.weights = weights
        return self._source

    def _opened(self) -> Any:
        if self._engine is None:
            from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

            info = INFOS[self._backend](self._receiver.transfer_ranks())
            self._engine = WeightTransferTrainerFactory.trainer_init(info, client=self._receiver, source=self._source)
        return self._engine


class TakesTransfers:
    """The engine's side, in the words in which vLLM's sending end asks its clients."""

    _llm: Any
    _places: Residency
    _weights: str
    _shapes: dict[str, tuple[int, ...]]
    _version: int
    _arrived = False

    def transfer_ranks(self) -> int:
        """How many workers take the weights."""
        return int(self._llm.llm_engine.vllm_config.parallel_config.world_size)

    def open_transfer(self, backend: str, offered: Mapping[str, tuple[int, ...]]) -> None:
        """Get ready to take weights of these names and shapes."""
        self._places.must_be_on_device(self._weights, "sync")
        refuse_other_model(offered, self._shapes)
        self._ask("open_transfer", backend)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Meet the sending end."""
        self._ask("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        """From here on, the engine's weights are of no version."""
        self._version, self._arrived = -1, False
        self._ask("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """Take some or all of the weights."""
        self._ask("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """All has come."""
        self._ask("finish_transfer")
        self._arrived = True

    def _must_have_arrived(self) -> None:
        if not self._arrived:
            raise RunError(
                "engine.sync: the weights that should have been transferred before have not come; sync again"
            )
        self._arrived = False

    def _ask(self, method: str, *arguments: Any) -> None:
        self._llm.collective_rpc(method, args=arguments)


def _source_class() -> type[Any]:
    """A class of vLLM's, made where vLLM is needed at last."""
    import torch
    from vllm.distributed.weight_transfer import ParamMeta, WeightSource

    class Source(WeightSource):
        """The weights of one sync, brought to the device one by one where they are not."""

        weights: Weights | None = None

        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._tensors()]

        def __iter__(self) -> Iterator[tuple[str, Any]]:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            return ((name, tensor.detach().to(device)) for name, tensor in self._tensors())

        def _tensors(self) -> Iterator[tuple[str, Any]]:
            return iter(()) if self.weights is None else self.weights.tensors()

    return Source


def _nccl(ranks: int) -> Any:
    """The sender is rank 0, and the workers come after it. They meet at a free port of this machine."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    address, port = _meeting_point()
    return NCCLTrainerInitInfo(master_address=address, master_port=port, world_size=1 + ranks, rank=0)


def _ipc(ranks: int) -> Any:
    """``packed``: through one buffer of bounded size, and not through as much memory as all weights take."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    return IPCTrainerInitInfo(rank=0, packed=True)


INFOS: dict[str, Callable[[int], Any]] = {"nccl": _nccl, "ipc": _ipc}
"""What vLLM's sending end of a backend wants to know, by the number of workers that take the weights."""


def _meeting_point() -> tuple[str, int]:
    import ray

    with socket.socket() as taken:
        taken.bind(("", 0))
        return str(ray.util.get_node_ip_address()), int(taken.getsockname()[1])


def _refuse(name: str, link: Link) -> None:
    if link.one_process:
        raise ConfigError(f"transport={name} is between processes, but {link} share one: {CURE}")
    if len(link.at) > 1 or len(link.to) > 1:
        raise ConfigError(f"transport={name} is between one process and one, but {link} are more: {CURE}")
    bare = [who for who, (spot, *_) in ((link.sender, link.at), (link.receiver, link.to)) if spot.gpus == ()]
    if bare:
        cure = ", ".join(f"executor.actors.{who}.num_gpus=1" for who in bare)
        none = f"there is no GPU for {' and '.join(bare)}"
        raise ConfigError(f"transport={name} needs CUDA, but {none}: {cure}, or {CURE}")


def _pushed(name: str, link: Link) -> Push:
    if find_spec("vllm") is None:
        cure = "pip install 'stepgraph[vllm]'"
        raise ConfigError(f"transport={name} needs vllm, beside the trainer too: {cure}, or {CURE}")
    return Push(name, link.receiver)
