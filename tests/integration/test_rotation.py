"""Every member gets a new key and certificate under a running job, and the old ones get nowhere."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.client.client import Client
from elasticd.core.words.connections import Errand
from elasticd.core.words.joining import FROM_RENEWER, Renew
from elasticd.core.words.requests.nodes import RotateCertificates
from elasticd.errors import OperationError
from elasticd.ipc.frames import Decoder, encode
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust.authority import new_key, request_of
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check
from tests.integration.test_strangers import FETCHES, HELLO, Target, heard

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.3"]
RETURN_SECONDS = 20
"""How long a busy machine takes to connect anew is not the question here."""


class Copied:
    """What somebody has copied of a node's home."""

    def __init__(self, cluster: Cluster, node: str, folder: Path) -> None:
        self.node, home = NodeId(node), folder / node
        shutil.copytree(cluster.home / node / "cluster", home / "cluster")
        self.member = papers.read(home)
        self.shown = Credentials(self.member, *papers.shown(home), Revoked())

    def says(self, target: Target, errand: Errand, word: dict[str, Any]) -> list[dict[str, Any]]:
        """What comes back of a daemon."""
        context = self.shown.outgoing
        context.verify_mode = ssl.CERT_NONE
        return Decoder().feed(heard(target, errand.value, context, encode(word))[0])

    def gets_nowhere(self, cluster: Cluster, *nodes: str) -> None:
        hello = {**HELLO, "node": self.node}
        asked = FROM_RENEWER.encode(Renew(self.node, request_of(new_key()), "127.0.0.1:9"))
        for node in nodes or cluster.nodes:
            target = Target(cluster, cluster.home / node, cluster.home / node)
            (told,) = self.says(target, Errand.PEER, hello)
            assert set(told) == {"t", "wanted"} and told["t"] == "must_renew", (node, told)
            assert self.says(target, Errand.FETCH, FETCHES[0]) == []
            (told,) = self.says(target, Errand.RENEW, asked)
            assert told["t"] == "not_renewed", (node, told)


def test_all_certificates_are_renewed_under_a_job_which_loses_no_step(
    kernels: Path, undisturbed: Callable[[str], str], tmp_path: Path
) -> None:
    expected = undisturbed("high.py")
    made = Cluster(tmp_path, 3, kernels)
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        before = [Copied(cluster, node, tmp_path / "copied") for node in cluster.nodes]
        cluster.kill_node("node-2")
        cluster.wait_for("a view of two", lambda: len(cluster.view()["members"]) == 2)
        job = cluster.submit("high.py", recovery__spare="none", job__args=SLOW)
        started = cluster.wait_whole(job, 2)
        assert {rank["node"] for rank in started["ranks"]} == {"node-0", "node-1"}

        with pytest.raises(OperationError, match="node-1 makes no certificates: say it on node-0"):
            list(Client(cluster.home / "node-1").stream(RotateCertificates()))
        told = json.loads(cluster.command("cluster", "rotate", "--json"))
        assert told["old_refused"] is True and told["waiting"] == []
        assert (told["renewed"], told["away"]) == (["node-0", "node-1"], ["node-2"])
        for old in before[:2]:
            old.gets_nowhere(cluster, "node-0", "node-1")
            new = papers.read(cluster.home / old.node)
            assert new.key != old.member.key and new.certificate != old.member.certificate

        # Connections are made anew meanwhile, and new ones are opened for checkpoints.
        after = cluster.wait_step(job, cluster.status(job)["step"] + 5)
        assert after["state"] == "running" and not cluster.broken(job)
        assert len(cluster.unheard(job)) <= 1, cluster.report("missed more than once", job)
        if not cluster.unheard(job):
            assert cluster.moves(job) or after["generation"] == started["generation"]
            assert cluster.kinds(job, "recovery_started") == []

        # The one that was away, and knows nothing of it.
        cluster.restart_daemon("node-2")
        cluster.wait_for("a view of three", lambda: len(cluster.view()["members"]) == 3)
        new = papers.read(cluster.home / "node-2")
        assert new.key != before[2].member.key and new.certificate != before[2].member.certificate
        for old in before:
            old.gets_nowhere(cluster)
        cluster.wait_for("three ranks", lambda: len(cluster.status(job)["ranks"]) == 3)
        check(cluster, job, "high.py", expected)
        assert not cluster.broken(job)
        listed = json.loads(cluster.command("cluster", "list", "--json"))
        assert [node["old"] for node in listed["issued"]] == [False, False]
