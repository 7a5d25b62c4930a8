"""ZeRO on two ranks: the update of one, wherever the policy is, and a checkpoint that both go on from."""

import json
import multiprocessing
import socket
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from small import scored, tiny

pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install 'stepgraph[deepspeed]'")
torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM  # noqa: E402 (after the skip)

from stepgraph.cli import main  # noqa: E402
from stepgraph.components.deepspeed import DeepSpeedTrainer  # noqa: E402
from stepgraph.components.deepspeed.start import met  # noqa: E402
from stepgraph.components.torch import TorchTrainer  # noqa: E402
from stepgraph.errors import ConfigError  # noqa: E402
from stepgraph.runtime.contract import Shared  # noqa: E402

RANKS = 2
CASES = [
    (0, 256, "float32"),
    (1, 256, "float32"),
    (1, 2, "float32"),
    (2, 2, "float32"),
    (3, 2, "float32"),
    (3, 256, "bfloat16"),
]


def context(folder, rank=0):
    metrics = {}

    @contextmanager
    def checkpoint():
        if rank == 0:
            folder.mkdir(parents=True)
        yield folder

    return SimpleNamespace(log=metrics.update, metrics=metrics, checkpoint=checkpoint)


def updated(trainer, seeds, folder, rank=0):
    """What is logged of an update with each seed."""
    told = []
    for seed in seeds:
        ctx = context(folder, rank)
        trainer.train(ctx, **scored(seed, 15, 3))
        told.append({name: ctx.metrics[name] for name in sorted(ctx.metrics) if name.startswith("policy/")})
    return told


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.weights("policy").tensors()}


def work(rank, meeting, folder, model, out):
    """One rank's part of all cases; says what it saw."""
    try:
        shared = Shared(model, {}, 0, folder / f"run{rank}", "cpu", rank, RANKS, meeting)
        out.put((rank, [case(shared, folder / str(number), *one) for number, one in enumerate(CASES)]))
    except BaseException:
        out.put((rank, traceback.format_exc()))


def case(shared, folder, stage, micro_batch, dtype):
    options = {"stage": stage, "micro_batch": micro_batch, "dtype": dtype}
    made, other = (DeepSpeedTrainer(shared, **options) for _ in range(2))
    told = updated(made, range(3), folder, shared.rank)
    there = weights(made)
    made.offload(None, {"policy": "host"})
    parked = weights(made)
    made.reload(None, {"policy": "device"})
    other.load(made.save(context(folder, shared.rank))["ckpt"])
    return {
        "told": told,
        "weights": {name: tensor.float().numpy() for name, tensor in there.items()},
        "parked": there.keys() == parked.keys() and all(torch.equal(there[name], parked[name]) for name in there),
        "after": [updated(one, [7], folder, shared.rank) for one in (made, other)],
        "versions": (made.version("policy"), other.version("policy")),
    }


@pytest.fixture(scope="module")
def model():
    return tiny(max_position_embeddings=160, initializer_range=0.2)


@pytest.fixture(scope="module")
def ranks(model, tmp_path_factory):
    """What each of two ranks saw in each case."""
    folder, spawn = tmp_path_factory.mktemp("ranks"), multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    out = spawn.Queue()
    started = [spawn.Process(target=work, args=(rank, meeting, folder, model, out)) for rank in range(RANKS)]
    for one in started:
        one.start()
    found = dict(out.get(timeout=200) for _ in started)
    for one in started:
        one.join(20)
        one.kill()
    assert not [told for told in found.values() if isinstance(told, str)], found
    return found, folder


@pytest.mark.parametrize(("number", "of"), list(enumerate(CASES)), ids=map(str, CASES))
def test_two_ranks_make_the_update_of_one(ranks, model, tmp_path, number, of):
    (stage, _, dtype), (first, second) = of, (ranks[0][rank][number] for rank in (0, 1))
    assert first["told"] == second["told"]
    assert first["versions"] == second["versions"] == (4, 4)
    assert all((first["weights"][name] == second["weights"][name]).all() for name in first["weights"])
    one = Shared(model, {}, 0, tmp_path, "cpu")
    plain = TorchTrainer(one) if dtype == "float32" else DeepSpeedTrainer(one, stage=stage, dtype=dtype)
    close = {"float32": 1e-5, "bfloat16": 3e-2}[dtype]
    for told, should in zip(first["told"], updated(plain, range(3), tmp_path), strict=True):
        assert told == pytest.approx(should, abs=close, rel=close)
    for name, tensor in weights(plain).items():
        assert torch.allclose(torch.tensor(first["weights"][name]), tensor.float(), atol=10 * close), name


@pytest.mark.parametrize("number", range(len(CASES)), ids=map(str, CASES))
def test_ranks_are_read_while_away_and_loaded_without_the_loss_of_a_bit(ranks, number):
    for told in (seen[number] for seen in ranks[0].values()):
        assert told["parked"]
        assert told["after"][0] == told["after"][1]


def test_the_first_rank_saves_a_model_that_transformers_loads(ranks):
    found, folder = ranks
    for number, (_, _, dtype) in enumerate(CASES):
        loaded = AutoModelForCausalLM.from_pretrained(folder / str(number)).state_dict()
        mine = found[0][number]["weights"]
        assert loaded.keys() == mine.keys()
        assert dtype == "bfloat16" or all(torch.equal(loaded[name], torch.tensor(mine[name])) for name in mine)


def test_a_rank_that_knows_no_place_to_meet_is_refused(model, tmp_path):
    shared = Shared(model, {}, 0, tmp_path, "cpu", rank=1, ranks=2)
    with pytest.raises(ConfigError, match=r"trainer is rank 1 of 2, but where they meet is ''; executor=ray with"):
        met(shared)
    updated(DeepSpeedTrainer(replace(shared, ranks=1, rank=0)), [0], tmp_path)  # in a group of one
    with pytest.raises(ConfigError, match=r"built for 2 rank\(s\), and this process is one of 1"):
        updated(DeepSpeedTrainer(shared), [0], tmp_path)


# ---- on Ray --------------------------------------------------------------------------------------------------------


WORDS = ["run", "experiment=demo", "data.batch=4", "trainer=deepspeed", "trainer.stage=3"]


def test_a_run_with_two_ranks_is_that_of_one_and_goes_on_from_what_both_saved(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "run.steps=3", "run.dir=one"]) == 0
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        two = [*WORDS, "run.dir=two", "executor=ray", "executor.actors.trainer.count=2"]
        assert main([*two, "run.steps=2"]) == 0
        assert main([*two, "run.steps=3", "resume=auto"]) == 0
    finally:
        ray.shutdown()
    saved = Path("checkpoints", "step_000002")
    state = json.loads((tmp_path / "two" / saved / "state.json").read_text())
    assert (state["versions"]["policy"], state["cursors"], state["completed"]) == (3, {"prompts": 3}, 3)
    files = [file.name for file in (tmp_path / "two" / saved / "deepspeed" / "state").iterdir()]
    assert sum(name.endswith("optim_states.pt") for name in files) == 2
    one, other = (AutoModelForCausalLM.from_pretrained(tmp_path / name / saved).state_dict() for name in ("one", "two"))
    assert all(torch.allclose(one[name], other[name], atol=1e-3) for name in one)
