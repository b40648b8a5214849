"""The web page in a real browser: on a cluster that breaks and heals, and with hostile text."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.requests.jobs import CancelJob
from elasticd.shell.control.webtoken import make_token, token_of
from elasticd.shell.storage import papers
from elasticd.types import JobId
from tests.browser import barriers, browser, complaints, press, rows_of, text_of, wait_for
from tests.integration.cluster import Cluster
from tests.members import member
from tests.unit.cli.conftest import STATUS
from tests.unit.cli.test_report_pages import COURSE
from tests.unit.client.fake_daemon import FakeDaemon

pytestmark = pytest.mark.process

LIVE = "live, from node-0"
EVIL = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


def got(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_a_cluster_that_breaks_and_heals(cluster: Cluster) -> None:
    url = json.loads(cluster.command("dashboard", "--json"))["url"]
    address, _, token = url.partition("/#token=")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        got(f"{address}/metrics", "x")
    job = cluster.submit("low.py", train__steps=100_000, job__args=["--pace-seconds", "0.1"])
    cluster.wait_whole(job, 2)
    with browser() as driver:
        driver.get(url)
        wait_for("the job", lambda: f"{job}" in text_of(driver, "figures"), driver)
        assert token not in driver.current_url
        cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
        cluster.wait_for("a recovery", lambda: cluster.kinds(job, "recovery_finished"))
        wait_for("the fault", lambda: rows_of(driver, "faults"), driver)
        wait_for("the recovery", lambda: rows_of(driver, "recoveries"), driver)
        # On a busy machine the first may be that a node is slow.
        fault = cluster.kinds(job, "fault_detected")[0]
        recovery = cluster.kinds(job, "recovery_finished")[0]
        shown = rows_of(driver, "faults")[-1]
        assert shown[1:4] == [fault["fault"], str(fault["rank"]), fault["node"]]
        assert shown[4] == f"{fault['seconds_to_detect']:.2f}"
        assert rows_of(driver, "recoveries")[-1][1:3] == [
            recovery["rung"], f"{recovery['seconds']:.2f}",
        ]  # fmt: skip
        metrics = got(f"{address}/metrics", token)
        if len(cluster.kinds(job, "recovery_finished")) == 1:
            line = f'elasticd_job_recovery_seconds_sum{{job="{job}",rung="{recovery["rung"]}"}}'
            found = next(each for each in metrics.splitlines() if each.startswith(line))
            assert float(found.split()[-1]) == pytest.approx(recovery["seconds"])

        before = driver.execute_script("return performance.timeOrigin")
        cluster.restart_daemon("node-0")
        step = cluster.wait_whole(job, 0)["step"] + 3
        wait_for("the page is live again", lambda: _step(driver) >= step, driver)
        wait_for("live", lambda: text_of(driver, "connection") == LIVE, driver)
        assert driver.execute_script("return performance.timeOrigin") == before, "no reload"

        press(driver, "[data-do=pause]")
        cluster.wait_for("a pause", lambda: cluster.status(job)["state"] == "paused" or None)
        wait_for("it is shown", lambda: "paused" in text_of(driver, "figures"), driver)
        assert not complaints(driver)
    cluster.client.change(CancelJob(JobId(job)))


def _step(driver: Any) -> int:
    title: str = driver.title  # "running 24/100000 JOB"
    return int(title.split()[1].partition("/")[0]) if "/" in title else 0


# --- hostile text, on a daemon that runs nothing --------------------------------------------------

NAME = "<b>x</b>"
"""Of a value of run.log."""
HOSTILE: dict[str, Any] = {
    **STATUS,
    "cluster": EVIL,
    "loop": {"node": EVIL},
    "nodes": [{**STATUS["nodes"][0], "id": EVIL, "chip": EVIL, "links": [{"state": "up"}]}],
    "jobs": [
        {
            **STATUS["jobs"][0],
            "reason": EVIL + "\nand more" * 60,
            "values": {NAME: {"step": 1, "value": 0.5}, "loss": {"step": 1, "value": 0.25}},
            "ranks": [
                {"rank": 0, "node": EVIL, "step": 1, "grains": 1},
                {"rank": EVIL, "node": "node-1", "step": EVIL, "grains": 1},
            ],
        }
    ],
}
STORED = {"step": EVIL, "bytes": 2048, "replicas": EVIL, "holders": [EVIL], "created": 5.0}
ANSWERS = {
    "status": HOSTILE,
    "events": [*({**e, "reason": EVIL, "evidence": [EVIL], "node": EVIL, "fault": e.get("fault")
                  and EVIL, "rung": e.get("rung") and EVIL} for e in COURSE), {"end": True}],
    "checkpoints": {"checkpoints": [STORED], "silent": {EVIL: EVIL}},
    "logs": [{"rank": 0, "node": EVIL, "text": EVIL}, {"end": True}],
    "drain": {"error": EVIL},
}  # fmt: skip


@contextlib.contextmanager
def page_process(home: Path, *more: str) -> Iterator[int]:
    """The page's process by itself; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd, port = listening.fileno(), listening.getsockname()[1]
        command: Sequence[str] = [sys.executable, "-P", "-m", "elasticd.dashboard"]
        process = subprocess.Popen(
            [*command, "--home", str(home), "--fd", str(fd), *more],
            stdin=subprocess.PIPE,
            pass_fds=(fd,),
        )
        assert process.stdin is not None
        try:
            yield port
        finally:
            process.stdin.close()  # as the end of its daemon does
            assert process.wait(30) == 0


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[str]:
    """The page of a daemon all of whose answers are hostile."""
    home = tmp_path / "home"
    with FakeDaemon(home, ANSWERS):
        make_token(home)
        with page_process(home) as port:
            yield f"http://127.0.0.1:{port}/#token={token_of(home)}"


