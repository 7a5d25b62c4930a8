"""``python -m stepgraph`` is the ``stepgraph`` command."""

import sys

from stepgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
