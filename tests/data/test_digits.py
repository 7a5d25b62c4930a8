"""The digits task: what it asks, what it keeps for evaluations, and how it scores."""

import pytest

from stepgraph.data import build_task

COPY = {"task": "digits", "op": "copy", "length": 3}


def test_a_position_and_a_seed_always_ask_the_same_question():
    assert build_task(COPY, 7).prompt(5) == build_task(COPY, 7).prompt(5)
    assert [build_task(COPY, 7).prompt(i).text for i in range(9)] != [
        build_task(COPY, 8).prompt(i).text for i in range(9)
    ]


@pytest.mark.parametrize("length", [2, 3, 8])
def test_a_question_has_its_digits_and_an_equals_sign(length):
    prompt = build_task({**COPY, "length": length}, 0).prompt(0)
    assert prompt.text[:-1].isdigit()
    assert prompt.text == prompt.answer + "="
    assert len(prompt.answer) == length


def test_sorting_wants_the_same_digits_in_order():
    prompt = build_task({**COPY, "op": "sort", "length": 6}, 0).prompt(3)
    assert prompt.answer == "".join(sorted(prompt.text[:-1]))


@pytest.mark.parametrize(
    ("text", "reward"), [("123", 1.0), ("129", 2 / 3), ("1", 1 / 3), ("", 0.0), ("312", 0.0), ("1234", 1.0)]
)
def test_the_reward_is_the_share_of_right_positions(text, reward):
    task = build_task(COPY, 0)
    prompt = next(p for p in map(task.prompt, range(20_000)) if p.answer == "123")
    assert task.score(text, prompt) == reward


def test_an_evaluation_asks_what_training_never_does():
    task = build_task({**COPY, "length": 2}, 0)
    held_out = {prompt.text for prompt in task.held_out(50)}
    trained = {task.prompt(i).text for i in range(3000)}
    assert held_out
    assert not held_out & trained
    assert len(trained) > 80


def test_held_out_prompts_are_in_nobodys_stream():
    assert all(prompt.index < 0 for prompt in build_task(COPY, 0).held_out(4))
