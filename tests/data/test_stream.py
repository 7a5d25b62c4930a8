"""A stream is a number: where it is, is all that a checkpoint has to keep."""

from pathlib import Path

import pytest

from stepgraph.data import Data
from stepgraph.errors import RunError
from stepgraph.runtime.contract import Shared

DIGITS = {"task": "digits", "batch": 4, "eval_size": 3}


def data(seed=0, **options):
    options = {**DIGITS, **options} if "task" not in options else options
    return Data(Shared(model={}, data=options, seed=seed, run_dir=Path()), **options)


def test_a_stream_sought_to_a_batch_goes_on_like_one_that_took_its_way_there():
    walked, sought = data().stream("prompts"), data().stream("prompts")
    for _ in range(3):
        walked.take()
    sought.seek(3)
    assert walked.cursor == sought.cursor == 3
    assert walked.take() == sought.take()


def test_no_index_is_used_twice():
    stream = data().stream("prompts")
    assert [p.index for _ in range(3) for p in stream.take()] == list(range(12))


def test_two_streams_have_a_cursor_each():
    source = data()
    one, other = source.stream("one"), source.stream("other")
    one.take()
    assert (one.cursor, other.cursor) == (1, 0)


def test_an_evaluation_asks_the_same_questions_each_time():
    source = data()
    source.stream("prompts").take()
    assert source.eval_prompts() == source.eval_prompts() == data().eval_prompts()
    assert len(source.eval_prompts()) == 3


def test_a_stream_cannot_seek_before_its_first_batch():
    with pytest.raises(RunError, match="cannot seek to batch -1"):
        data().stream("prompts").seek(-1)


def test_a_file_that_is_not_repeated_runs_out(tmp_path):
    file = tmp_path / "few.jsonl"
    file.write_text('{"prompt": "a", "answer": "b"}\n' * 7)
    stream = data(task="jsonl", path=str(file), repeat=False, batch=2, eval_size=1).stream("prompts")
    assert stream.batches == 3
    for _ in range(3):
        stream.take()
    with pytest.raises(RunError, match=r"ran out after 3 batches; set data\.repeat=true"):
        stream.take()


def test_made_up_questions_never_run_out():
    assert data().stream("prompts").batches is None
    assert data().batches_per_epoch is None
