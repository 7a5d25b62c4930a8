"""Completion for bash and zsh: commands, groups and their options, settings, and the phases of the graph at hand.

``eval "$(stepgraph --completion)"`` in a start-up file of the shell. Each press of the key asks ``--complete`` with
the line so far; the answer needs neither Hydra nor a framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepgraph.api import read_graph
from stepgraph.cli.arguments import GROUPS
from stepgraph.cli.commands import COMMANDS
from stepgraph.cli.help import options
from stepgraph.errors import StepgraphError
from stepgraph.spec import GRAPH_KEYS, PHASE_KEYS, PLACEMENT_KEYS, RUN_KEYS, WHEN_KEYS

SCRIPT = """\
_stepgraph() {
    local IFS=$'\\n'
    COMPREPLY=($(stepgraph --complete "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
if [ -n "${ZSH_VERSION:-}" ]; then autoload -U +X compinit bashcompinit && compinit -u && bashcompinit; fi
complete -o nospace -F _stepgraph stepgraph
"""
DEFAULT = "grpo"
NAMED = ("explain",)
"""Commands that take a phase's name."""


def complete(line: str) -> list[str]:
    """What the last word of a line may become. The shell breaks words at ``=``: only what follows one is given.

    >>> complete("stepgraph expl")
    ['explain ']
    >>> complete("stepgraph plan placement=sp")
    ['split ']
    >>> complete("stepgraph explain sync")
    ['sync_weights ']
    >>> complete("stepgraph plan graph.step.generate.rea")
    ['graph.step.generate.reads=']
    """
    words = line.split()[1:]
    last = "" if not words or line[-1:].isspace() else words.pop()
    begun = last.rpartition("=")[2]
    return [word[len(last) - len(begun) :] for word in candidates(words, last) if word.startswith(last)]


def candidates(words: Sequence[str], last: str) -> Iterator[str]:
    """Every word that may stand after ``words``, as far as ``last`` says what kind it is."""
    if not words:
        yield from (f"{command} " for command in COMMANDS)
        return
    if "=" in last:
        group = last.partition("=")[0].lstrip("+")
        yield from (f"{last.partition('=')[0]}={option} " for option in options(group))
        return
    phases = phases_of(words)
    if words[0] in NAMED:
        yield from (f"{phase} " for phase in phases)
    yield from settings(phases, last)


def settings(phases: Sequence[str], last: str) -> Iterator[str]:
    """The settings; what lies inside a phase only where the phase is written out."""
    yield from (f"{group}=" for group in (*GROUPS, "experiment"))
    yield from (f"run.{key}=" for key in (*RUN_KEYS, "seed", "dir"))
    yield from (f"placement.{key}." for key in PLACEMENT_KEYS if key not in ("name", "doc"))
    yield from ("format=", "passes=", "step=", "resume=auto ", "max_staleness=", "strict=true ")
    if not last.startswith(("graph.", "~graph.")):
        yield "graph."
        return
    yield from (f"graph.{key}." for key in GRAPH_KEYS if key not in ("name", "doc"))
    yield from (f"~graph.step.{phase} " for phase in phases)
    for phase in phases:
        path = f"graph.step.{phase}."
        yield path
        if last.startswith(path):
            yield from (f"{path}{key}." if key == "when" else f"{path}{key}=" for key in PHASE_KEYS)
            yield from (f"{path}when.{key}=" for key in WHEN_KEYS if last.startswith(f"{path}when."))


def phases_of(words: Sequence[str]) -> list[str]:
    """The phases of the graph that the line names; none where there is no such graph."""
    graph = next((word.partition("=")[2] for word in words if word.startswith("graph=")), DEFAULT)
    try:
        return sorted(read_graph(graph)[0].get("step") or {})
    except StepgraphError:
        return []
