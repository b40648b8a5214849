"""``[notify]`` on real daemons: each thing is told once, whoever dies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.settings.notify import NotifyRules
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def test_each_thing_is_told_once_in_the_cluster(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))"
    hook = (sys.executable, "-c", program, "SECRET")

    def lines() -> list[dict[str, str]]:
        return [json.loads(each) for each in told.read_text().splitlines()] if told.exists() else []

    def of(event: str) -> list[dict[str, str]]:
        return [each for each in lines() if each["event"] == event]

    def lost(node: str) -> set[str]:
        """A busy machine may have any node lost for a moment: which are told of this one."""
        return {each["id"] for each in of("node_lost") if each["node"] == node}

    made = make_cluster(tmp_path, 3)
    for node in made.nodes:
        made.configure(node, notify=NotifyRules(job_finished=hook, node_lost=hook))
    with made as cluster:
        job = cluster.submit("high.py", recovery__spare="none", train__steps=2)
        cluster.wait_end(job)
        cluster.wait_for("it is told", lambda: cluster.kinds(None, "notified"))
        finished = [(each["id"], each["job"]) for each in of("job_finished")]
        assert finished == [(f"job_finished/{job}", job)]
        leader = cluster.view()["leader"]
        before = lost(leader)
        cluster.kill_node(leader)
        cluster.wait_for("the next leader tells", lambda: lost(leader) - before)

        def said() -> bool:
            return lost(leader) <= {e["notice"] for e in cluster.kinds(None, "notified")}

        cluster.wait_for("and says so", said)
        assert len(lost(leader) - before) == 1 and len(of("job_finished")) == 1
        told_once = [each["id"] for each in lines()]
        assert len(set(told_once)) == len(told_once), told_once
        assert "SECRET" not in json.dumps(cluster.events()) + cluster.command("status", "--json")
        for log in cluster.home.glob("node-*/daemon.log*"):
            assert "SECRET" not in log.read_text(errors="replace"), log
        assert list(cluster.home.glob("node-*/daemon.log*"))
        shown = json.loads(cluster.command("notify", "--json"))["nodes"]
        assert all(each["notifies"] == ["job_finished", "node_lost"] for each in shown)
        tried = cluster.command("notify", "--test", "--event", "node_lost")
        assert tried.splitlines()[0] == "node_lost: told"
        assert [each["id"] for each in of("node_lost")].count("test/node_lost") == 1
