"""How long drawing takes, against Graphviz laying out the same graph, in one run.

``python benchmarks/show.py`` prints process times (medians, with the programs it starts) and exits with 1 where a
bound is missed. Without Graphviz's ``dot`` the ratio is left out.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import stepgraph
from stepgraph import spec
from stepgraph.compiler import Plan
from stepgraph.views.dot import dot
from stepgraph.views.html import html
from stepgraph.views.scene_plan import scene_of

PHASES = 200


def many(count: int) -> Plan:
    """A step of many phases, each of which reads what a few of those before it write; one in seven has a gate."""
    pick = random.Random(7)
    step: dict[str, Any] = {}
    for i in range(count):
        earlier = [pick.randrange(max(0, i - 12), i) for _ in range(2)] if i else []
        gate = {"when": {"every": 1 + i % 3}} if i % 7 == 6 else {}
        reads = sorted({f"v{one}" for one in earlier if one % 7 != 6})
        step[f"p{i}"] = {"use": f"p{i}.run", "reads": reads, "writes": [f"v{i}"], **gate}
    return stepgraph.compile(spec.parse({"name": "many", "step": step}, None, {"steps": 3}))


def measured(work: Callable[[], object], times: int = 5) -> float:
    """The median process time of some runs, with that of the programs they start, in seconds."""
    found = []
    for _ in range(times):
        begin = spent()
        work()
        found.append(spent() - begin)
    return statistics.median(found)


def spent() -> float:
    return sum(os.times()[:4])


def main() -> int:
    """Measure, print, and judge."""
    page = measured(lambda: html(scene_of(many(PHASES))))
    print(f"the page of {PHASES} phases, compiled and drawn {page * 1e3:8.0f} ms  {'ok' if page < 1 else 'MISSED'}")
    if shutil.which("dot"):
        text = dot(scene_of(many(PHASES)))
        other = measured(
            lambda: subprocess.run(["dot", "-Tsvg"], input=text, text=True, capture_output=True, check=True)
        )
        print(f"  against dot -Tsvg of it         {other * 1e3:14.0f} ms  {page / other:.1f} times")
    return 0 if page < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
