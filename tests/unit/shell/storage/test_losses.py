"""A node keeps the losses that it hears, through restarts of its daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.core.jobs.losses import MOST_NAMED_POINTS
from elasticd.settings.plain import PLAIN
from elasticd.shell.assembly.following import losses_of
from elasticd.shell.storage import losses as module
from elasticd.shell.storage.losses import FILE, FOLDER, JobPast, Losses
from elasticd.types import MOST_NAMED, JobId

JOB = JobId("j-1-aaaa")
RANK = {"rank": 0, "node": "a", "seconds": {"compute": 0.5}}


def test_the_rounds_of_a_plain_job_are_no_losses(tmp_path: Path) -> None:
    jobs = [
        SimpleNamespace(id=JobId(mode), spec={"job": {"mode": mode}}) for mode in ("elastic", PLAIN)
    ]
    summaries = {each.id: {"step": 5, "loss": 0.0, "lost_steps": 0, "ranks": []} for each in jobs}
    tables = SimpleNamespace(jobs=SimpleNamespace(queue=lambda: jobs), summaries=summaries)
    node: Any = SimpleNamespace(tables=tables, records={})
    asyncio.run(losses_of(tmp_path, node).look())
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["elastic"]


class Node:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.jobs: dict[JobId, dict[str, Any]] = {}
        self.ended: dict[JobId, dict[str, Any]] = {}
        self.now = 0.0
        self.start()

    def start(self) -> None:
        every = lambda job: self.jobs.get(job) or self.ended.get(job)  # noqa: E731
        self.losses = Losses(self.home, lambda: self.jobs, every, lambda: self.now)

    def tells(self, step: int, loss: float, lost: int = 0, ranks: object = ()) -> None:
        told = {"step": step, "loss": loss, "lost_steps": lost, "ranks": list(ranks)}  # type: ignore[call-overload]
        self.jobs[JOB] = told
        self.now += 1.0
        asyncio.run(self.losses.look())

    def of(self, job: JobId = JOB) -> dict[str, Any]:
        return asyncio.run(self.losses.of(job))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_goes_on_where_it_was_and_outlives_the_job(node: Node) -> None:
    node.tells(1, 9.0, ranks=[RANK])
    node.tells(5, 5.0)
    node.start()
    node.tells(7, 4.0)
    node.ended[JOB] = node.jobs.pop(JOB) | {"step": 9, "loss": 3.0, "ranks": []}
    asyncio.run(node.losses.look())
    kept = {"losses": [[1, 9.0], [5, 5.0], [7, 4.0], [9, 3.0]], "values": {}, "ranks": [RANK]}
    assert node.of() == kept
    node.start()
    assert node.of() == kept, "from the disk"
    node.ended.clear()
    assert node.of() == kept, "the last step was kept, too"


def test_what_is_done_again_is_there_once_after_a_restart_too(node: Node) -> None:
    for step, loss, lost in ((4, 5.0, 0), (8, 4.0, 0), (6, 4.5, 3)):
        node.tells(step, loss, lost)
    expected = [[4, 5.0], [6, 4.5]]
    assert node.of()["losses"] == expected
    node.start()
    assert node.of()["losses"] == expected
    node.tells(9, 3.0, 3)
    assert node.of()["losses"] == [*expected, [9, 3.0]]


def named(node: Node, step: int, lost: int = 0, **values: Any) -> None:
    node.jobs[JOB] = {
        "step": step, "loss": 1.0, "lost_steps": lost, "ranks": [],
        "values": {name: {"step": at, "value": value} for name, (at, value) in values.items()},
    }  # fmt: skip
    asyncio.run(node.losses.look())


def test_what_the_script_told_goes_back_with_the_job_and_outlives_the_daemon(node: Node) -> None:
    named(node, 10, accuracy=(10, 0.5))
    named(node, 25, accuracy=(20, 0.7), rate=(25, 3.0))
    named(node, 25, accuracy=(20, 0.7), rate=(25, 3.0))
    named(node, 14, 11, accuracy=(10, 0.5))
    named(node, 20, 11, accuracy=(20, 0.8), rate=(20, 2.0))
    expected = {"accuracy": [[10, 0.5], [20, 0.8]], "rate": [[20, 2.0]]}
    assert node.of()["values"] == expected
    node.start()
    assert node.of()["values"] == expected


def test_names_and_their_file_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100_000)
    for step in range(1, 400):
        many: dict[str, Any] = {f"n{n}": (step, 0.1) for n in range(40)}
        named(node, step, **(many | {"x" * 65: (1, 1.0)}))
    values = node.of()["values"]
    assert list(values) == [f"n{n}" for n in range(MOST_NAMED + 1)], "one more: that of keep_best"
    assert all(len(points) <= MOST_NAMED_POINTS + 1 for points in values.values())
    assert (node.home / FOLDER / JOB / FILE).stat().st_size < 400_000
    node.start()
    assert node.of()["values"] == values


def test_the_file_stays_small(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LINES", 50)
    for step in range(1, 200):
        node.tells(step, 1.0, ranks=[RANK])
    path = node.home / FOLDER / JOB / FILE
    before = node.of()
    assert len(before["losses"]) == 199 and before["ranks"] == [RANK]
    node.start()
    assert node.of() == before
    assert path.stat().st_mode & 0o077 == 0
    assert sorted(os.listdir(path.parent)) == [FILE]


def test_damage_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / FILE
    lines = [
        b'{"step": 1, "loss": 2.0, "lost": 0}', b"\xff[1]", b'{"step": "x", "lost": 0}',
        b'{"ranks": [7]}', b"[[[", b'{"step": 3, "loss": 1, "lost": 0}', b'{"step": 4, "lo',
    ]  # fmt: skip
    path.write_bytes(b"\n".join(lines))
    assert JobPast.read(path).curve.points == [(1, 2.0), (3, 1.0)]
    assert JobPast.read(tmp_path / "none").curve.points == []


def test_what_a_leader_of_another_version_says_breaks_nothing(node: Node) -> None:
    odd = {"step": 2, "loss": float("nan"), "lost_steps": 0, "ranks": [{"seconds": b"x"}]}
    odd["values"] = {"a": 7, "b": {"step": "x"}, "c": {"step": 1, "value": []}}
    for strange in ({"step": "x", "loss": []}, {"ranks": 7, "loss": 1}, {"ranks": [7, {}]}, odd):
        node.jobs[JOB] = strange
        asyncio.run(node.losses.look())
    assert [step for step, _ in node.of()["losses"]] == [2]


def test_a_full_disk_holds_nothing_up(node: Node) -> None:
    (node.home / FOLDER).write_text("no folder")
    node.tells(1, 2.0)
    node.tells(2, 1.0)
    assert node.of()["losses"] == [[1, 2.0], [2, 1.0]]
