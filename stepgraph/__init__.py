"""stepgraph compiles the step loop of RL post-training: of the declared handoffs, only those that are consumed run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepgraph.api import load as load
    from stepgraph.compiler.compile import compile as compile
    from stepgraph.compiler.plan import Plan as Plan
    from stepgraph.ir.graph import Graph as Graph
    from stepgraph.phases import phase as phase
    from stepgraph.runtime.run import run as run

__version__ = "0.1.0"

_EXPORTS = {
    "Graph": "stepgraph.ir.graph",
    "Plan": "stepgraph.compiler.plan",
    "compile": "stepgraph.compiler.compile",
    "load": "stepgraph.api",
    "phase": "stepgraph.phases",
    "run": "stepgraph.runtime.run",
}
__all__ = ["Graph", "Plan", "__version__", "compile", "load", "phase", "run"]


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first asked for: `stepgraph --help` then imports no part it does not use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'stepgraph' has no attribute '{name}'")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
