"""Whatever fires at run time, observers see of the pruned plan what they would see of the declared list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from stepgraph.errors import GraphError

from . import against
from .declared import Setup, declared, due, world
from .loops import loops
from .machine import Violation, run
from .test_meaning import agree
from .wild import wild


@dataclass(frozen=True)
class Chance:
    """A graph in which some phases wait for a file, and the same one with the steps in which the files came."""

    asked: Setup
    came: Setup

    def fired(self, call: dict[str, Any]) -> bool:
        return call["step"] is None or due(self.came, call["phase"], call["step"])


@st.composite
def chances(draw: st.DrawFn) -> Chance:
    setup = draw(st.one_of(loops(), wild()))
    names = draw(st.lists(st.sampled_from(sorted(setup.graph["step"])), min_size=1, max_size=3, unique=True))
    steps = {name: draw(st.sets(st.integers(setup.first, max(setup.first, setup.steps - 1)))) for name in names}
    return Chance(
        gated(setup, {name: {"file": "go"} for name in names}),
        gated(setup, {name: {"steps": sorted(found)} for name, found in steps.items()}),
    )


def gated(setup: Setup, gates: dict[str, dict[str, Any]]) -> Setup:
    """The graph with other gates; nothing of ``start`` or ``end`` has one."""
    step = {name: {**phase, "when": gates.get(name, phase.get("when"))} for name, phase in setup.graph["step"].items()}
    return Setup({**setup.graph, "step": step}, setup.placement, setup.run)


@given(chances())
def test_observers_see_the_same_whatever_fires(chance: Chance) -> None:
    try:
        theirs = run(world(chance.came), declared(chance.came))
        compiled = against.plan(chance.asked)
    except (Violation, GraphError):
        assume(False)
        raise
    calls = against.known([one for one in compiled.calls() if chance.fired(one)], declared(chance.came))
    agree(chance.came, run(world(chance.came), calls), theirs)