def test_no_text_becomes_markup(hostile: str) -> None:
    from selenium.webdriver import Keys

    with browser() as driver:
        driver.get(hostile)
        wait_for("the faults", lambda: rows_of(driver, "faults"), driver)
        wait_for("the checkpoints", lambda: rows_of(driver, "stored"), driver)
        press(driver, "#log-lines summary")
        wait_for("the logs", lambda: EVIL in text_of(driver, "lines"), driver)
        press(driver, "#node-table button")
        press(driver, "#sure-yes")
        wait_for("the refusal", lambda: EVIL in text_of(driver, "said"), driver)
        for place in ("cluster", "reason", "checkpoints-why", "events", "said"):
            assert EVIL in text_of(driver, place), place
        wait_for("the value", lambda: NAME in text_of(driver, "curve"), driver)
        choice = driver.find_element("id", "curve")
        assert choice.text.split("\n") == ["loss", NAME, "loss, of run.log"]
        choice.send_keys(Keys.ARROW_DOWN)
        label = driver.find_element("id", "losses").get_attribute("aria-label")
        assert label == f"{NAME} 0.5 at step 1, no curve yet"
        tags = driver.execute_script("return [document.images.length, document.scripts.length]")
        assert tags == [0, 1] and "broken" not in driver.title
        assert not complaints(driver)


def test_it_can_be_used_by_everyone(hostile: str) -> None:
    with browser() as driver:
        driver.get(hostile)
        wait_for("the faults", lambda: rows_of(driver, "faults"), driver)
        # By the keyboard alone: each thing that does something is reached, and seen to be.
        driver.execute_script("document.activeElement.blur()")
        wanted = driver.execute_script(
            "return [...document.querySelectorAll('a, button:enabled, select, summary')]"
            ".filter(each => each.checkVisibility()).length"
        )
        reached = driver.execute_script(REACHED)
        assert reached == wanted
        assert views_by_tab(driver) == VIEWS
        # What selenium scrolls itself is not to be under way still when the page begins to scroll.
        still = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", still)
        for view in VIEWS:
            press(driver, f"nav a[href='#{view}']")
            wait_for(view, partial(driver.execute_script, IN_SIGHT, view), driver)
        # With a name for who listens.
        assert driver.execute_script(NAMELESS) == []
        # On a phone, in the dark: nothing is wider than the screen.
        plain = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        color = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert color != plain
        wide = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide == [360, 360]


def test_axe_finds_no_barrier(hostile: str) -> None:
    with browser() as driver:
        driver.get(hostile.partition("#")[0])
        wait_for("the form", lambda: "needs a token" in text_of(driver, "connection"), driver)
        assert not barriers(driver)
        driver.get(hostile)
        wait_for("the faults", lambda: rows_of(driver, "faults"), driver)
        wait_for("the checkpoints", lambda: rows_of(driver, "stored"), driver)
        press(driver, "#log-lines summary")
        wait_for("the logs", lambda: EVIL in text_of(driver, "lines"), driver)
        for scheme in ("light", "dark"):
            wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
            assert not barriers(driver), scheme
        press(driver, "#node-table button")
        assert not barriers(driver), "with the question whether to drain"
        press(driver, "#sure-no")
        phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        assert not barriers(driver), "on a phone"


