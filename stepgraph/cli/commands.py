"""The commands, one entry each. What a command runs is imported only when it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepgraph.cli.job import Job


@dataclass(frozen=True, slots=True)
class Command:
    """What help says of a command, and its function as ``module:name``: it takes the job and returns an exit code.

    ``options`` are flags of its own, each with the name of its value, or without one where it is a switch. ``sides``:
    it takes sets of words that each stand after a ``--``.
    """

    summary: str
    target: str
    names: str = ""
    details: str = ""
    leaves_files: bool = False
    options: tuple[tuple[str, str], ...] = ()
    sides: bool = False

    def load(self) -> Callable[[Job], int]:
        """Import the function."""
        module, _, name = self.target.partition(":")
        function: Callable[[Job], int] = getattr(import_module(module), name)
        return function


COMMANDS = {
    "run": Command(
        "run it; resume=auto goes on from the run directory",
        "stepgraph.cli.run:run",
        leaves_files=True,
        details="The run directory is runs/GRAPH-DATE-TIME unless run.dir=FOLDER says otherwise.",
    ),
    "plan": Command(
        "what will run in which steps, what was pruned and why; starts nothing",
        "stepgraph.cli.plan:plan",
        details="format=text|json|calls   passes=[dead,settled] (passes=[]: the list as declared)",
    ),
    "show": Command(
        "draws it: -o FILE.html, .svg, .mmd, .dot or .json; starts nothing",
        "stepgraph.cli.show:show",
        names="[RUN_DIR | plugins]",
        details="step=K shows the step K. With a run directory: what was planned there, and what was measured.\n"
        "show -o FILE.html [COMMON] -- A -- B: two plans in one layout\n"
        "show plugins: what other packages offer, with versions and import errors",
        options=(("-o", "FILE"),),
        sides=True,
    ),
    "explain": Command(
        "why a phase runs or not, what would change that; or why one waits for another",
        "stepgraph.cli.explain:explain",
        names="NAME [OTHER]",
        options=(("--analyze", "RUN_DIR"),),
        details="step=K   explain A B: why B waits for A   --analyze RUN_DIR: beside what was measured",
    ),
    "diff": Command(
        "what two plans do differently: two sets of settings, run directories or steps",
        "stepgraph.cli.diff:diff",
        names="[RUN_DIR RUN_DIR]",
        options=(("--exit-code", ""),),
        sides=True,
        details="diff graph=grpo -- placement=colocated -- placement=split   diff -- step=8 -- step=9\n"
        "diff -- RUN_DIR -- RUN_DIR   --exit-code: 4 where something differs",
    ),
    "new": Command(
        "writes a phase of your own: its function, its YAML, its test",
        "stepgraph.cli.new:new",
        names="phase NAME",
        leaves_files=True,
    ),
    "check": Command(
        "check graph, placement, run, data and components; starts nothing",
        "stepgraph.cli.check:check",
        details="strict=true turns warnings into errors.",
    ),
}
