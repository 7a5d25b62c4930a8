"""The phase that this package offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepgraph import phase


@phase(reads=["rollouts"], writes=["report"], when={"every": 2})
def length_audit(rollouts: Sequence[Any], ctx: Any, most: int = 1024) -> dict[str, Any]:
    """Report the longest rollout, to catch runaway generation."""
    longest = max(len(rollout.tokens) for rollout in rollouts)
    ctx.log(**{"audit/longest": longest, "audit/runaway": longest > most})
    return {"report": longest}
