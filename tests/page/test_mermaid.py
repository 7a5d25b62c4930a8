"""The real Mermaid reads every flowchart that is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepgraph.views.mermaid import mermaid
from stepgraph.views.scene import Scene

from .conftest import Browser
from .made import grpo, hostile

MERMAID = (
    Path(os.environ.get("MERMAID", Path(__file__).parents[2] / "node_modules" / "mermaid")) / "dist/mermaid.min.js"
)
SCENES = {"a_step": grpo(), "the_last_step": grpo(35), "hostile": hostile('</b> "x"; %% end `y` #quot; [z]\\')}


@pytest.fixture(scope="module")
def reader(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A page with Mermaid in it."""
    if not MERMAID.is_file():
        pytest.skip("no Mermaid: npm install --no-save mermaid, or MERMAID=FOLDER")
    file = tmp_path_factory.mktemp("mermaid") / "page.html"
    file.write_text(
        f'<meta charset="utf-8"><div id="here"></div><script src="{MERMAID.as_uri()}"></script>', encoding="utf-8"
    )
    chromium.open(file)
    return chromium


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_mermaid_draws_every_phase_and_edge(reader: Browser, scene: Scene) -> None:
    drawn = reader.driver.execute_async_script(
        """
        const [text, done] = arguments;
        mermaid.initialize({startOnLoad: false});
        mermaid.render("drawn", text).then(({svg}) => {
          const page = new DOMParser().parseFromString(svg, "text/html");
          done({nodes: [...page.querySelectorAll(".node")].map(n => n.textContent.trim()),
                edges: page.querySelectorAll(".edgePaths path").length});
        }, error => done({error: String(error)}));
        """,
        mermaid(scene),
    )
    assert len(drawn["nodes"]) == len(scene.picture.boxes), drawn
    assert drawn["edges"] == len(scene.picture.lines)
    for box in scene.picture.boxes:
        assert any(node.startswith(box.name) for node in drawn["nodes"])
        assert any(node.endswith(box.word) for node in drawn["nodes"])
