"""A data section is checked before anything is built, and without a tensor library."""

import subprocess
import sys

import pytest

from stepgraph.data import check_data
from stepgraph.errors import ConfigError


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "data.task is None; it may be digits, reasoning_gym, jsonl"),
        ({"task": "digit"}, "data.task is 'digit', did you mean 'digits'?"),
        ({"task": "digits", "lenght": 3}, "data.task=digits has no option 'lenght', did you mean 'length'?"),
        ({"task": "digits", "op": "copi"}, "data.op is 'copi', did you mean 'copy'?"),
        ({"task": "digits", "length": 9}, "data.length is 9; it must be a whole number of at least 2 and at most 8"),
        ({"task": "digits", "batch": 0}, "data.batch is 0; it must be a whole number of at least 1"),
        ({"task": "digits", "batch": True}, "data.batch is True"),
        ({"task": "jsonl"}, "data.path is None; it must be text, so set data.path=..."),
    ],
)
def test_a_wrong_section_is_refused_in_one_line(data, words):
    with pytest.raises(ConfigError) as refused:
        check_data(data)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_right_section_passes():
    check_data(
        {"_target_": "stepgraph.data.Data", "task": "digits", "op": "sort", "length": 4, "batch": 8, "eval_size": 0}
    )


def test_checking_imports_no_tensor_library():
    code = "import sys, stepgraph.data as d; d.check_data({'task': 'digits'}); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
