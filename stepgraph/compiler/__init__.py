"""The compiler: from a declared loop to a plan without the handoffs that nobody consumes."""

from stepgraph.compiler.compile import PASSES, compile
from stepgraph.compiler.plan import Plan, Variant

__all__ = ["PASSES", "Plan", "Variant", "compile"]
