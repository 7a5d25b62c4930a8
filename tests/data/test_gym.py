"""Data sets of reasoning-gym, by name."""

import pytest

from stepgraph.data import answer_tokens, build_task, check_data
from stepgraph.errors import ConfigError

pytest.importorskip("reasoning_gym")

SUMS = {
    "task": "reasoning_gym",
    "dataset": "chain_sum",
    "options": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
}


def test_a_position_and_a_seed_always_ask_the_same_question():
    one, other = build_task(SUMS, 3), build_task(SUMS, 3)
    assert [one.prompt(i) for i in range(5)] == [other.prompt(i) for i in range(5)]


def test_answers_are_scored_by_the_data_sets_own_scorer():
    task = build_task(SUMS, 3)
    prompt = task.prompt(0)
    assert task.score(f" {prompt.answer}\n", prompt) == 1.0
    assert task.score("<answer>" + prompt.answer + "</answer>", prompt) == 1.0
    assert task.score("I do not know", prompt) == 0.0


def test_held_out_questions_come_from_another_seed():
    task = build_task({**SUMS, "options": {}}, 3)
    assert not {p.text for p in task.held_out(8)} & {task.prompt(i).text for i in range(200)}


def test_the_length_of_an_answer_is_the_datas_to_say():
    assert answer_tokens({**SUMS, "max_new_tokens": 9}) == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "chain_sums"}, "has no data set 'chain_sums' (data.dataset), did you mean 'chain_sum'?"),
        (
            {"options": {"min_term": 2}},
            "'chain_sum' of reasoning-gym has no option 'min_term', did you mean 'min_terms'?",
        ),
        ({"options": {"min_terms": 5, "max_terms": 2}}, "reasoning-gym refuses data.options of 'chain_sum'"),
        ({"options": [2]}, "it must map the options of 'chain_sum' to values"),
        ({"dataset": None}, "data.dataset is None; it must be text"),
    ],
)
def test_a_wrong_section_is_refused(change, words):
    with pytest.raises(ConfigError) as refused:
        check_data({**SUMS, **change})
    assert words in str(refused.value)
