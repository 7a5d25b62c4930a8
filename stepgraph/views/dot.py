"""A scene as DOT, for those who have Graphviz and a style of their own."""

from __future__ import annotations

from collections.abc import Iterator

from stepgraph.views.scene import Box, Scene
from stepgraph.views.scene_text import flat

HEAD = """\
  rankdir=TB
  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=11]
  edge [color="#6e7781", arrowsize=0.7]"""
LOOKS = {
    "work": 'fillcolor="#ddf4ff", color="#218bff"',
    "handoff": 'fillcolor="#ffffff", color="#4d5a67"',
    "ends": 'style="rounded,dashed", color="#818b98"',
    "gone": 'style="rounded,dashed", color="#818b98", fontcolor="#818b98"',
}


def dot(scene: Scene) -> str:
    """Draw the picture that the scene begins with."""
    title = quoted(f"{scene.title}; {scene.picture.title}")
    return "\n".join([f"digraph {quoted(scene.graph)} {{", f"  label={title}", HEAD, *lines(scene), "}", ""])


def lines(scene: Scene) -> Iterator[str]:
    kinds = {name: fixed.kind for name, fixed in scene.sheet.named().items()}
    for box in scene.picture.boxes:
        look = LOOKS["gone" if not box.runs else "ends" if box.ends else kinds[box.name]]
        yield f"  {quoted(box.name)} [label={quoted(box.name, box.word)}, tooltip={quoted(told(box))}, {look}]"
    for line in scene.picture.lines:
        dashed = "" if line.state == "kept" else ' [style=dashed, color="#818b98"]'
        yield f"  {quoted(line.source)} -> {quoted(line.target)}{dashed}"


def told(box: Box) -> str:
    return box.reason or f"{box.code}" + (f"; not in the last step: {box.ends}" if box.ends else "")


def quoted(*parts: str) -> str:
    r"""Lines of text as one quoted string.

    >>> quoted('a "b"', "c")
    '"a \\"b\\"\\nc"'
    """
    return (
        '"'
        + "\\n".join(
            flat(part).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for part in parts if part
        )
        + '"'
    )
