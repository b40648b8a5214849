"""elasticd.toml changed while its daemon runs."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_running_daemon_follows_its_file(cluster: Cluster) -> None:
    node, other = cluster.nodes[0], cluster.nodes[1]
    home = cluster.home / node

    def told(kind: str, count: int) -> dict[str, object]:
        found = cluster.wait_for(
            kind, lambda: (seen := cluster.kinds(None, kind, other))[count - 1 :] and seen
        )
        last: dict[str, object] = found[count - 1]
        return last

    def put(text: str) -> None:
        """Whole, as an editor does: one that is empty for a moment is refused, too."""
        beside = home / "elasticd.toml.new"
        beside.write_text(text)
        beside.replace(home / "elasticd.toml")

    before = (home / "elasticd.toml").read_text()
    said = cluster.run("configure", "--set", "output_bytes=0", "--listen", "h:1", "--home", home)
    assert said.returncode == 0 and said.stderr.startswith("listen: holds when"), said.stderr
    assert told("settings_taken", 1)["keys"] == ["output_bytes"]
    job = cluster.submit(
        "writes.py", recovery__spare="none", train__steps=12, checkpoint__every_steps=5
    )
    cluster.wait_end(job)

    def copied() -> set[str] | None:
        kept = {path.parts[-3] for path in cluster.home.glob(f"node-*/outputs/{job}")}
        return kept if len(kept) >= len(cluster.nodes) - 2 else None

    # Those that are neither main nor without room; the job doesn't wait for them.
    assert node not in cluster.wait_for("copies", copied)
    event = told("settings_refused", 1)
    assert event["keys"] == ["listen"] and event["node"] == node
    put("\n\nquota_bytes = 'all'\n")
    assert f"{home}/elasticd.toml:3: quota_bytes: must be" in str(told("settings_refused", 2))
    put(before)
    assert told("settings_taken", 2)["keys"] == ["output_bytes"]
