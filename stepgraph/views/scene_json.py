"""A scene as JSON, for programs that draw by themselves: every box, edge and bar with its coordinates."""

from __future__ import annotations

import json
from dataclasses import asdict

from stepgraph.views.scene import Scene

SCHEMA = 1


def scene_json(scene: Scene) -> str:
    """All the pictures of a scene, with the layouts they share."""
    return json.dumps({"schema": SCHEMA, **asdict(scene)}, indent=1) + "\n"
