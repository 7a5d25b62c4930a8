"""The rewards component scores rollouts in their order, and says which prompt a scorer failed on."""

from pathlib import Path

import pytest

from stepgraph.data import Rewards
from stepgraph.errors import ConfigError, RunError
from stepgraph.runtime.contract import Prompt, Rollout, Shared

SHARED = Shared(model={}, data={"task": "digits", "length": 2}, seed=0, run_dir=Path())


def rollout(text, answer="12", index=0):
    return Rollout(Prompt("12=", answer, index), (1,), (2,), (0.0,), text, 0, index)


def test_rewards_come_in_the_order_of_the_rollouts():
    assert Rewards(SHARED).score(None, [rollout("12"), rollout("99"), rollout("19")]) == {"rewards": [1.0, 0.0, 0.5]}


def test_another_scorer_may_be_named():
    assert Rewards(SHARED, scorer="contains").score(None, [rollout("a12b")]) == {"rewards": [1.0]}
    with pytest.raises(ConfigError, match="did you mean 'contains'"):
        Rewards(SHARED, scorer="contain")


@pytest.mark.parametrize(
    ("body", "words"),
    [("return float('nan')", "gave nan for prompt 5"), ("return 1 / 0", "failed on prompt 5: ZeroDivisionError")],
)
def test_a_scorer_that_fails_is_named_with_its_prompt(tmp_path, body, words):
    (tmp_path / "bad.py").write_text(f"def score(text, prompt):\n    {body}\n")
    with pytest.raises(RunError, match=words):
        Rewards(SHARED, scorer=f"{tmp_path}/bad.py:score").score(None, [rollout("12", index=5)])
