"""docs/page-*.png: each view of the web page, as a browser shows it. ``make screenshots`` writes
them, in half a minute: the page's own process asks a stand-in for a daemon, whose figures are made
up, so that a picture changes only where the page does."""

from __future__ import annotations

import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from elasticd.shell.control.webtoken import make_token, token_of
from tests.browser import browser, press, rows_of, text_of, wait_for
from tests.integration.test_webpage import page_process
from tests.standin import answers
from tests.unit.client.fake_daemon import FakeDaemon

DOCS = Path(__file__).parents[1] / "docs"
LEAST_BYTES, MOST_BYTES = 5_000, 150_000
VIEWS = ("state", "curves", "recovery", "nodes", "checkpoints", "logs")
_PLACE = """
const {x, y, width, height} = document.getElementById(arguments[0]).getBoundingClientRect();
return {x: x + scrollX - 16, y: y + scrollY, width: width + 32, height};
"""
_WIDE, _NARROW = (1000, 900), (390, 844)
_LOOKS = 12
"""Seconds of which the page shows the speed."""


def main() -> None:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with FakeDaemon(home, answers(time.time())):
            make_token(home)
            with page_process(home) as port, browser() as driver:
                _picture(driver, f"http://127.0.0.1:{port}/#token={token_of(home)}")


def _picture(driver: Any, url: str) -> None:
    driver.get(url)
    wait_for("the recoveries", lambda: len(rows_of(driver, "recoveries")) > 1, driver)
    wait_for("a checkpoint", lambda: rows_of(driver, "stored"), driver)
    press(driver, "#log-lines summary")
    wait_for("the lines", lambda: "step" in text_of(driver, "lines"), driver)
    looks = time.monotonic() + _LOOKS
    wait_for("some speeds", lambda: time.monotonic() > looks, driver)
    for view in VIEWS:
        with _shown(driver, _WIDE):
            _write(driver, view, f"page-{view}")
    with _shown(driver, _WIDE, dark=True):
        _write(driver, "curves", "page-dark")
    with _shown(driver, _NARROW):
        _write(driver, "state", "page-phone")


@contextmanager
def _shown(driver: Any, size: tuple[int, int], *, dark: bool = False) -> Iterator[None]:
    """In a window of that width and height, in pixels."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    drawn = f"return document.getElementById('losses').clientWidth < {width}"
    wait_for("it is drawn anew", lambda: driver.execute_script(drawn), driver)
    yield


def _write(driver: Any, view: str, name: str) -> None:
    place = driver.execute_script(_PLACE, view)
    # An element's own picture would scroll there, while the page is drawn anew each second.
    wanted = {"clip": {**place, "scale": 1}, "captureBeyondViewport": True}
    data = b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", wanted)["data"])
    path = DOCS / f"{name}.png"
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes", flush=True)
    assert LEAST_BYTES < len(data) < MOST_BYTES, f"{name} is empty, or too large for a repository"


if __name__ == "__main__":
    main()
