"""Help, answered without importing Hydra: it is what people ask first and most often."""

from __future__ import annotations

from stepgraph import __version__
from stepgraph.cli.arguments import GROUPS
from stepgraph.cli.commands import COMMANDS, Command
from stepgraph.paths import folders

FLAGS = """\
Flags (Hydra's): --cfg job prints the configuration, --multirun runs each combination of key=a,b,
                 --config-dir FOLDER adds a folder of configuration, --info searchpath lists them."""

CODES = """\
Exit codes: 0 done, 1 a run failed, 2 wrong input, 3 a graph or plan was refused,
            4 diff --exit-code found a difference, 130 interrupted."""


def version() -> str:
    """The program's name and version."""
    return f"stepgraph {__version__}"


def text(command: str = "") -> str:
    """Help for a command, or for the program."""
    return _command(command, COMMANDS[command]) if command else _program()


def _program() -> str:
    rows = [f"  {name:<8} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "stepgraph COMMAND [NAME...] [flags] [key=value ...]",
            "",
            *rows,
            "",
            _choices(),
            "Settings: run.steps=100, graph.step.eval.when.last=true, ~graph.step.eval, placement.at.engine=device.",
            "stepgraph COMMAND --help says more of one command.",
            "",
            FLAGS,
            CODES,
        ]
    )


def _command(name: str, command: Command) -> str:
    own = [f"[{' '.join(filter(None, option))}]" for option in command.options]
    sides = "-- A -- B" if command.sides else ""
    usage = " ".join(filter(None, [f"stepgraph {name}", command.names, *own, "[flags] [key=value ...]", sides]))
    details = [command.details, ""] if command.details else []
    return "\n".join([usage, "", f"  {command.summary}", "", *details, _choices(), "", FLAGS, CODES])


def _choices() -> str:
    found = {group: options(group) for group in (*GROUPS, "experiment")}
    rows = [f"  {group:<11}{', '.join(names)}" for group, names in found.items() if names]
    return "\n".join(["Choices, as in graph=grpo:", *rows])


def options(group: str) -> list[str]:
    """What there is of a group, in every folder that is searched."""
    places = [folder / group for folder in folders("conf")]
    places += folders("graphs") if group == "graph" else []
    return sorted({path.stem for place in places for path in place.glob("*.yaml")})
