"""Plans drive the frameworks' own objects: stand-ins with their methods, in this process and as Ray actors."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stepgraph.adapters import miles, slime
from stepgraph.errors import ConfigError

from .recordings import Call, of, recordings

ENGINE_METHODS = ("generate", "eval", "save", "offload", "onload_weights", "onload_kv", "check_weights", "dispose")
MODEL_METHODS = ("train", "save_model", "offload", "onload", "clear_memory", "update_weights")


class Book:
    """What was called, in the words of the recordings."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.given: list[Any] = []
        self._lock = threading.Lock()

    def note(self, phase: str, step: int | None = None, **words: Any) -> None:
        call = {"phase": phase, **({} if step is None else {"step": step}), **words}
        with self._lock:
            self.calls.append(call)


class RolloutManager:
    """miles' rollout manager, as far as its drivers know it."""

    def __init__(self, book: Book) -> None:
        self.book = book

    async def generate(self, rollout_id: int) -> dict[str, int]:
        await asyncio.sleep(0)
        self.book.note("generate", rollout_id)
        return {"rollout": rollout_id}

    async def eval(self, rollout_id: int) -> None:
        self.book.note("eval", rollout_id)

    async def save(self, rollout_id: int) -> None:
        self.book.note("save_rollout_state", rollout_id)

    async def offload(self, tags: list[str] | None = None) -> None:
        self.book.note("offload_engine", **({} if tags is None else {"tags": tags}))

    async def onload_weights(self) -> None:
        self.book.note("reload_engine_weights")

    async def onload_kv(self) -> None:
        self.book.note("reload_engine_kv")

    async def check_weights(self, action: str) -> None:
        assert action == "compare"
        self.book.note("check_weights")

    async def dispose(self) -> None:
        self.book.note("dispose")


class Model:
    """miles' train group; ``fails`` names a method that raises."""

    def __init__(self, book: Book, role: str, fails: str = "") -> None:
        self.book, self.role, self.fails = book, role, fails

    async def train(self, rollout_id: int, rollout_data: Any, external_data: Any = None) -> str:
        if self.fails == "train":
            raise RuntimeError("NCCL is gone")
        self.book.given.append((self.role, rollout_id, rollout_data, external_data))
        self.book.note(f"train_{self.role}", rollout_id)
        return f"values of {rollout_id}"

    async def save_model(self, rollout_id: int, force_sync: bool = False) -> None:
        self.book.note(f"save_{self.role}", rollout_id, **({"force_sync": True} if force_sync else {}))

    async def offload(self) -> None:
        self.book.note(f"offload_{self.role}")

    async def onload(self) -> None:
        self.book.note(f"reload_{self.role}")

    async def clear_memory(self) -> None:
        self.book.note(f"clear_{self.role}_memory")

    async def update_weights(self, rollout_id: int | None = None) -> None:
        self.book.note("sync_weights", rollout_id)


class Group:
    """slime's train group: plain methods, but for ``async_train``, which gives references."""

    def __init__(self, book: Book, role: str) -> None:
        self.book, self.role = book, role

    def async_train(self, rollout_id: int, rollout_data: Any, external_data: Any = None) -> list[Any]:
        self.book.given.append((self.role, rollout_id, rollout_data, external_data))
        self.book.note(f"train_{self.role}", rollout_id)
        return [Reference()]

    def save_model(self, rollout_id: int, force_sync: bool = False) -> None:
        self.book.note(f"save_{self.role}", rollout_id, **({"force_sync": True} if force_sync else {}))

    def clear_memory(self) -> None:
        self.book.note(f"clear_{self.role}_memory")

    def update_weights(self) -> None:
        self.book.note("sync_weights")


class Reference:
    def __await__(self) -> Iterator[None]:
        yield
        return


def args(number: int, loop: str) -> tuple[Namespace, int | None]:
    """A driver's arguments: those that were recorded, among others that are none of a loop's business."""
    config = dict(recordings(loop)[number]["config"])
    per_epoch = config.pop("num_rollout_per_epoch")
    return Namespace(**config, lr=1e-6, tensor_model_parallel_size=8), per_epoch


