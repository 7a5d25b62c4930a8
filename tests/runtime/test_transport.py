"""How weights travel: what is picked where, what is refused, and that nobody overwrites what another still reads."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stepgraph
from stepgraph.cli import main
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.build import build_components
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.ray_parcel import Packer
from stepgraph.runtime.ray_shm import MOST, Buffers
from stepgraph.runtime.transport import Auto, Channels, Copy, Link, ObjectStore, Shm, Spot, transport_of

from . import parts
from .plans import loop_plan

ONE, OTHER, FAR = Spot("a", 1, "node a"), Spot("a", 2, "node a"), Spot("b", 1, "node b")
GRAPHS = ["grpo", "miles_sync", "miles_async", "slime_sync", "slime_async"]


def link(at: Spot, *to: Spot) -> Link:
    return Link("trainer", "engine", (at,), to)


# ---- what is picked, and what is refused ---------------------------------------------------------------------------


def test_auto_picks_the_cheapest_that_reaches_every_receiver() -> None:
    assert Auto().between(link(ONE, ONE)) is None
    assert Auto().between(link(ONE, OTHER)) == Shm()
    assert Auto().between(link(ONE, FAR)) == ObjectStore()
    assert Auto().between(link(ONE, OTHER, FAR)) == ObjectStore()


def test_without_shared_memory_auto_takes_the_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert Auto().between(link(ONE, OTHER)) == ObjectStore()
    with pytest.raises(ConfigError, match="transport=shm needs Linux, with /proc in sight: transport=auto"):
        Shm().between(link(ONE, OTHER))


@pytest.mark.parametrize(
    ("transport", "where", "message"),
    [
        (Copy(), (ONE, OTHER), r"copy is within one process, but trainer \(node a\) and engine \(node a\) have each"),
        (Shm(), (ONE, FAR), r"shm is within one machine, but trainer \(node a\) and engine \(node b\) are on several"),
        (Shm(), (ONE, ONE), "shm is between processes, but trainer and engine share one"),
        (ObjectStore(), (ONE, ONE), "object_store is between processes, but trainer and engine share one"),
    ],
)
def test_what_cannot_work_is_refused_with_a_cure(transport: Any, where: tuple[Spot, Spot], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^transport={message}.*: transport=auto picks what fits$"):
        transport.between(link(*where))


def with_gpus(at: tuple[str, ...] | None, to: tuple[str, ...] | None) -> Link:
    return link(Spot("a", 1, "node a", at), Spot("a", 2, "node a", to))


@pytest.mark.parametrize(
    ("name", "where", "message"),
    [
        (
            "Nccl",
            with_gpus(("0",), ()),
            "nccl needs CUDA, but there is no GPU for engine: executor.actors.engine.num",
        ),
        (
            "Ipc",
            with_gpus((), ()),
            "ipc needs CUDA, but there is no GPU for trainer and engine: executor",
        ),
        ("Nccl", with_gpus(("0",), ("0",)), r"nccl is between GPUs, but trainer .* share one: transport=ipc, or"),
        (
            "Ipc",
            with_gpus(("0",), ("1",)),
            r"ipc is on one GPU, but trainer .* have each their own: transport=nccl",
        ),
        ("Nccl", link(ONE, ONE), "nccl is between processes, but trainer"),
        ("Ipc", link(ONE, OTHER, FAR), r"ipc is between one process and one, but .* are more"),
    ],
)
def test_what_needs_gpus_is_refused_where_they_are_not(name: str, where: Link, message: str) -> None:
    transfer = pytest.importorskip("stepgraph.components.vllm.transfer", reason="needs torch")
    with pytest.raises(ConfigError, match=f"^transport={message}"):
        getattr(transfer, name)().between(where)


def test_a_gpu_that_is_not_known_yet_is_not_refused_but_a_missing_vllm_is(monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = pytest.importorskip("stepgraph.components.vllm.transfer", reason="needs torch")
    monkeypatch.setattr(transfer, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"nccl needs vllm, beside the trainer too: pip install 'stepgraph\[vllm\]'"):
        transfer.Nccl().between(with_gpus(None, None))
    monkeypatch.setattr(transfer, "find_spec", lambda name: name)
    for name, where in (("nccl", with_gpus(("0",), ("1",))), ("ipc", with_gpus(("0",), ("0",)))):
        transport = getattr(transfer, name.title())()
        assert transport.between(with_gpus(None, None)) == transport.between(where)
        assert transport.between(where) == transfer.Push(name, "engine")


def test_a_function_that_copies_is_where_functions_run() -> None:
    channels = Channels.apart(Auto(), ["trainer", "functions"], "functions")
    assert channels.of("trainer", "mine") == Shm()
    assert channels.names == ["shm"]


def test_one_process_refuses_a_channel_before_anything_is_built(tmp_path: Path) -> None:
    names = ("engine", "trainer", "data")
    config = {name: {"_target_": f"{parts.__name__}.{name.title()}"} for name in names}
    target = "stepgraph.runtime.transport"
    with pytest.raises(ConfigError, match="transport=object_store is between processes"):
        build_components({**config, "transport": {"_target_": f"{target}.ObjectStore"}}, loop_plan(1), tmp_path)
    for name in ("Auto", "Copy"):
        assert build_components({**config, "transport": {"_target_": f"{target}.{name}"}}, loop_plan(1), tmp_path)


def test_the_command_line_picks_a_transport_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "experiment=demo", "transport=shm", f"run.dir={tmp_path / 'out'}"]) == 2
    assert "transport=shm is between processes, but trainer and engine share one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_transport_named_is_auto_and_a_wrong_option_is_refused() -> None:
    assert transport_of({}) == transport_of({"transport": {}}) == Auto()
    with pytest.raises(ConfigError, match=r"Shm has no option 'size'; there are none"):
        transport_of({"transport": {"_target_": "stepgraph.runtime.transport.Shm", "size": 1}})


# ---- the plan's order ----------------------------------------------------------------------------------------------


def runs(plan: Any) -> Iterator[tuple[Any, set[int], int]]:
    """Each phase that runs, in declared order, with all the runs that it waits for, and its own number."""
    latest: dict[str, int] = {}
    waits: list[set[int]] = []
    for section in (plan.start, *(plan.step(k) for k in range(plan.steps)), plan.end):
        before = dict(latest)
        for planned in section.phases:
            names = [name.partition("@") for name in planned.after]
            direct = {(before if at else latest).get(name) for name, at, _ in names} - {None}
            waits.append(direct.union(*(waits[run] for run in direct if run is not None)))  # type: ignore[arg-type]
            latest[planned.name] = len(waits) - 1
            yield planned, waits[-1], len(waits) - 1


TWICE = (
    "graph.resources.other={kind: weights, of: other, at: device}",
    "graph.step.sync_other={use: other.sync, copies: {other: policy}}",
    "graph.step.look={use: other.look, reads: [other], writes: [scores]}",
)
AHEAD = ("placement=split", "graph.step.generate.ahead=1")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        *((name, ("placement=split",)) for name in GRAPHS),
        *((name, ("placement=colocated",)) for name in GRAPHS if "async" not in name),
        ("grpo", ("placement=kv_only",)),
        ("grpo", AHEAD),
        ("grpo", ("placement=split", *TWICE)),
        ("grpo", (*AHEAD, *TWICE)),
    ],
)
def test_weights_are_sent_only_when_those_before_have_arrived(graph: str, words: tuple[str, ...]) -> None:
    """So a buffer is free when it is written again: an update of the policy lies between, and waits for its readers."""
    plan = stepgraph.compile(stepgraph.load(graph, list(words)), steps=6)
    sent: dict[str, list[tuple[int, int]]] = {}
    updates = dict.fromkeys(plan.graph.resources, 0)
    for planned, waits, run in runs(plan):
        for source in dict.fromkeys(planned.copies.values()):
            others = sent.setdefault(source, [])
            assert {one for one, version in others if version < updates[source]} <= waits
            others.append((run, updates[source]))
        for name in planned.updates:
            updates[name] += 1
    assert any(len(set(dict(one).values())) > 1 for one in sent.values()), "nothing was copied twice"


# ---- shared memory -------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def buffers() -> Iterator[Buffers]:
    made = Buffers()
    yield made
    made.close()


def weights(version: int, *tensors: Any) -> Weights:
    return Weights(version, lambda: ((str(number), one) for number, one in enumerate(tensors)))


def travelled(parcel: Any) -> Any:
    """As the receiver has it."""
    return pickle.loads(pickle.dumps(parcel))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("how", ["shm", "object_store"])
def test_what_arrives_is_what_was_sent(torch: Any, buffers: Buffers, how: str, dtype: str) -> None:
    sender = buffers if how == "shm" else Packer()
    shapes = [torch.rand(shape).mul(7) for shape in ((3, 2), (), (0, 4), (1000,), (5, 7))]
    tensors = [one.to(getattr(torch, dtype)) for one in (*shapes, shapes[0].t(), shapes[-1][:, ::2])]
    parameter = torch.nn.Parameter(torch.rand(3))
    found = travelled(sender.send(weights(7, *tensors, "a word", parameter))).weights()
    assert found.version == 7
    for _ in range(2):
        *arrived, word, last = [one for _, one in found.tensors()]
        assert word == "a word"
        assert torch.equal(last, parameter)
        for one, sent in zip(arrived, tensors, strict=True):
            assert (one.dtype, one.shape) == (sent.dtype, sent.shape)
            assert torch.equal(one.to(torch.float32), sent.to(torch.float32))


def test_reading_takes_no_memory_of_the_receiver_s_own(torch: Any, buffers: Buffers) -> None:
    from stepgraph.components.torch.park import anonymous_bytes

    size = 64 << 20
    parcel = buffers.send(weights(1, torch.ones(size // 4)))
    before = anonymous_bytes()
    (_, one), *_ = travelled(parcel).weights().tensors()
    assert float(one.sum()) == size // 4
    assert anonymous_bytes() - before < size // 8
    place = one.data_ptr()
    del one
    (_, again), *_ = buffers.send(weights(2, torch.zeros(size // 4))).weights().tensors()
    assert again.data_ptr() == place
    assert float(again.sum()) == 0


def test_a_buffer_is_used_again_unless_somebody_still_reads_it(torch: Any, buffers: Buffers) -> None:
    first = buffers.send(weights(1, torch.full((1000,), 1.0)))
    again = buffers.send(weights(2, torch.full((1000,), 2.0)))
    assert first.path == again.path
    tensor = dict(travelled(again).weights().tensors())["0"]
    view = tensor[10:20].unsqueeze(0)
    del tensor
    for version in (3, 4):
        assert buffers.send(weights(version, torch.full((1000,), float(version)))).path != again.path
    assert torch.equal(view, torch.full((1, 10), 2.0))
    del view
    assert buffers.send(weights(5, torch.zeros(1000))).path == again.path


def test_one_who_comes_too_late_is_told_so(torch: Any, buffers: Buffers) -> None:
    late, _ = buffers.send(weights(1, torch.ones(9))), buffers.send(weights(2, torch.ones(9)))
    with pytest.raises(RunError, match="the weights of version 1 were replaced before they were read"):
        late.weights()
    buffers._all[0].taken()
    with pytest.raises(RunError, match="the weights of version 1 are being replaced before they were read"):
        late.weights()


def test_a_receiver_that_never_lets_go_is_told_before_the_memory_is_full(torch: Any, buffers: Buffers) -> None:
    kept = [buffers.send(weights(n, torch.ones(9))).weights() for n in range(MOST)]
    with pytest.raises(RunError, match=f"the last {MOST} syncs are all still being read: a receiver must copy"):
        buffers.send(weights(MOST, torch.ones(9)))
    kept.pop()
    gc.collect()
    assert buffers.send(weights(MOST, torch.ones(9))).weights().version == MOST


def test_a_sender_that_fails_half_way_leaves_nothing_to_read(torch: Any, buffers: Buffers) -> None:
    def broken() -> Iterator[tuple[str, Any]]:
        yield "0", torch.zeros(9)
        raise ValueError("out of luck")

    before = buffers.send(weights(1, torch.ones(9)))
    with pytest.raises(ValueError, match="out of luck"):
        buffers.send(Weights(2, broken))
    with pytest.raises(RunError, match="replaced"):
        before.weights()
    after = buffers.send(weights(3, torch.ones(9)))
    assert after.path == before.path
    assert torch.equal(dict(after.weights().tensors())["0"], torch.ones(9))


def test_weights_of_another_size_fit_too(torch: Any, buffers: Buffers) -> None:
    for size in (5, 70_000, 3, 200_000):
        sent = [torch.rand(size), torch.rand(2 * size)]
        found = dict(buffers.send(weights(size, *sent)).weights().tensors())
        assert all(torch.equal(found[str(n)], one) for n, one in enumerate(sent))
        del found
    assert len(buffers._all) == 1


def test_memory_that_is_not_there_is_an_error_and_not_the_end_of_the_process(
    torch: Any, buffers: Buffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(RunError, match=r"no shared memory for .* GiB of weights \(No space left on device\)"):
            buffers.send(weights(1, torch.ones(1 << 20)))
    assert buffers.send(weights(1, torch.ones(1 << 20))).weights().version == 1


SENDER = """
import pickle, sys, torch
from stepgraph.runtime.contract import Weights
from stepgraph.runtime.ray_shm import Buffers
buffers = Buffers()
pickle.dump(buffers.send(Weights(3, lambda: iter([("a", torch.arange(1000.0))]))), sys.stdout.buffer)
sys.stdout.flush()
sys.stdin.read()
"""


def test_weights_come_from_another_process_and_are_gone_with_it_however_it_ends(torch: Any) -> None:
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208 (names are all that is compared)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SENDER], **pipes) as sender:  # type: ignore[call-overload]
        parcel = pickle.load(sender.stdout)
        found = parcel.weights()
        assert set(os.listdir("/dev/shm")) <= before  # noqa: PTH208
        assert str(Path(parcel.path).readlink()).endswith(" (deleted)")
        sender.kill()
    assert torch.equal(dict(found.tensors())["a"], torch.arange(1000.0))  # what was opened can be read to its end
    with pytest.raises(RunError, match=r"cannot open the sender's memory .*; does it live, .*transport=object_store"):
        parcel.weights()


def test_a_file_that_took_the_place_of_the_sender_s_is_not_read(torch: Any, buffers: Buffers) -> None:
    sent, other = buffers.send(weights(1, torch.ones(9))), Buffers()
    theirs = other.send(weights(1, torch.ones(9)))
    with pytest.raises(RunError, match="is not the sender's memory any more: it has ended"):
        type(sent)(sent.version, sent.number, theirs.path, sent.identity, sent.size, sent.named).weights()
    other.close()


def test_consecutive_syncs_have_different_numbers(torch: Any, buffers: Buffers) -> None:
    sent = [buffers.send(weights(0, torch.ones(2))) for _ in range(3)]
    assert all(one.number < other.number for one, other in pairwise(sent))
