"""A job's own interpreter that can't run elasticd is named, with the cure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words import effects as e
from elasticd.core.words.processes import CANNOT_BEGIN
from elasticd.core.words.records import JobRecord
from elasticd.settings.job import JobSpec
from elasticd.shell.children.children import Children
from elasticd.shell.children.server import Child, ChildServer
from elasticd.types import JobId
from tests.unit.core.leading.bench import JOB

pytestmark = pytest.mark.process
Run = Callable[[Coroutine[Any, Any, None]], None]
LACKS = "ModuleNotFoundError: No module named 'msgpack'"


class Starter:
    """A node that starts one trainer with the job's ``python``, and hears of its end."""

    def __init__(self, home: Path, python: str, **job: str) -> None:
        self._job = {"name": "job", "entrypoint": "train.py", "python": python, **job}
        self.ended = asyncio.Queue[e.ChildExited]()
        self.server = ChildServer(home, lambda *_: None, self._exits)
        self.children = Children(home, ["127.0.0.1"], self.server, self._record, self._post)
        work = self.children.files.work_folder(JOB)
        work.mkdir(parents=True)
        self.children.start_trainer(e.StartTrainer(7, JOB, spare=False))

    def _exits(self, child: Child, status: int | None) -> None:
        self.children.on_exit(child, status)

    def _record(self, job: JobId) -> JobRecord:
        batch = {"global": 4, "micro": 4}
        spec = {"job": self._job, "train": {"steps": 1}, "batch": batch}
        return JobRecord(job, 1, JobSpec.from_dict(spec).to_dict(), "digest", "running")

    def _post(self, event: e.Event) -> None:
        if isinstance(event, e.ChildExited):
            self.ended.put_nowait(event)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ended(run: Run, home: Path, python: str) -> e.ChildExited:
    found: list[e.ChildExited] = []

    async def main() -> None:
        node = Starter(home, python)
        found.append(await node.ended.get())
        node.children.close()

    run(main())
    return found[0]


def test_one_without_elasticd(tmp_path: Path, run: Run) -> None:
    python = program(tmp_path / "python", f'echo "Traceback"; echo "{LACKS}" >&2; exit 1')
    exited = ended(run, tmp_path, python)
    assert exited.status == CANNOT_BEGIN
    assert exited.tail.splitlines() == [
        "Traceback",
        LACKS,
        f'elasticd: job.python = "{python}" can\'t run elasticd on this node: install elasticd'
        f" there ({LACKS})",
    ]


def test_one_that_says_nothing(tmp_path: Path, run: Run) -> None:
    exited = ended(run, tmp_path, program(tmp_path / "python", "exit 3"))
    assert exited.tail.endswith("install elasticd there (it ended with exit status 3)")


def test_one_that_is_killed_is_not_said_to_lack_anything(tmp_path: Path, run: Run) -> None:
    exited = ended(run, tmp_path, program(tmp_path / "python", "echo x; kill -9 $$"))
    assert (exited.status, exited.tail) == (-9, "x")


def test_one_that_is_not_there(tmp_path: Path, run: Run) -> None:
    exited = ended(run, tmp_path, "/no/such/python")
    assert (exited.status, exited.tail) == (
        CANNOT_BEGIN,
        'elasticd: job.python = "/no/such/python" can\'t be started on this node (No such file or'
        " directory): install a Python with elasticd there, or name one that every node has",
    )