def driven(loop: str, number: int, run: Callable[..., Any], folder: Path) -> Book:
    book = Book()
    given, per_epoch = args(number, loop)
    model = Model if loop in miles.LOOPS else Group
    critic = model(book, "critic") if given.use_critic else None
    options = {"loop": loop, "run_dir": folder, "out": io.StringIO()}
    run(given, RolloutManager(book), model(book, "actor"), critic, per_epoch, **options)
    return book


def in_a_loop(*given: Any, **options: Any) -> Any:
    return asyncio.run(miles.run_async(*given, **options))


def those_of(calls: list[dict[str, Any]], words: tuple[str, ...]) -> list[Call]:
    return [call for call in calls if call["phase"] in words]


ENGINE = (
    "generate", "eval", "save_rollout_state", "offload_engine", "reload_engine_weights", "reload_engine_kv", "dispose",
)  # fmt: skip
CASES = [(loop, number) for loop in ("miles_sync", "slime_sync") for number in range(0, 300, 20)]


@pytest.mark.parametrize(("loop", "number"), CASES)
def test_a_sync_loop_calls_the_objects_as_the_plan_says(loop: str, number: int, tmp_path: Path) -> None:
    book = driven(loop, number, of(loop).run, tmp_path / "run")
    planned = of(loop).calls(loop, recordings(loop)[number]["config"])
    assert sorted(map(str, book.calls)) == sorted(map(str, planned))
    for words in (("generate", "train_actor", "train_critic", "sync_weights", "eval"), ENGINE):
        assert those_of(book.calls, words) == those_of(planned, words)


@pytest.mark.parametrize("loop", ["miles_async", "slime_async"])
@pytest.mark.parametrize("number", range(0, 300, 20))
def test_an_async_loop_calls_the_objects_as_the_plan_says(loop: str, number: int, tmp_path: Path) -> None:
    book = driven(loop, number, of(loop).run, tmp_path / "run")
    planned = of(loop).calls(loop, recordings(loop)[number]["config"])
    assert sorted(map(str, book.calls)) == sorted(map(str, planned))
    for words in (
        ("train_actor", "sync_weights"),
        ("train_actor", "train_critic"),
        ("generate", "sync_weights", "eval"),
    ):
        assert those_of(book.calls, words) == those_of(planned, words)


@pytest.mark.parametrize("number", [1, 8, 94, 102])
def test_a_driver_that_is_a_coroutine_awaits_the_run(number: int, tmp_path: Path) -> None:
    book = driven("miles_sync", number, in_a_loop, tmp_path / "run")
    planned = miles.calls("miles_sync", recordings("miles_sync")[number]["config"])
    assert sorted(map(str, book.calls)) == sorted(map(str, planned))


def test_coroutines_run_on_the_drivers_own_event_loop(tmp_path: Path) -> None:
    book, loops = Book(), []

    class Manager(RolloutManager):
        async def generate(self, rollout_id: int) -> dict[str, int]:
            loops.append(asyncio.get_running_loop())
            return await super().generate(rollout_id)

    async def train() -> None:
        loops.append(asyncio.get_running_loop())
        given = {"num_rollout": 1}
        await miles.run_async(given, Manager(book), Model(book, "actor"), run_dir=tmp_path / "run", out=io.StringIO())

    asyncio.run(train())
    assert len(loops) == 2
    assert loops[0] is loops[1]


def test_the_actor_is_given_the_rollout_and_the_critics_values(tmp_path: Path) -> None:
    book = Book()
    given = {"num_rollout": 2, "use_critic": True, "num_critic_only_steps": 1}
    miles.run(
        given, RolloutManager(book), Model(book, "actor"), Model(book, "critic"), run_dir=tmp_path, out=io.StringIO()
    )
    assert book.given == [
        ("critic", 0, {"rollout": 0}, None),
        ("critic", 1, {"rollout": 1}, None),
        ("actor", 1, {"rollout": 1}, "values of 1"),
    ]


