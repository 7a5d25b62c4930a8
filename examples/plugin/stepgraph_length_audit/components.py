"""The component that this package offers: an engine without a model, for trying a graph where there is none."""

from __future__ import annotations

from typing import Any

from stepgraph.runtime.contract import Rollout


class Echo:
    """Answers every prompt with the prompt's own answer, cut after ``length`` letters."""

    def __init__(self, shared: Any, *, length: int = 8) -> None:
        self._length = length

    def generate(self, ctx: Any, prompts: Any) -> dict[str, list[Rollout]]:
        """One rollout a prompt."""
        return {"rollouts": [self._answer(prompt) for prompt in prompts.take()]}

    def _answer(self, prompt: Any) -> Rollout:
        text = prompt.answer[: self._length]
        tokens = tuple(map(ord, text))
        return Rollout(prompt, (1,), tokens, (0.0,) * len(tokens), text, 0, prompt.index)
