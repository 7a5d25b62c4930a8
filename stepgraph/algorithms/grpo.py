"""GRPO: group relative policy optimisation, as pure functions of tensors.

Shao et al. 2024, "DeepSeekMath" (arXiv:2402.03300). Several answers are sampled for each question; how much better an
answer is than its siblings takes the place of a critic. Shapes: N answers, T answer tokens (padded on the right), and
``mask`` [N, T] is 1 where a token is part of the answer. Log-probabilities are natural, of the sampled tokens, at the
temperature they were sampled at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

EQUAL = 1e-6  # a group whose rewards spread less is one of equals: what is left of them is rounding


class Loss(NamedTuple):
    """The loss to descend, and what is worth seeing of it. All are scalars, means over answers."""

    loss: Tensor
    kl: Tensor
    clip_fraction: Tensor


def advantages(rewards: Sequence[float], groups: Sequence[int]) -> Tensor:
    """How many standard deviations an answer is above its group's mean: [N] rewards -> [N] advantages, no unit.

    Section 4.1.2 of the paper: (r - mean) / std within the answers to one question. A group of equals gets zeros.
    """
    values = torch.tensor(rewards, dtype=torch.float64)
    _, index = torch.unique(torch.tensor(groups), return_inverse=True)
    centred = values - _group_mean(values, index)[index]
    std = _group_mean(centred.square(), index)[index].sqrt()
    return torch.where(std > EQUAL, centred / std.clamp(min=EQUAL), 0.0).float()


def clipped_loss(
    new: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, *, clip: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate and the share of tokens it holds back: [N, T] x [N, T] x [N] x [N, T] -> [N], [N].

    Schulman et al. 2017, "Proximal policy optimization" (arXiv:1707.06347), equation 7, with the ratio of the policy
    in training to the one that sampled. The mean over an answer's tokens comes first (equation 3 of DeepSeekMath), so
    that a long answer weighs no more than a short one. ``weights`` [N, T] correct for a sampler that is not the policy.
    """
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantage[:, None], ratio.clamp(1 - clip, 1 + clip) * advantage[:, None])
    held = (gain < ratio * advantage[:, None]).float()
    return -token_mean(gain if weights is None else gain * weights, mask), token_mean(held, mask)


def k3(new: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """An unbiased estimate, never negative, of KL(policy || reference) in nats a token: [N, T] x [N, T] -> [N].

    r - 1 - log r with r = reference / policy: equation 4 of DeepSeekMath; "k3" in Schulman's note
    "Approximating KL divergence" (2020).
    """
    log_ratio = reference - new
    return token_mean(log_ratio.exp() - 1 - log_ratio, mask)


def loss(
    new: Tensor,
    old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip: float,
    kl: float,
    reference: Tensor | None,
    weights: Tensor | None = None,
) -> Loss:
    """The mean over answers of the clipped surrogate plus ``kl`` times the distance from the reference."""
    surrogate, held = clipped_loss(new, old, advantage, mask, clip=clip, weights=weights)
    distance = torch.zeros_like(surrogate) if reference is None else k3(new, reference, mask)
    return Loss((surrogate + kl * distance).mean(), distance.mean().detach(), held.mean().detach())


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over an answer's own tokens: [N, T] x [N, T] -> [N]; 0 for an answer without any."""
    return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def _group_mean(values: Tensor, index: Tensor) -> Tensor:
    count = torch.bincount(index)
    return values.new_zeros(len(count)).index_add(0, index, values) / count
