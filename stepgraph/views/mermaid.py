"""A scene as a Mermaid flowchart, which code hosts draw inside a page."""

from __future__ import annotations

from collections.abc import Iterator

from stepgraph.views.scene import Box, Scene
from stepgraph.views.scene_text import flat

CLASSES = """\
  classDef work fill:#ddf4ff,stroke:#218bff,color:#1b1f24
  classDef handoff fill:#ffffff,stroke:#4d5a67,color:#1b1f24
  classDef ends fill:#ffffff,stroke:#818b98,color:#1b1f24,stroke-dasharray: 5 4
  classDef pruned fill:none,stroke:#818b98,color:#818b98,stroke-dasharray: 5 4"""
SAFE = frozenset(" .,:=()/_-")
"""What may stand in a quoted label beside letters and digits; the rest is written as numbers."""


def mermaid(scene: Scene) -> str:
    """Draw the picture that the scene begins with. Ids are ``n0`` and on, so that no name is a word of Mermaid's."""
    return "\n".join(
        [f"%% {flat(scene.title)}; {flat(scene.picture.title)}", "flowchart TD", *lines(scene), CLASSES, ""]
    )


def lines(scene: Scene) -> Iterator[str]:
    ids = {box.name: f"n{i}" for i, box in enumerate(scene.picture.boxes)}
    kinds = {name: fixed.kind for name, fixed in scene.sheet.named().items()}
    for box in scene.picture.boxes:
        left, right = ("(", ")") if kinds[box.name] == "work" else ("([", "])")
        yield f'  {ids[box.name]}{left}"{label(box)}"{right}:::{look(box, kinds[box.name])}'
    for line in scene.picture.lines:
        arrow = "-->" if line.state == "kept" else "-.->"
        yield f"  {ids[line.source]} {arrow} {ids[line.target]}"


def look(box: Box, kind: str) -> str:
    """The class of a box: what a step does not run is grey, and so is what the last step does not."""
    if not box.runs:
        return "pruned"
    return "ends" if box.ends else kind


def label(box: Box) -> str:
    return f"{coded(box.name)}<br/>{coded(box.word)}" if box.word else coded(box.name)


def coded(words: str) -> str:
    """Text in which Mermaid finds neither markup nor an end of the label.

    >>> coded('</b> "x"')
    '#60;/b#62; #34;x#34;'
    """
    return "".join(c if (c.isascii() and c.isalnum()) or c in SAFE else f"#{ord(c)};" for c in flat(words))
