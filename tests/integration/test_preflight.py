"""What is looked at before a job runs, on real daemons."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.client.client import Client
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.preflight import RunPreflight
from elasticd.preflight.nodes import NODE_CHECKS
from elasticd.preflight.seen import SPEED_NAME
from elasticd.preflight.speeds import SpeedSeen
from elasticd.shell.clock import unix_seconds
from elasticd.types import NodeId
from tests.integration import patient
from tests.integration.alone import JOBS
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def of(report: dict[str, Any], check: str) -> dict[str, str]:
    return {each["where"]: each["verdict"] for each in report["checks"] if each["check"] == check}


def test_nodes_and_links_are_looked_at_and_training_has_the_right_of_way(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        one, two = cluster.nodes
        both = {f"{one} > {two}", f"{two} > {one}"}

        def report(*words: str | Path) -> dict[str, Any]:
            done = cluster.run(*words, "--json", "--home", cluster.home / one)
            return cast(dict[str, Any], json.loads(done.stdout))

        # The machine may be short of disk or memory, and its links slow: only what is asked counts.
        found = report("preflight")
        assert of(found, "answers") == {one: "pass", two: "pass"}
        assert of(found, "mlx") == of(found, "elasticd") == {one: "pass", two: "pass"}
        named = {"answers", "link", "speed", *(check.name for check in NODE_CHECKS)}
        assert {each["check"] for each in found["checks"]} == named
        links = [each["value"] for each in found["checks"] if each["check"] == "link"]
        assert of(found, "link").keys() == both and all(" MB/s, " in each for each in links)
        assert of(found, "speed").keys() == {one, two} and "fail" not in of(found, "speed").values()
        again = report("preflight", "--last")
        assert again["checks"] == found["checks"] and again["age_seconds"] > found["age_seconds"]

        wanting = tmp_path / "wanting"
        wanting.mkdir()
        (wanting / "train.py").write_text("import elasticd, nowhere_to_be_found\n")
        (wanting / "job.toml").write_text(
            '[job]\nname = "wanting"\nentrypoint = "train.py"\n[batch]\nglobal = 8\nmicro = 1\n'
            "[train]\nsteps = 5\n[world]\nmin = 2\n"
        )
        found = report("preflight", wanting)
        assert of(found, "packages") == {one: "fail", two: "fail"}
        assert "nowhere_to_be_found" in json.dumps(found) and "fail" in of(found, "world").values()
        (wanting / "train.py").write_text("import elasticd\n")
        found = report("preflight", wanting / "job.toml")
        assert of(found, "gradients") == {one: "fail", two: "fail"}
        assert "the script ends before its first step" in json.dumps(found)
        assert of(report("preflight", wanting / "job.toml", "--no-script"), "gradients") == {}
        unsteady = (JOBS / "unsteady.py").read_text()
        (wanting / "train.py").write_text(unsteady)
        found = report("preflight", wanting / "job.toml")
        assert of(found, "gradients") == {one: "warn", two: "warn"}
        (wanting / "train.py").write_text(unsteady.replace("time.perf_counter_ns()", "7"))
        found = report("preflight", wanting / "job.toml")
        assert of(found, "gradients") == {one: "pass", two: "pass"}
        assert of(found, "packages") == of(found, "interpreter") == {one: "pass", two: "pass"}
        assert "fail" not in of(found, "world").values()
        for node in cluster.nodes:
            assert not [*(cluster.home / node / "archives").iterdir()]

        job = cluster.submit("high.py", train__steps=1000)
        cluster.wait_step(job, 2)
        found = report("calibrate")
        assert of(found, "speed") == {one: "warn", two: "warn"}
        assert f"not measured: {job} runs there" in json.dumps(found)
        assert "h ago" not in json.dumps(found)
        text = cluster.command("check-network")
        assert f"not measured: {job} runs there" in text and "--busy" in text
        busy = report("check-network", "--busy")
        assert of(busy, "link").keys() == both and "not measured" not in json.dumps(busy)

        # Whoever hangs up ends it: what was measured so far is not kept. It lasts, as one is mute.
        os.kill(cluster.processes(two)[0].pid, signal.SIGSTOP)
        with Client(cluster.home / one).open(RunPreflight(only="links", busy=True)) as asked:
            assert asked.answer()["doing"].startswith("asking")
        cluster.kill_node(two)
        cluster.wait_for("it is away", lambda: cluster.view()["members"] == [one])
        assert report("check-network", "--last")["checks"] == busy["checks"]
        away = report("check-network", "--busy")
        assert of(away, "answers") == {one: "pass", two: "warn"} and of(away, "link") == {}


def test_a_job_does_without_a_node_on_which_its_preflight_fails(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        one, two = cluster.nodes
        secrets = cluster.home / one / "secrets.env"
        secrets.write_text("A_TOKEN=x\n")
        secrets.chmod(0o600)
        folder = tmp_path / "wanting"
        folder.mkdir()
        unsteady = (JOBS / "unsteady.py").read_text()
        (folder / "train.py").write_text(unsteady.replace("time.perf_counter_ns()", "7"))
        (folder / "job.toml").write_text(
            '[job]\nname = "wanting"\nentrypoint = "train.py"\npass_env = ["A_TOKEN"]\n'
            "[batch]\nglobal = 8\nmicro = 1\n[train]\nsteps = 3\n"
            '[recovery]\nspare = "none"\n'
        )
        asked = ("--home", cluster.home / one, "--json")
        found = json.loads(cluster.run("preflight", folder, *asked).stdout)
        assert of(found, "variables") == {one: "pass", two: "fail"}
        assert of(found, "gradients") == {one: "pass"}
        job = json.loads(cluster.run("submit", folder, *asked).stdout)["id"]
        assert cluster.wait_end(job)["step"] == 3
        (told,) = cluster.kinds(job, "preflight_finished")
        assert (told["unfit"], told["wrong"]) == ([two], 1)
        (out,) = cluster.kinds(job, "node_unfit")
        assert out["node"] == two and "A_TOKEN" in out["reason"]
        assert [each["members"] for each in cluster.kinds(job, "world_formed")] == [[one]]


def test_a_job_whose_nodes_are_asked_again_is_shown_in_its_preflight(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        here, slow = cluster.home / cluster.nodes[0], tmp_path / "slow"
        interpreter, folder = tmp_path / "interpreter", tmp_path / "wanting"
        interpreter.write_text(f'#!/bin/sh\nif [ -e "{slow}" ]; then exec sleep 15; fi\nexit 1\n')
        interpreter.chmod(0o700)
        folder.mkdir()
        (folder / "train.py").write_text("import elasticd\n")
        (folder / "job.toml").write_text(
            f'[job]\nname = "wanting"\nentrypoint = "train.py"\npython = "{interpreter}"\n'
            "[batch]\nglobal = 8\nmicro = 1\n[train]\nsteps = 3\n"
        )
        asked = ("--home", here, "--json")
        found = json.loads(cluster.run("preflight", folder, *asked).stdout)
        assert set(of(found, "interpreter").values()) == {"fail"}
        slow.touch()
        with ThreadPoolExecutor() as aside:
            submitted = aside.submit(cluster.command, "submit", folder, *asked)

            def before() -> dict[str, Any] | None:
                jobs = Client(here).request(ShowStatus(ended=0))["jobs"]
                return next((job for job in jobs if job["state"] == "preflight"), None)

            shown = cluster.wait_for("a job in its preflight", before)
            assert shown["name"] == "wanting" and "asked again" in shown["reason"]
            cluster.command("cancel", shown["id"], "--home", here)
            assert json.loads(submitted.result())["id"] == shown["id"]
        assert cluster.wait_end(shown["id"], "cancelled")["step"] == 0


def test_a_job_begins_with_shares_by_what_was_measured(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        one, two = cluster.nodes
        for node, gflops in ((one, 100.0), (two, 300.0)):
            kept = SpeedSeen(NodeId(node), gflops, "cpu", unix=unix_seconds())
            (cluster.home / node / SPEED_NAME).write_text(json.dumps(to_plain(kept)))
        cluster.program = [sys.executable, patient.__file__]
        for node in cluster.nodes:
            cluster.restart_daemon(node)
        cluster.wait_for("a view of both", lambda: len(cluster.view()["members"]) == 2)
        job = cluster.submit("begins.py", job__args=["--pace-seconds", "0.4"])
        (told,) = cluster.wait_for("word of it", lambda: cluster.kinds(job, "shares_foreseen"))
        (cluster.home / "begin").touch()
        cluster.wait_step(job, 1)
        assert told["seconds"] == {one: 3.0, two: 1.0}
        first = cluster.kinds(job, "world_formed")[0]
        grains = {rank["node"]: rank["grains"] for rank in cluster.status(job)["ranks"]}
        if not cluster.kinds(job, "shares_moved") and len(first["members"]) == 2:
            assert grains == {one: 2, two: 6}, cluster.report("other shares", job)
