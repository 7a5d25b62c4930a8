"""The packaged sections and the constructors they bind say the same."""

import inspect
from importlib import import_module

import pytest

from stepgraph.components.torch.spec import check_model
from stepgraph.data import check_data

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("group", ["engine", "trainer"])
def test_a_section_lists_every_option_with_its_default(section, group):
    found = section(group, "torch")
    module, _, name = found.target.rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    options = {k: p.default for k, p in parameters.items() if k not in ("shared", "places")}
    listed = {k: tuple(v) if isinstance(v, list) else v for k, v in found.options.items()}
    assert listed == options


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_a_packaged_model_passes_its_check(section, name):
    check_model(section("model", name).options)


def test_the_packaged_digits_pass_their_check(section):
    check_data(section("data", "digits").options)


def test_the_packaged_data_set_of_reasoning_gym_passes_its_check(section):
    pytest.importorskip("reasoning_gym")
    check_data(section("data", "reasoning_gym").options)


def test_the_packaged_file_section_lacks_only_its_file(section, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "answer": "b"}\n' * 20)
    check_data({**section("data", "jsonl").options, "path": str(tmp_path / "a.jsonl")})
