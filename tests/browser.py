"""A real browser without a window: Chromium, by the chromedriver of the same version."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# As root, as in a container, Chromium has no sandbox of its own.
_OPTIONS = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A selenium driver. Skips the test where there is no browser."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium and chromedriver (apt-get install chromium chromium-driver)")
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = program
    for option in (*_OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    try:
        found.set_page_load_timeout(60)
        yield found
    finally:
        found.quit()


def text_of(driver: Any, name: str) -> str:
    """Of the element with that id, also where it can't be seen now."""
    text: str = driver.find_element("id", name).get_property("textContent")
    return text


def rows_of(driver: Any, table: str) -> list[list[str]]:
    """The cells of a table's body."""
    found: list[list[str]] = driver.execute_script(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        table,
    )
    return found


def press(driver: Any, selector: str) -> None:
    """By the keyboard, as who has no pointer."""
    driver.find_element("css selector", selector).send_keys("\ue007")  # the enter key


def wait_for(what: str, true: Callable[[], Any], driver: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60, 0.1).until(lambda _: true(), what)


def barriers(driver: Any) -> list[str]:
    """What axe-core finds on the page as it is now: what keeps somebody from using it. Skips the
    test where it is not installed."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("needs axe-core-python (pip install --group dev)")
    driver.execute_script(Path(spec.origin).with_name("axe.min.js").read_text())
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']})"
        ".then(said => done(said.violations), error => done([{id: String(error), nodes: []}]))"
    )
    return [
        f"{each['id']}: {node['html'][:120]} {node.get('failureSummary')}"
        for each in found
        for node in each["nodes"] or [{"html": ""}]
    ]


def complaints(driver: Any) -> list[str]:
    """Of the console; that a daemon was away for a moment, or refused something, is none."""
    entries = [entry["message"] for entry in driver.get_log("browser")]
    return [text for text in entries if "Failed to load resource" not in text]
