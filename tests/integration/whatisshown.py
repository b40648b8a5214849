"""All that people see of a cluster besides the short commands: the web page and what it asks for,
metrics, reports, a bundle for support, and what a tracker's file says."""

from __future__ import annotations

import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.integration.cluster import Cluster

_SECONDS = 60.0


def shown(cluster: Cluster, job: str, folder: Path) -> dict[str, str]:
    """By what shows it. ``folder`` is made, for the files."""
    folder.mkdir()
    found = dict[str, str]()
    for name, words in {
        "monitor": ["monitor", job],
        "monitor --json": ["monitor", job, "--json"],
        "preflight": ["preflight", "--json"],
        "notify": ["notify"],
        "logs": ["logs", job, "--json"],
        "events": ["events", "--json"],
        "report": ["report", job, "--out", str(folder / "report.html")],
        "report --markdown": ["report", job, "--markdown", "--out", str(folder / "report.md")],
        "outputs": ["outputs", job, "--out", str(folder / "outputs")],
        "bundle": ["doctor", "--bundle", str(folder / "bundle.tar.gz")],
    }.items():
        done = cluster.run(*words)
        assert done.returncode == 0 or name in ("preflight", "bundle"), done.stderr
        found[name] = done.stdout + done.stderr
    for each in (folder / "report.html", folder / "report.md"):
        found[each.name] = each.read_text()
    (events,) = (folder / "outputs" / "tensorboard").glob("events.out.tfevents.*")
    found["tensorboard"] = events.read_bytes().decode("latin-1")
    return found | dict(_bundled(folder / "bundle.tar.gz")) | dict(_served(cluster, job))


def _bundled(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as bundle:
        for member in bundle:
            if (file := bundle.extractfile(member)) is not None:
                yield f"bundle: {member.name}", file.read().decode("latin-1")


def _served(cluster: Cluster, job: str) -> Iterator[tuple[str, str]]:
    """To whoever has the token, which is in none of it either; the page itself also to others."""
    url = json.loads(cluster.command("dashboard", "--json"))["url"]
    address, _, token = url.partition("/#token=")
    asked = ("/", "/metrics", "/api/live", f"/api/logs?job={job}", f"/api/checkpoints?job={job}")
    for path in asked:
        bearer = {} if path == "/" else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(address + path, headers=bearer)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            # What is live never ends: the first picture has everything.
            text = b"".join(_first(answer)) if path == "/api/live" else answer.read()
        assert text and token not in text.decode(), path
        yield path, text.decode()


def _first(answer: Iterator[bytes]) -> Iterator[bytes]:
    told = False
    for line in answer:
        yield line
        told = told or line.startswith(b"data:")
        if told and not line.strip():
            return
