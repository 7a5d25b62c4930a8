"""The command line: one dispatcher in front of one Hydra application.

The dispatcher answers help, names and typos in commands by itself, so that those cost no import of Hydra.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from stepgraph.cli import help as help_text
from stepgraph.cli.arguments import Arguments, read
from stepgraph.errors import StepgraphError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        code = _completion(words) if words[:1] in (["--completion"], ["--complete"]) else _dispatch(read(words))
        sys.stdout.flush()
    except StepgraphError as error:
        return report(error)
    except BrokenPipeError:
        return reader_left()
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def report(error: StepgraphError) -> int:
    """Print an error as the one line it is, and give its exit code."""
    print(f"stepgraph: {error}", file=sys.stderr)
    return error.exit_code


def reader_left() -> int:
    """Whoever read our output has enough (``plan | head``): no error. Point stdout where the exit cannot trip."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _completion(words: Sequence[str]) -> int:
    """What a shell asks: the script that it loads, or what a line may become."""
    from stepgraph.cli.completion import SCRIPT, complete

    print(SCRIPT if words[0] == "--completion" else "\n".join(complete(" ".join(words[1:]))), end="")
    return 0


def _dispatch(arguments: Arguments) -> int:
    if arguments.help or arguments.version:
        print(help_text.version() if arguments.version else help_text.text(arguments.command))
        return 0
    from stepgraph.cli.app import launch

    return launch(arguments)
