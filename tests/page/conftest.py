"""A real browser for the pages: Debian's Chromium, headless, and with no network of its own.

Where there is none, these tests are passed over and say what to install.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,800",
    "--force-color-profile=srgb",
)


class Browser:
    """A page in Chromium, and what a person can do with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str) -> None:
        self.driver.get("about:blank")
        self.log("performance")
        self.driver.get(page.as_uri() if isinstance(page, Path) else page)

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        return list(self.js("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector))

    def text(self, selector: str) -> str:
        return "\n".join(self.texts(selector))

    def seen(self, selector: str) -> int:
        """How many such things can be seen."""
        script = """return [...document.querySelectorAll(arguments[0])]
            .map(node => node.getBoundingClientRect()).filter(at => at.width || at.height).length"""
        return int(self.js(script, selector))

    def hover(self, selector: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).move_to_element(self.find(selector)).perform()

    def find(self, selector: str) -> Any:
        from selenium.webdriver.common.by import By

        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def log(self, kind: str) -> list[Any]:
        return list(self.driver.get_log(kind))

    def requests(self) -> list[str]:
        """The addresses asked for since the page was opened."""
        told = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all the tests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Browser(started)
    started.quit()
