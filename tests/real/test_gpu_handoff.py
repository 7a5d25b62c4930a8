"""The benchmark of handoffs runs whole on a CPU, so that a GPU holds no surprises; without a GPU it says so."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")
FILE = Path(__file__).parents[2] / "benchmarks" / "gpu_handoff.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_handoff", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_handoff"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so_in_one_line_and_ends_well(bench: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main([]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no CUDA device here, so nothing to measure")


def test_on_a_cpu_it_measures_every_handoff_and_what_the_last_step_saves(bench: Any, capsys: Any) -> None:
    assert bench.main(["--device", "cpu", "--layers", "4", "--hidden", "256", "--steps", "3"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.partition("\nhandoff ")[2].splitlines()[1:7]}
    times = {"reload_engine": 3, "sync_weights": 3, "reload_kv": 3, "offload_engine": 3}
    assert {name: int(row[0]) for name, row in rows.items()} == {**times, "reload_policy": 3, "offload_policy": 2}
    assert all(float(row[2]) > 0 for row in rows.values())
    weights = 4 * bench.weights_in(4, 256) / bench.GIB
    for name, copies in (("reload_engine", 1), ("sync_weights", 1), ("offload_engine", 1), ("offload_policy", 3)):
        assert float(rows[name][5]) == pytest.approx(copies * weights, rel=0.1, abs=2e-3), name
    assert rows["reload_kv"][5] == "0.000"
    left = "offload_policy, reload_engine, sync_weights, reload_kv"
    assert re.search(rf"^the last step leaves out {left}: \d\.\d+ s, \d\.\d+ GiB not copied$", out, re.MULTILINE)


def test_a_handoff_that_frees_less_than_it_says_or_takes_more_is_wrong(bench: Any) -> None:
    def handoff(leaves: bool, said: int, seen: int) -> Any:
        return bench.Handoff("x", leaves, 1.0, {"policy": said}, seen, said)

    gib = bench.GIB
    assert [handoff(True, gib, seen).wrong for seen in (0, gib // 2, gib, 2 * gib)] == [True, True, False, False]
    assert [handoff(False, gib, seen).wrong for seen in (0, gib // 2, gib, 2 * gib)] == [False, False, False, True]
    assert not bench.Handoff("sync", False, 1.0, {}, gib, gib).wrong


def test_a_component_that_overstates_what_it_frees_is_caught(bench: Any) -> None:
    meter = bench.Meter("cpu")
    meter.moving("offload_policy", {"policy": "host"}, lambda: {"policy": bench.GIB})
    assert [one.wrong for one in meter.handoffs] == [True]


def test_the_largest_model_that_fits_is_taken(bench: Any) -> None:
    gib = bench.GIB
    assert bench.fitting(139 * gib, 120 * gib) == (32, 4096)
    assert bench.fitting(139 * gib, 60 * gib) == bench.fitting(40 * gib, 120 * gib) == (28, 3072)
    assert bench.fitting(24 * gib, 60 * gib) == (24, 2048)
    assert bench.fitting(4 * gib, 60 * gib) is None
