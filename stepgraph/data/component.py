"""The two components of a data section: `Data` asks the questions, `Rewards` scores the answers.

Both build the same task from the same section, so that a question and its scorer cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from stepgraph.data.check import build_task
from stepgraph.data.scorers import scorer as find_scorer
from stepgraph.data.task import Task
from stepgraph.errors import RunError
from stepgraph.runtime.contract import Context, Prompt, Rollout, Shared


class PromptStream:
    """A cursor over a task's questions: ``cursor`` counts batches, so a number is all that a checkpoint needs."""

    def __init__(self, task: Task, batch: int) -> None:
        self._task, self._batch, self._cursor = task, batch, 0

    @property
    def cursor(self) -> int:
        return self._cursor

    @property
    def batches(self) -> int | None:
        """How many whole batches there are, or None when they never run out."""
        return None if self._task.size is None else self._task.size // self._batch

    def take(self) -> list[Prompt]:
        if self.batches is not None and self._cursor >= self.batches:
            raise RunError(f"the prompts ran out after {self.batches} batches; set data.repeat=true or fewer run.steps")
        first = self._cursor * self._batch
        self._cursor += 1
        return [self._task.prompt(first + i) for i in range(self._batch)]

    def seek(self, cursor: int) -> None:
        if cursor < 0:
            raise RunError(f"a stream cannot seek to batch {cursor}; the first batch is 0")
        self._cursor = cursor


class Data:
    """Hands out streams of training prompts, and the prompts of an evaluation."""

    def __init__(self, shared: Shared, **options: Any) -> None:
        self._task = build_task(options, shared.seed)
        self._batch, self._eval_size = options.get("batch", 32), options.get("eval_size", 16)

    def stream(self, name: str) -> PromptStream:
        """A stream of its own over the task's questions, at its first batch."""
        return PromptStream(self._task, self._batch)

    def eval_prompts(self) -> list[Prompt]:
        """The held-out prompts: the same ones each time."""
        return self._task.held_out(self._eval_size)

    @property
    def batches_per_epoch(self) -> int | None:
        """How many batches make an epoch, or None for a task whose questions are made on the spot."""
        epoch: int | None = getattr(self._task, "epoch", None)
        return None if epoch is None else max(1, epoch // self._batch)


class Rewards:
    """Scores rollouts with the task's own scorer, or with one that is named."""

    def __init__(self, shared: Shared, *, scorer: str | None = None) -> None:
        self._score = build_task(shared.data, shared.seed).score if scorer is None else find_scorer(scorer)

    def score(self, ctx: Context, rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
        """One reward a rollout, in the same order; one that was scored as it was made keeps what it got."""
        return {"rewards": [self._one(one) if one.reward is None else one.reward for one in rollouts]}

    def _one(self, rollout: Rollout) -> float:
        try:
            reward = float(self._score(rollout.text, rollout.prompt))
        except Exception as error:  # whatever a user's scorer raises
            raise RunError(f"the scorer failed on prompt {rollout.prompt.index}: {error!r}; mend it") from error
        if not isfinite(reward):
            raise RunError(f"the scorer gave {reward} for prompt {rollout.prompt.index}; a reward must be finite")
        return reward