def test_the_next_rollout_is_generated_while_this_one_is_trained_on(tmp_path: Path) -> None:
    book, generating = Book(), threading.Event()

    class Manager(RolloutManager):
        async def generate(self, rollout_id: int) -> dict[str, int]:
            if rollout_id == 1:
                generating.set()
            return await super().generate(rollout_id)

    class Actor(Model):
        async def train(self, rollout_id: int, rollout_data: Any, external_data: Any = None) -> str:
            assert await asyncio.to_thread(generating.wait, 10)
            return await super().train(rollout_id, rollout_data, external_data)

    given = {"num_rollout": 2}
    miles.run(
        given, Manager(book), Actor(book, "actor"), loop="miles_async", run_dir=tmp_path / "run", out=io.StringIO()
    )
    assert [call["phase"] for call in book.calls].count("train_actor") == 2


def test_an_error_of_a_call_is_raised_as_it_came(tmp_path: Path) -> None:
    book = Book()
    with pytest.raises(RuntimeError, match="NCCL is gone"):
        miles.run(
            {"num_rollout": 2},
            RolloutManager(book),
            Model(book, "actor", fails="train"),
            run_dir=tmp_path / "run",
            out=io.StringIO(),
        )
    assert "dispose" not in [call["phase"] for call in book.calls]


def test_a_critic_that_is_wanted_and_not_given_is_refused(tmp_path: Path) -> None:
    book = Book()
    with pytest.raises(ConfigError, match="critic_model"):
        miles.run({"num_rollout": 1, "use_critic": True}, RolloutManager(book), Model(book, "actor"), run_dir=tmp_path)
    assert book.calls == []


# ---- on Ray --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray", reason="ray is not installed")
    found.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    found.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker cannot import a test
    yield found
    found.shutdown()


def actors(ray: Any, role: str) -> Any:
    """An actor that notes what is called, with the methods of both frameworks' objects."""

    class Noting:
        def __init__(self) -> None:
            self.book = Book()
            self.target: Any = RolloutManager(self.book) if role == "engine" else Model(self.book, role)

        def noted(self) -> list[dict[str, Any]]:
            return self.book.calls

    def forwarding(name: str) -> Callable[..., Any]:
        async def method(self: Any, *given: Any, **options: Any) -> Any:
            return await getattr(self.target, name)(*given, **options)

        return method

    for name in dict.fromkeys((*ENGINE_METHODS, *MODEL_METHODS)):
        setattr(Noting, name, forwarding(name))
    return ray.remote(num_cpus=0)(Noting).remote()


@pytest.mark.parametrize("loop", ["miles_sync", "miles_async"])
def test_a_loop_runs_on_ray_actors(ray: Any, loop: str, tmp_path: Path) -> None:
    number = next(
        number
        for number, row in enumerate(recordings(loop))
        if row["config"]["use_critic"] and len(row["calls"]) > 25 and row["config"]["offload_train"]
    )
    given, per_epoch = args(number, loop)
    engine, actor, critic = (actors(ray, role) for role in ("engine", "actor", "critic"))
    miles.run(given, engine, actor, critic, per_epoch, loop=loop, run_dir=tmp_path / "run", out=io.StringIO())
    planned = miles.calls(loop, recordings(loop)[number]["config"])
    noted = [ray.get(one.noted.remote()) for one in (engine, actor, critic)]
    assert sorted(map(str, chain(*noted))) == sorted(map(str, planned))
    for calls in noted:
        assert calls == [call for call in planned if call in calls]


def test_slimes_references_of_a_ray_actor_are_waited_for(ray: Any, tmp_path: Path) -> None:
    @ray.remote(num_cpus=0)
    class Worker:
        def train(self, rollout_id: int) -> int:
            return rollout_id

    class RayGroup(Group):
        def async_train(self, rollout_id: int, rollout_data: Any, external_data: Any = None) -> list[Any]:
            super().async_train(rollout_id, rollout_data, external_data)
            return [worker.train.remote(rollout_id)]

    worker, book = Worker.remote(), Book()
    given = {"num_rollout": 2, "use_critic": True}
    engine = actors(ray, "engine")
    slime.run(
        given, engine, RayGroup(book, "actor"), RayGroup(book, "critic"), run_dir=tmp_path / "run", out=io.StringIO()
    )
    values = [external for role, _, _, external in book.given if role == "actor"]
    assert [ray.get(value) for value in values] == [[0], [1]]
