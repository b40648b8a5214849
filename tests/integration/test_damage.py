"""A node whose journal is damaged: told, left out, and brought back by what the others know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_node_with_a_damaged_journal_comes_back_by_a_reset(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        before = cluster.submit("high.py", recovery__spare="none", world__max=1, train__steps=4)
        digest = cluster.wait_end(before)["digest"]
        home = cluster.home / "node-1"
        cluster.kill_node("node-1")
        journal = home / "journal"
        damaged = bytearray(journal.read_bytes())
        damaged[20] ^= 1
        journal.write_bytes(damaged)

        up = cluster.run("local", "up")
        assert up.returncode == 1 and "node-1 is damaged" in up.stderr, up.stderr
        assert f"elasticctl reset --home {home}" in up.stderr
        assert cluster.living() == ["node-0", "node-2"]
        meanwhile = cluster.submit("high.py", recovery__spare="none", world__max=1, train__steps=4)
        assert cluster.wait_end(meanwhile)["digest"] == digest

        doctor = cluster.run("doctor", "--json")
        findings = {
            Path(each["home"]).name: each["findings"] for each in json.loads(doctor.stdout)["homes"]
        }
        assert doctor.returncode == 1 and findings["node-0"] == findings["node-2"] == []
        places = [finding["path"] for finding in findings["node-1"]]
        assert places == [str(journal), str(home / "daemon.json")]
        refused = cluster.run("reset", "--yes")
        assert refused.returncode == 1 and "stop it first" in refused.stderr

        reset = cluster.run("--home", home, "reset", "--yes")
        assert reset.returncode == 0, reset.stderr
        assert (home / "journal.lost").read_bytes() == damaged
        cluster.up()
        own = Client(home)

        def told() -> bool:
            jobs = {each["id"]: each["state"] for each in own.request(ShowStatus())["jobs"]}
            return jobs == {before: "finished", meanwhile: "finished"}

        def told_events() -> bool:
            jobs = (before, meanwhile)
            return all(
                cluster.events(job, "node-1") == cluster.events(job, "node-0") for job in jobs
            )

        cluster.wait_for("the others tell it the jobs", told)
        # They have an exchange of their own, which nobody puts in order with that of the jobs.
        cluster.wait_for("the others tell it the events", told_events)
        again = cluster.submit(
            "high.py", recovery__spare="none", at="node-1", train__steps=4, world__min=3
        )
        assert cluster.wait_end(again)["digest"] == digest
        assert "node-1" in cluster.kinds(again, "world_formed")[-1]["members"]
