"""A backend of vLLM's weight transfer that needs no GPU: the weights travel in the questions themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    WeightTransferEngine,
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from stepgraph.components.torch import TorchTrainer
from stepgraph.components.vllm import VllmEngine, transfer
from stepgraph.runtime.transport import Channel, Link

NAME = "stand_in"


@dataclass
class Info(TrainerInitInfo):
    backend: ClassVar[str] = NAME
    ranks: int = 0


@dataclass
class Hello(WeightTransferInitInfo):
    ranks: int


@dataclass
class Update(WeightTransferUpdateInfo):
    named: list[Any]


class Receiving(WeightTransferEngine):
    """In vLLM's worker; it does with the weights what those of NCCL and IPC do."""

    init_info_cls, update_info_cls = Hello, Update

    def init_transfer_engine(self, init_info: Hello) -> None:
        assert init_info.ranks == 1

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Update) -> None:
        self.model.load_weights(update_info.named)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held."""


class Sending(TrainerWeightTransferEngine):
    """Beside the trainer."""

    init_info_cls = Info

    @classmethod
    def trainer_init(cls, init_info: Info, *, client: Any, source: Any = None) -> Sending:
        client.init_weight_transfer_engine(asdict(Hello(init_info.ranks)))
        return cls(client=client, source=source)

    def send_weights(self) -> None:
        self.client.start_weight_update()
        told = [(one.name, one.dtype, one.shape) for one in self.source.metadata()]
        named = list(self.source)
        assert told == [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in named]
        for some in (named[:3], named[3:]):
            self.client.update_weights({"named": some})
        self.client.finish_weight_update()


class StandIn:
    """A transport that takes this way wherever the two are."""

    def between(self, link: Link) -> Channel:
        return transfer.Push(NAME, link.receiver)


class Engine(VllmEngine):
    """Where it is made, vLLM knows this backend."""


class Trainer(TorchTrainer):
    """The same, where the weights come from."""


def register() -> str:
    """Make both ends known to vLLM, and to us."""
    transfer.INFOS[NAME] = lambda ranks: Info(rank=0, ranks=ranks)
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, Receiving)
        WeightTransferTrainerFactory.register_engine(NAME, Sending)
    return NAME


register()
