"""The HTML page in a real browser."""

from __future__ import annotations

from pathlib import Path

from .conftest import Browser
from .made import grpo, hostile, measured, page, two

EVIL = "</script><b>bold</b><img src=x onerror=alert(1)>"


def box(name: str) -> str:
    return f'.box[data-name="{name}"]'


def test_the_page_asks_for_nothing_but_itself_and_logs_no_error(chromium: Browser, tmp_path: Path) -> None:
    file = page(grpo(), tmp_path)
    chromium.open(file)
    assert [url for url in chromium.requests() if not url.startswith("data:")] == [file.as_uri()]
    assert chromium.log("browser") == []


def test_pointing_at_a_pruned_phase_tells_why_and_what_would_keep_it(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(35), tmp_path))
    assert "no consumer" not in chromium.text("#card")
    chromium.hover(box("sync_weights"))
    card = chromium.text("#card")
    assert "no later phase reads engine" in card
    assert "graph.step.eval.when.last=true" in card


def test_the_keyboard_tells_the_same(chromium: Browser, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    chromium.open(page(grpo(35), tmp_path))
    chromium.find("#hide").send_keys(Keys.TAB)
    assert "generate: work, runs" in chromium.text("#card")
    chromium.js("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
    chromium.js("document.activeElement.blur()")
    assert "generate: work, runs" in chromium.text("#card")
    chromium.js("arguments[0].focus()", chromium.find(box("reload_kv")))
    assert "no later phase needs kv at device" in chromium.text("#card")


def test_what_a_phase_waits_for_and_who_waits_for_it_stand_out(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(), tmp_path))
    chromium.hover(box("score"))
    far = set(chromium.js("return [...document.querySelectorAll('.box.far')].map(n => n.dataset.name)"))
    assert far == {"offload_engine", "reload_policy"}


def test_hide_hides_what_does_not_run_and_nothing_else(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(35), tmp_path))
    assert (chromium.seen(".box"), chromium.seen(".edge[data-from]")) == (11, 11)
    chromium.find("#hide").click()
    assert (chromium.seen(".box"), chromium.seen(".box.kept"), chromium.seen(".edge[data-from]")) == (6, 6, 6)


def test_another_step_changes_the_picture(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(), tmp_path))
    assert chromium.seen(f"{box('sync_weights')}.kept") == 1
    chromium.find("#step").send_keys("35")
    assert chromium.seen(f"{box('sync_weights')}.pruned") == 1
    assert "Step 35" in chromium.text("#what")
    assert "sync_weights no consumer" in chromium.text("#gone")


def test_the_start_and_every_variant_have_a_button(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(), tmp_path))
    assert [text.split(":")[0] for text in chromium.texts("#variants button")] == [
        "Start",
        *(f"Variant {number}" for number in range(1, 5)),
    ]
    chromium.find("#variants button:first-child").click()
    assert chromium.seen(".box") == 4


def test_hostile_names_show_as_text(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(hostile(EVIL), tmp_path))
    assert chromium.log("browser") == []
    assert chromium.js("return document.querySelectorAll('b, img').length") == 0
    assert EVIL in chromium.text("h1")
    chromium.hover(box("make"))
    assert EVIL in chromium.text("#card")


def test_no_box_lies_on_another_and_no_text_leaves_its_box(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(), tmp_path))
    outside = chromium.js("""
        return [...document.querySelectorAll('.box')].filter(node => {
          const frame = node.querySelector('rect').getBoundingClientRect();
          return [...node.querySelectorAll('text')].some(text => {
            const at = text.getBoundingClientRect();
            return at.left < frame.left || at.right > frame.right || at.bottom > frame.bottom || at.top < frame.top;
          });
        }).map(node => node.dataset.name)""")
    assert outside == []


def test_a_step_of_grpo_fits_a_small_screen(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(grpo(), tmp_path))
    wide, tall = chromium.js(
        "return [document.body.scrollWidth, document.querySelector('.graph').getBoundingClientRect().bottom]"
    )
    assert wide <= 1280
    assert tall <= 800


def test_two_plans_turn_on_one_layout(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(two(), tmp_path))
    script = (
        "return [...document.querySelectorAll('.box')].map(node => [node.dataset.name, node.getAttribute('transform')])"
    )
    before = chromium.js(script)
    assert "reload_policy not in B" in chromium.text("#other")
    chromium.js(
        "[...document.querySelectorAll('#variants button')].find(n => n.textContent.startsWith('B: Variant 1')).click()"
    )
    assert chromium.js(script) == before
    assert "reload_policy runs in A" in chromium.text("#other")
    assert chromium.seen(f"{box('reload_policy')}.pruned.differs") == 1


def test_a_run_shows_its_steps_and_what_it_measured(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page(measured(tmp_path), tmp_path))
    assert chromium.seen(".grid .cell, .grid .slow") == 3 * 5 - 2
    assert chromium.seen(".grid .dash") == 2
    assert "measured peak 3 MiB" in chromium.text(".strip")
    chromium.hover(box("train"))
    assert "(median)" in chromium.text("#card")