def test_a_job_that_is_forgotten_and_a_daemon_that_hangs(tmp_path: Path) -> None:
    home, hangs = tmp_path / "home", threading.Event()
    other = {**STATUS["jobs"][0], "id": "other-1-k3f9", "state": "parked"}
    jobs = [STATUS["jobs"][0], other]
    goes_on = threading.Event()

    def status(request: dict[str, Any]) -> list[dict[str, Any]]:
        if hangs.is_set():
            goes_on.wait(60)
        if request.get("job"):
            return [{"error": f"no job {request['job']}", "code": 1}]
        return [{**STATUS, "loop": {"node": "node-0"}, "jobs": list(jobs)}]

    with FakeDaemon(home, {**ANSWERS, "status": status}), contextlib.ExitStack() as last:
        last.callback(goes_on.set)
        make_token(home)
        with page_process(home) as port, browser() as driver:
            driver.get(f"http://127.0.0.1:{port}/#token={token_of(home)}")
            wait_for("the jobs", lambda: "other" in text_of(driver, "job"), driver)
            driver.find_element("css selector", "#job option[value=other-1-k3f9]").click()
            wait_for("the other", lambda: "other" in text_of(driver, "figures"), driver)
            wait_for("its faults", lambda: rows_of(driver, "faults"), driver)
            jobs.pop()
            wait_for("why", lambda: "no job other-1-k3f9" in text_of(driver, "trouble"), driver)
            wait_for("the first", lambda: "byte-lm" in text_of(driver, "figures"), driver)
            wait_for("its faults", lambda: rows_of(driver, "faults"), driver)
            wait_for("live", lambda: text_of(driver, "connection") == LIVE, driver)
            jobs.pop()
            wait_for("none", lambda: "no jobs yet" in text_of(driver, "figures"), driver)
            assert not rows_of(driver, "faults") and text_of(driver, "events") == ""
            hangs.set()
            wait_for("silence", lambda: "not live" in text_of(driver, "connection"), driver)
            assert "2 s" in text_of(driver, "trouble")
            assert not complaints(driver)


VIEWS = ["state", "curves", "recovery", "nodes", "checkpoints", "logs"]
IN_SIGHT = """
const place = document.getElementById(arguments[0]).getBoundingClientRect();
return place.top < innerHeight && place.bottom > 0;
"""


def views_by_tab(driver: Any) -> list[str]:
    """In which views the tab key comes to something, in that order, and out of each again."""
    from selenium.webdriver import ActionChains, Keys

    driver.execute_script("document.querySelector('.skip').focus()")
    seen: dict[str, None] = {}
    for _ in range(100):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        view = driver.execute_script("return document.activeElement.closest('section')?.id ?? ''")
        if not view and seen:
            break
        seen |= {view: None} if view else {}
    return [*seen]


REACHED = """
const can = [...document.querySelectorAll('a, button:enabled, select, summary')]
  .filter(each => each.checkVisibility());
return can.filter(each => { each.focus(); return document.activeElement === each
  && each.tabIndex === 0; }).length;
"""
NAMELESS = """
const name = (each) => each.getAttribute('aria-label') || each.getAttribute('aria-labelledby')
  || each.labels?.length || each.textContent.trim();
return [...document.querySelectorAll(
  'a, button, select, input, summary, progress, svg[role=img], section, [role=region], nav')]
  .filter(each => !name(each)).map(each => each.outerHTML.slice(0, 80));
"""


def test_elsewhere_than_on_loopback_it_has_the_certificate_of_its_node(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with FakeDaemon(home, ANSWERS):
        papers.write(home, member("node-0"))
        make_token(home)
        certificate, _ = papers.shown(home)
        with page_process(home, "--tls", "mac-1.local") as port:
            shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=60)
            own = certificate.read_text()
            assert ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(own)
            unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            unknown.check_hostname, unknown.verify_mode = False, ssl.CERT_NONE
            for host, answer in (("mac-1.local", 200), ("evil.example", 421)):
                headers = {"Authorization": f"Bearer {token_of(home)}", "Host": f"{host}:{port}"}
                asked = http.client.HTTPSConnection("127.0.0.1", port, context=unknown, timeout=60)
                asked.request("GET", "/metrics", headers=headers)
                assert asked.getresponse().status == answer
                asked.close()
            with pytest.raises((http.client.HTTPException, OSError)):
                plain = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                plain.request("GET", "/")
                plain.getresponse()


def test_who_has_no_token_is_asked_for_it(hostile: str) -> None:
    address, _, token = hostile.partition("#token=")
    with browser() as driver:
        driver.get(f"{address}#token=wrong")
        wait_for("the form", lambda: driver.find_element("id", "token").is_displayed(), driver)
        assert not driver.find_element("id", "told").is_displayed()
        driver.find_element("id", "token").send_keys(f"{address}#token={token}\n")
        wait_for("the job", lambda: "byte-lm" in text_of(driver, "figures"), driver)


def test_a_page_of_another_origin_gets_nothing(hostile: str) -> None:
    address, _, token = hostile.partition("/#token=")
    with browser() as driver:
        driver.get("data:text/html,<title>other</title>")
        for how in ("{}", f"{{headers: {{Authorization: 'Bearer {token}'}}}}", "{mode: 'no-cors'}"):
            said = driver.execute_async_script(
                f"const done = arguments[0]; fetch('{address}/metrics', {how})"
                ".then(async answer => done(await answer.text()), () => done('refused'))"
            )
            assert said in ("refused", ""), how
