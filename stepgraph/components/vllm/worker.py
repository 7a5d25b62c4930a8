"""What runs inside vLLM's worker: taking new weights, and, on a CPU, sleep that frees something.

vLLM cannot sleep on a CPU: its worker says so in the log and carries on. This one really lets its memory go. vLLM packs
each linear layer's weights into a closure of oneDNN and keeps nothing to unpack, so weights are let go by dropping the
closures, and come back by being loaded again; who wants them back keeps a copy. A closure that was dropped is replaced
by one that raises, and a weight by an empty tensor, because reading storage that was shrunk ends the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import WeightTransferConfig, set_current_vllm_config
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.v1.worker.cpu_worker import CPUWorker

WEIGHTS, KV = "weights", "kv_cache"
"""vLLM's own tags of what sleeps and wakes."""


class TakesWeights:
    """Loads weights in the names of a transformers checkpoint into a running model."""

    vllm_config: Any
    model_runner: Any
    device: Any
    weight_transfer_engine: Any
    finish_weight_update: Any

    def take_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Replace all the weights. They are cast to the model's type and put where vLLM wants them."""
        with torch.device(self.model_runner.device), set_current_vllm_config(self.vllm_config):
            self.model_runner.reload_weights(weights_iterator=tensors, is_checkpoint_format=True)
            for head in self._heads():
                head.quant_method.process_weights_after_loading(head)

    def open_transfer(self, backend: str) -> None:
        """Make the receiving end of vLLM's weight transfer, which vLLM makes at its start or not at all."""
        if self.weight_transfer_engine is None:
            config, model = WeightTransferConfig(backend=backend), self.model_runner.get_model()
            self.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
                config, self.vllm_config, self.device, model
            )

    def finish_transfer(self) -> None:
        """Put what was transferred where vLLM wants it."""
        self.finish_weight_update()
        with torch.device(self.model_runner.device), set_current_vllm_config(self.vllm_config):
            for head in self._heads():
                head.quant_method.process_weights_after_loading(head)

    def _heads(self) -> Iterator[Any]:
        """Output layers. One that is tied to the embeddings has packed a copy, which loading does not renew."""
        modules: Iterable[nn.Module] = self.model_runner.get_model().modules()
        return (module for module in modules if isinstance(module, ParallelLMHead))


class CpuWorker(TakesWeights, CPUWorker):
    """vLLM's CPU worker, with sleep. Both levels drop the weights: the engine keeps the copy that level 1 promises."""

    def sleep(self, level: int = 1) -> None:
        self.discard((WEIGHTS, KV))

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Get the memory back. Weights are arbitrary until ``take_weights``, and the cache is empty."""
        if tags is None or WEIGHTS in tags:
            self._reserve_weights()
        if tags is None or KV in tags:
            for storage, size in self._asleep.pop(KV, {}).items():
                storage.resize_(size)
                torch.tensor([], dtype=torch.uint8).set_(storage).zero_()

    def discard(self, tags: tuple[str, ...]) -> None:
        if WEIGHTS in tags and WEIGHTS not in self._asleep:
            self._asleep[WEIGHTS] = self._dropped_weights()
        if KV in tags and KV not in self._asleep:
            self._asleep[KV] = self._dropped_cache()

    @property
    def _asleep(self) -> dict[str, dict[Any, Any]]:
        """What sleeps, by tag: storages and their sizes, parameters and their shapes."""
        return self.__dict__.setdefault("_stepgraph_asleep", {})

    def _dropped_cache(self) -> dict[Any, Any]:
        storages = {one.data_ptr(): one for one in (t.untyped_storage() for t in self.model_runner.kv_caches)}
        sizes = {storage: storage.nbytes() for storage in storages.values()}
        for storage in sizes:
            storage.resize_(0)
        return sizes

    def _dropped_weights(self) -> dict[Any, Any]:
        model: nn.Module = self.model_runner.get_model()
        for module in model.modules():
            if hasattr(module, "cpu_linear"):
                setattr(module, "cpu_linear", _asleep)  # noqa: B010 (a module takes none but tensors and modules by type)
        shapes = {parameter: parameter.shape for parameter in model.parameters()}
        for parameter in shapes:
            parameter.data = torch.empty(0, dtype=parameter.dtype)
        return shapes

    def _reserve_weights(self) -> None:
        for parameter, shape in self._asleep.pop(WEIGHTS, {}).items():
            parameter.data = torch.empty(shape, dtype=parameter.dtype)


def _asleep(*arguments: Any) -> Tensor:
    raise RuntimeError("the engine's weights are asleep; wake them and load them first")
