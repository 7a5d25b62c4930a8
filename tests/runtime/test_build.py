"""Only what a plan uses is built, and a wrong option is named before anything is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from stepgraph.errors import ConfigError
from stepgraph.runtime.build import build_components
from stepgraph.runtime.run import run

from . import parts
from .parts import Engine, Trainer
from .plans import SYNC, WEIGHTS, hand_plan, loop_plan, phase

HERE = parts.__name__
CONFIG = {
    "engine": {"_target_": f"{HERE}.Engine"},
    "trainer": {"_target_": f"{HERE}:Trainer", "lr": 0.5},
    "data": {"_target_": f"{HERE}.Data", "batch": 2},
    "rewards": {"_target_": "a.module.that.is.not.there"},
    "model": {"hidden": 8},
}


def config(**sections: Any) -> dict[str, Any]:
    return {**CONFIG, **{name: {**CONFIG[name], **section} for name, section in sections.items()}}  # type: ignore[dict-item]


def test_components_that_no_phase_uses_are_not_built(tmp_path: Path) -> None:
    assert sorted(build_components(CONFIG, loop_plan(1), tmp_path)) == ["data", "engine", "trainer"]


def test_what_a_component_s_bodies_call_is_built_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "asks", ("judge",), raising=False)
    built = build_components({**CONFIG, "judge": {"_target_": f"{HERE}.Data", "batch": 1}}, loop_plan(1), tmp_path)
    assert "judge" in built


def test_the_source_of_a_copy_is_built_although_no_phase_of_its_own_runs(tmp_path: Path) -> None:
    plan = hand_plan((), steps=0, resources=WEIGHTS, begin=(SYNC,))
    assert {"engine", "trainer"} <= build_components(CONFIG, plan, tmp_path).keys()


def test_options_and_places_arrive(tmp_path: Path) -> None:
    built = build_components(config(engine={"lie": 2}), loop_plan(1), tmp_path)
    assert built["engine"].lie == 2
    assert built["engine"].places == {"engine": "device", "kv": "device"}


def test_an_unknown_option_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trainer: Trainer has no option 'beta', did you mean 'betas'"):
        build_components(config(trainer={"beta": 1}), loop_plan(1), tmp_path)


def test_nothing_is_built_where_anything_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(Engine, "__init__", lambda self, shared, **_: made.append("engine"))
    with pytest.raises(ConfigError):
        build_components(config(trainer={"beta": 1}), loop_plan(1), tmp_path)
    assert not made


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    plan = hand_plan((phase("judge", "enigne.judge"),))
    with pytest.raises(
        ConfigError, match=r"component 'enigne': the configuration has no section.*did you mean 'engine'"
    ):
        build_components(CONFIG, plan, tmp_path)


def test_a_section_without_a_target_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its section has no _target_"):
        build_components({**CONFIG, "engine": {"lie": 1}}, loop_plan(1), tmp_path)


class NeedsPath:
    """Has an option without a default."""

    def __init__(self, shared: Any, path: str) -> None:
        self.path = path


def test_a_missing_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"NeedsPath needs data\.path"):
        build_components({**CONFIG, "data": {"_target_": f"{__name__}.NeedsPath"}}, loop_plan(1), tmp_path)


def test_shared_tells_of_model_data_seed_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(Trainer, "__init__", lambda self, shared, lr: seen.append(shared))
    build_components(CONFIG, loop_plan(1), tmp_path, seed=3)
    assert (seen[0].model, seen[0].data["batch"], seen[0].seed, seen[0].run_dir) == ({"hidden": 8}, 2, 3, tmp_path)


def test_a_run_builds_from_its_configuration_and_closes_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Trainer] = []

    def close(self: Trainer) -> None:
        closed.append(self)

    monkeypatch.setattr(Trainer, "close", close)
    assert run(loop_plan(2), config=CONFIG, run_dir=tmp_path, out=io.StringIO()).status == "completed"
    assert len(closed) == 1


def test_components_that_were_given_are_left_open(tmp_path: Path) -> None:
    own = parts.loop_parts()
    run(loop_plan(1), own, run_dir=tmp_path, out=io.StringIO())
    assert own["trainer"].closed == 0


def test_a_run_without_components_or_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give components, or a config"):
        run(loop_plan(1), run_dir=tmp_path)
