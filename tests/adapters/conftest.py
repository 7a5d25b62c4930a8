"""Lets these tests use the abstract machine of ``tests/meaning``, which is a package of its own for pytest."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
