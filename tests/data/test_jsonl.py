"""A file of questions is read and checked whole; what is wrong is named with its file and line."""

import json

import pytest

from stepgraph.data import build_task, check_data
from stepgraph.errors import ConfigError

ROWS = [{"prompt": f"{n} + 1 =", "answer": n + 1, "note": n} for n in range(6)]


@pytest.fixture
def section(tmp_path):
    def write(text, **options):
        file = tmp_path / "questions.jsonl"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"task": "jsonl", "path": str(file), "eval_size": 0, **options}

    return write


def lines(rows=ROWS):
    return "\n".join(map(json.dumps, rows)) + "\n"


def refusal(data):
    with pytest.raises(ConfigError) as refused:
        check_data(data)
    return str(refused.value)


def test_every_epoch_asks_each_question_once_in_an_order_of_its_own(section):
    task = build_task(section(lines()), 3)
    epochs = [[task.prompt(6 * e + i).text for i in range(6)] for e in range(4)]
    assert all(sorted(epoch) == sorted(row["prompt"] for row in ROWS) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_an_answer_may_be_a_number_and_other_keys_travel_along(section):
    prompt = build_task(section(lines()), 0).prompt(0)
    assert prompt.answer == str(prompt.meta["note"] + 1)


def test_the_last_lines_are_held_out(section):
    task = build_task(section(lines(), eval_size=2), 0)
    held_out = {prompt.text for prompt in task.held_out(2)}
    assert held_out == {"4 + 1 =", "5 + 1 ="}
    assert not held_out & {task.prompt(i).text for i in range(12)}


def test_evaluations_may_have_a_file_of_their_own(section, tmp_path):
    other = tmp_path / "eval.jsonl"
    other.write_text('{"prompt": "x", "answer": "y"}\n')
    task = build_task(section(lines(), eval_path=str(other), eval_size=9), 0)
    assert [prompt.text for prompt in task.held_out(9)] == ["x"]


def test_blank_lines_are_skipped_and_still_counted(section):
    assert "questions.jsonl:3: not JSON" in refusal(section('{"prompt": "a", "answer": "b"}\n\n{"prompt"\n'))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "a", "answer": ', "questions.jsonl:2: not JSON"),
        ('["a", "b"]', "questions.jsonl:2: a list, but a line holds one JSON object"),
        ('{"promt": "a", "answer": "b"}', "questions.jsonl:2: no key 'prompt', did you mean 'promt'?"),
        ('{"prompt": "a"}', "questions.jsonl:2: no key 'answer'"),
        ('{"prompt": "a", "answer": null}', "questions.jsonl:2: 'answer' is None; it must be text or a number"),
        (b"\xff\xfe", "questions.jsonl:2: not JSON"),
    ],
)
def test_a_broken_line_is_named_by_file_and_number(section, line, words):
    first = b'{"prompt": "a", "answer": "b"}\n'
    message = refusal(section(first + (line if isinstance(line, bytes) else line.encode()) + b"\n"))
    assert words in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path):
    assert "cannot read" in refusal({"task": "jsonl", "path": str(tmp_path / "nowhere.jsonl")})


def test_an_empty_file_has_no_questions(section):
    assert "has no questions" in refusal(section("\n\n"))


def test_holding_everything_out_leaves_none_to_train_on(section):
    assert "data.eval_size=6 leaves none to train on" in refusal(section(lines(), eval_size=6))


def test_an_unknown_scorer_is_refused_before_anything_is_built(section):
    assert "no scorer 'exakt', did you mean 'exact'?" in refusal(section(lines(), scorer="exakt"))
