"""What training optimises: GRPO's advantage and loss, or the functions that a graph hooks in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stepgraph.algorithms import grpo
from stepgraph.components.torch.batch import Batch
from stepgraph.errors import RunError
from stepgraph.styles import accepted

Hooks = Mapping[str, Callable[..., Any]]


def advantages(hooks: Hooks, rewards: Sequence[float], groups: Sequence[int]) -> Tensor:
    """One advantage a rollout: [N]."""
    if "advantage" not in hooks:
        return grpo.advantages(rewards, groups)
    found = torch.as_tensor(hooks["advantage"](rewards, groups), dtype=torch.float32)
    if found.shape != (len(rewards),) or not bool(found.isfinite().all()):
        raise RunError(
            f"train.hooks.advantage gave {_said(found)} for {len(rewards)} rewards; give one finite number each"
        )
    return found


def loss(hooks: Hooks, new: Tensor, batch: Batch, advantage: Tensor, terms: Mapping[str, Any]) -> grpo.Loss:
    """The loss of one micro batch, corrected where a hook says by how much: [N, T] weights of tokens."""
    given = {**terms, "weights": _weights(hooks, new.detach(), batch)}
    if "loss" not in hooks:
        return grpo.loss(new, batch.old, advantage, batch.mask, **given)
    taken = accepted(hooks["loss"], given)
    if given["weights"] is not None and "weights" not in taken:
        raise RunError(
            "train.hooks.loss takes no 'weights', so train.hooks.correction would be lost; add the parameter"
        )
    found = hooks["loss"](new, batch.old, advantage, batch.mask, **taken)
    return found if isinstance(found, grpo.Loss) else _as_loss(found)


def _weights(hooks: Hooks, new: Tensor, batch: Batch) -> Tensor | None:
    if "correction" not in hooks:
        return None
    found: Any = hooks["correction"](new, batch.old, batch.mask)
    if not torch.is_tensor(found) or found.shape != new.shape:
        raise RunError(f"train.hooks.correction gave {_said(found)}; give a weight a token, {_said(new)}")
    return found.detach()


def _as_loss(found: Any) -> grpo.Loss:
    if not torch.is_tensor(found) or found.dim() != 0 or not found.requires_grad:
        raise RunError(f"train.hooks.loss gave {_said(found)}; give one number that depends on `new`, as a tensor")
    nothing = torch.zeros(())
    return grpo.Loss(found, nothing, nothing)


def _said(found: Any) -> str:
    return f"a tensor of {list(found.shape)}" if torch.is_tensor(found) else f"a {type(found).__name__}"
