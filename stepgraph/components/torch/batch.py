"""Puts sequences of different lengths into one rectangle, and reads log-probabilities off a model.

Prompts are padded on the left and answers on the right, so that every answer starts in the same column and its
logits are one slice. A batch without any padding has no mask at all, which lets attention take its fastest way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from stepgraph.runtime.contract import Rollout


@dataclass(frozen=True, slots=True)
class Batch:
    """N answers: ``answers``, ``old`` (sampled log-probabilities) and ``mask`` [N, T]; ``ids`` [N, P + T - 1].

    The last token of an answer is not among ``ids``: nothing comes after it, so the model need not read it.
    ``attention`` and ``positions`` are shaped like ``ids``, or None where nothing is padded.
    """

    ids: Tensor
    attention: Tensor | None
    positions: Tensor | None
    answers: Tensor
    old: Tensor
    mask: Tensor


def collate(rollouts: Sequence[Rollout], pad: int, device: torch.device) -> Batch:
    """The batch of some rollouts."""
    prompts = left([r.prompt_tokens for r in rollouts], pad)
    answers, old = right([r.tokens for r in rollouts], pad), right([r.logprobs for r in rollouts], 0.0)
    answered = right([[1.0] * len(r.tokens) for r in rollouts], 0.0)
    mask = right([r.mask or [1] * len(r.tokens) for r in rollouts], 0).float()
    attention = torch.cat([lengths([r.prompt_tokens for r in rollouts]), answered[:, :-1].long()], dim=1)
    padded = not bool(attention.all())
    tensors = (torch.cat([prompts, answers[:, :-1]], dim=1), attention, positions(attention), answers, old, mask)
    ids, attention, places, answers, old, mask = (tensor.to(device) for tensor in tensors)
    return Batch(ids, attention if padded else None, places if padded else None, answers, old, mask)


def answer_logprobs(model: Any, batch: Batch, temperature: float) -> Tensor:
    """The log-probability of each answer token at a temperature: [N, T] natural logarithms."""
    out = model(
        input_ids=batch.ids,
        attention_mask=batch.attention,
        position_ids=batch.positions,
        logits_to_keep=batch.answers.shape[1],
        use_cache=False,
    )
    logits = out.logits.float() / temperature
    return -cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), reduction="none").view_as(batch.answers)


def left(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """Rows of ids as one tensor, padded on the left."""
    width = max(map(len, rows))
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])


def right(rows: Sequence[Sequence[Any]], pad: Any) -> Tensor:
    """Rows of numbers as one tensor, padded on the right."""
    width = max(map(len, rows))
    return torch.tensor([list(row) + [pad] * (width - len(row)) for row in rows])


def lengths(rows: Sequence[Sequence[int]]) -> Tensor:
    """1 where a row padded on the left has a token, 0 where it is padding."""
    return left([[1] * len(row) for row in rows], 0)


def positions(attention: Tensor) -> Tensor:
    """The position of each token in its own sequence: padding does not count."""
    return (attention.cumsum(-1) - 1).clamp(min=0)
