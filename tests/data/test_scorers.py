"""Scorers by name, and the user's own."""

import pytest

from stepgraph.data.scorers import scorer
from stepgraph.errors import ConfigError
from stepgraph.runtime.contract import Prompt


@pytest.mark.parametrize(
    ("name", "text", "answer", "reward"),
    [
        ("exact", " 12\n", "12", 1.0),
        ("exact", "12.", "12", 0.0),
        ("contains", "it is 12, I think", "12", 1.0),
        ("contains", "it is 21", "12", 0.0),
        ("number", "7 + 5 = 12.0", "12", 1.0),
        ("number", "so 1,200", "1200", 1.0),
        ("number", "12 or 13", "12", 0.0),
        ("number", "no idea", "12", 0.0),
        ("number", "-3", "3", 0.0),
        ("number", "no idea", "none either", 0.0),
    ],
)
def test_a_named_scorer_gives(name, text, answer, reward):
    assert scorer(name)(text, Prompt("?", answer, 0)) == reward


def test_a_dotted_path_names_a_function_of_ones_own():
    assert scorer("stepgraph.data.scorers.exact")("a", Prompt("?", "a", 0)) == 1.0


def test_a_file_and_a_name_do_too(tmp_path):
    (tmp_path / "mine.py").write_text("def half(text, prompt):\n    return len(text) / 2\n")
    assert scorer(f"{tmp_path}/mine.py:half")("abc", Prompt("?", "", 0)) == 1.5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nubmer", "did you mean 'number'?"),
        (None, "no scorer None"),
        ("nowhere.at.all", "cannot be imported: ModuleNotFoundError"),
        ("nowhere.py:fn", "cannot be imported: FileNotFoundError"),
        ("stepgraph.data.scorers.exat", "has no function 'exat', did you mean 'exact'?"),
    ],
)
def test_a_scorer_that_is_not_there_is_refused(name, words):
    with pytest.raises(ConfigError) as refused:
        scorer(name)
    assert words in str(refused.value)
