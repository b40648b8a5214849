"""docs/page-*.png: each view of the web page, as a browser shows it. ``make screenshots`` trains a
job on three daemons, breaks it twice and writes them."""

from __future__ import annotations

import json
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import elasticd.examples
from elasticd.cli.submit import prepare
from tests.browser import browser, rows_of, text_of, wait_for
from tests.integration.cluster import Cluster

DOCS = Path(__file__).parents[1] / "docs"
LEAST_BYTES, MOST_BYTES = 5_000, 150_000
VIEWS = ("state", "curves", "recovery", "nodes", "checkpoints", "logs")
_JOB = Path(elasticd.examples.__file__).parent / "byte_lm" / "job.toml"
_SETTINGS = ("train.steps=2000", "batch.global=16", 'recovery.spare="none"')
_PLACE = """
const {x, y, width, height} = document.getElementById(arguments[0]).getBoundingClientRect();
return {x: x + scrollX - 16, y: y + scrollY, width: width + 32, height};
"""
_WIDE, _NARROW = (1000, 900), (390, 844)


def main() -> None:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), 3) as cluster:
        job = cluster.client.submit(*prepare(_JOB, _SETTINGS))
        url = json.loads(cluster.command("dashboard", "--json"))["url"]
        with browser() as driver:
            driver.get(url)
            _break(cluster, job)
            wait_for("the recoveries", lambda: len(rows_of(driver, "recoveries")) > 1, driver)
            cluster.wait_step(job, cluster.status(job)["step"] + 60)
            wait_for("a checkpoint", lambda: rows_of(driver, "stored"), driver)
            _open_logs(driver)
            for view in VIEWS:
                with _shown(driver, _WIDE):
                    _write(driver, view, f"page-{view}")
            with _shown(driver, _WIDE, dark=True):
                _write(driver, "curves", "page-dark")
            with _shown(driver, _NARROW):
                _write(driver, "state", "page-phone")


def _break(cluster: Cluster, job: str) -> None:
    for times, kill in enumerate((cluster.kill_trainer, cluster.kill_reducer), start=1):
        cluster.wait_whole(job, 40 * times)
        kill(job, 1)

        def recovered(times: int = times) -> bool | None:
            return len(cluster.kinds(job, "recovery_finished")) >= times or None

        cluster.wait_for("a recovery", recovered)


def _open_logs(driver: Any) -> None:
    driver.execute_script("document.getElementById('log-lines').open = true")
    wait_for("the lines", lambda: "step" in text_of(driver, "lines"), driver)


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
