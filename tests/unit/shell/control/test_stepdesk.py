"""A node makes the first step of a job in processes of its own, and keeps nothing of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd import archive
from elasticd.core.words.bulk import Want, WantArchive, WantFirstStep
from elasticd.core.words.codec import to_plain
from elasticd.errors import OperationError, UsageError
from elasticd.preflight.firststeps import StepSeen
from elasticd.preflight.needs import ScriptOffer
from elasticd.settings.job import JobSpec
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.control import stepdesk
from elasticd.shell.control.server import Stream
from elasticd.shell.control.stepdesk import StepDesk
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.scratch import Scratch
from elasticd.supervision.priority import BEHIND_RANKS
from elasticd.types import JobId, NodeId

ME, OTHER = NodeId("me"), NodeId("other")
JOB = JobId("lm-1-aaaa")
SPEC = JobSpec.from_dict(
    {
        "job": {"name": "lm", "entrypoint": "train.py", "args": ["--fast"]},
        "batch": {"global": 8, "micro": 2},
        "train": {"steps": 5},
    }
)
STEP = """
import json, os, pathlib, sys
assert json.load(open(sys.argv[1]))["train"]["steps"] == 5 and pathlib.Path("train.py").exists()
told = {"repeats": True, "gradient": "g", "update": "u", "batch": "b", "weights": "w"}
json.dump(told, open(sys.argv[2], "w"))
"""
TRAIN = """
import sys
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd
assert sys.argv[1:] == ["--fast"]
print("hello")
model = nn.Linear(2, 1)
def loss(model, batch):
    return model(batch).square().mean()
data = [mx.array([1.0, float(i)]) for i in range(32)]
run = elasticd.Run(model=model, optimizer=optim.Adam(0.1), loss=loss, data=data)
for step in run:
    raise SystemExit("it makes a step")
"""


class Desk:
    """A node's desk whose other node has the job's files and answers what a test wants.

    ``step``: what a process does in place of the first step.
    """

    def __init__(self, folder: Path, step: str = STEP, files: str = "") -> None:
        self.me, self.answer, self.jobs = ME, cast(Any, b""), list[JobId]()
        self.used, self.free = False, 8 << 30
        sent, modules = folder / "sent", folder / "modules"
        sent.mkdir()
        modules.mkdir()
        (sent / "train.py").write_text(files)
        (modules / "instead.py").write_text(step)
        self.packed = archive.pack(sent)
        self.home = folder / "home"
        near = cast(Neighbours, self)
        self.archives = Archives(
            self.home / "archives", near, lambda job: folder / job, lambda event: None
        )
        path = os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")])
        self.desk = StepDesk(
            near, self.archives, ChildFiles(self.home), Scratch(self.home),
            {**os.environ, "PYTHONPATH": path}, lambda: self.jobs, lambda digest: self.used,
            lambda: self.free, "instead",
        )  # fmt: skip
        self.wanted = WantFirstStep(SPEC.to_dict(), self.packed.digest)

    def connected(self) -> list[NodeId]:
        return [OTHER]

    async def fetch(
        self, node: NodeId, wanted: Want, fd: int, limit_bytes: int | None = None
    ) -> int:
        if wanted == WantArchive(self.packed.digest):
            return os.write(fd, self.packed.data)
        assert wanted == self.wanted
        if isinstance(self.answer, Exception):
            raise self.answer
        return os.write(fd, self.answer)

    def told(self, node: NodeId = ME, **changes: Any) -> StepSeen | None:
        return asyncio.run(self.desk.told(node, replace(self.wanted, **changes)))

    def left(self) -> list[str]:
        return [path.name for path in (self.home / "archives").iterdir()]


GOOD = StepSeen(ME, gradient="g", update="u", batch="b", weights="w")


def test_a_job_that_another_node_has_is_tried_here_and_nothing_of_it_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.told() == GOOD and desk.left() == []
    desk.used = True
    assert desk.told() == GOOD and desk.left() == [f"{desk.packed.digest}.tar"]


def test_with_a_long_tmpdir_no_link_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.delenv("INVOCATION_ID", raising=False)  # the link of a service lies elsewhere
    told = tmp_path / "told"
    step = f"import os; open({str(told)!r}, 'w').write(os.environ['TMPDIR'])\n{STEP}"
    assert Desk(tmp_path, step).told() == GOOD
    temporary = Path(told.read_text())
    if sys.platform == "linux":
        assert temporary.is_relative_to("/tmp") and not temporary.is_relative_to(long)
        assert not os.path.lexists(temporary.parent)
    assert list(long.iterdir()) == []


@pytest.mark.process
def test_the_scripts_gradients_are_computed_and_no_step_is_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path, files=TRAIN)
    desk.desk.module = stepdesk.MODULE
    found = desk.told()
    assert found is not None and found.error == "" and found.repeats
    assert len({found.gradient, found.update, found.batch, found.weights}) == 4
    assert desk.told() == found


@pytest.mark.process
def test_a_script_whose_gradients_differ_each_time_is_found(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "integration" / "jobs" / "unsteady.py"
    desk = Desk(tmp_path, files=script.read_text())
    desk.desk.module = stepdesk.MODULE
    found = desk.told()
    assert found is not None and found.error == "" and not found.repeats


def test_bits_that_differ_from_process_to_process_are_found(tmp_path: Path) -> None:
    found = Desk(tmp_path, STEP.replace('"g"', "str(os.getpid())")).told()
    assert found is not None and not found.repeats and found.gradient


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("raise KeyError('no such column')", "ended with status 1: KeyError: 'no such column'"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("", "ends before its first step"),
        ("import sys; open(sys.argv[2], 'w').write('{')", "Expecting"),
        ("import sys; open(sys.argv[2], 'w').write('{\"repeats\": 7}')", "repeats"),
    ],
)
def test_a_script_that_makes_no_step(tmp_path: Path, step: str, error: str) -> None:
    desk = Desk(tmp_path, step)
    found = desk.told()
    assert found is not None and error in found.error and found.gradient == ""
    assert desk.left() == []


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepdesk, "RUN_SECONDS", 0.2)
    found = Desk(tmp_path, "import time; time.sleep(1000)").told()
    assert found is not None and "hangs: it has not ended in 0.2 s" in found.error


def test_where_a_job_trains_nothing_is_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.jobs = [JOB]
    assert desk.told() == StepSeen(ME, trains=JOB)
    assert desk.told(busy=True) == GOOD


def test_a_job_that_begins_has_the_right_of_way(tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    desk = Desk(tmp_path, f"import time; open({str(mark)!r}, 'w'); time.sleep(1000)")
    desk.desk.trains = lambda: [JOB] if mark.exists() else []
    assert desk.told() == StepSeen(ME, trains=JOB) and desk.left() == []


@pytest.mark.parametrize(
    ("free", "needs", "short"),
    [
        (512 << 20, 0, "it needs 1.0 GiB, and 0.5 GiB are free"),
        (4 << 30, 5 << 30, "it needs 5.0 GiB, and 4.0 GiB are free"),
        (6 << 30, 5 << 30, ""),
    ],
)
def test_memory_is_looked_at_first(tmp_path: Path, free: int, needs: int, short: str) -> None:
    desk = Desk(tmp_path)
    desk.free = free
    found = desk.told(needs_bytes=needs)
    assert found is not None and found.short == short and bool(found.gradient) == (not short)


def test_a_variable_that_the_job_wants_and_is_not_here_is_named(tmp_path: Path) -> None:
    spec = replace(SPEC, job=replace(SPEC.job, pass_env=("NOWHERE_TOKEN",)))
    found = Desk(tmp_path).told(spec=spec.to_dict())
    assert found is not None and "NOWHERE_TOKEN" in found.error


def test_two_at_once_would_take_each_others_memory(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def both() -> tuple[StepSeen | None, StepSeen | None]:
        return await asyncio.gather(
            desk.desk.told(ME, desk.wanted), desk.desk.told(ME, desk.wanted)
        )

    first, second = asyncio.run(both())
    assert first == GOOD and second is not None and "for somebody else" in second.error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (OperationError("unknown message 'first_step'"), None),
        (OperationError("other is not connected"), "not connected"),
        (TimeoutError(), "it has not told it in 150 s"),
        (b"no json", "Expecting value"),
        (b'{"node": 7}', "expected str"),
    ],
)
def test_another_node_that_tells_nothing(tmp_path: Path, answer: Any, error: str | None) -> None:
    desk = Desk(tmp_path)
    desk.answer = answer
    found = desk.told(OTHER)
    assert (found is None) == (error is None)
    assert error is None or (found is not None and error in found.error)


def test_another_node_is_asked(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.answer = json.dumps(to_plain(replace(GOOD, node=NodeId("somebody")))).encode()
    assert desk.told(OTHER) == replace(GOOD, node=OTHER)


def test_what_a_node_tells_others(tmp_path: Path) -> None:
    async def served() -> Any:
        desk = Desk(tmp_path)
        fd = await desk.desk.serve(desk.wanted)
        try:
            return json.loads(os.pread(fd, 1 << 16, 0))
        finally:
            os.close(fd)

    assert asyncio.run(served()) == to_plain(GOOD)


class FakeStream:
    """A client that sends an archive in pieces."""

    def __init__(self, data: bytes) -> None:
        self.parts = [data[at : at + 1000] for at in range(0, len(data), 1000)]

    async def receive(self, seconds: float) -> dict[str, Any]:
        return {"data": self.parts.pop(0)}


def taken(desk: Desk, data: bytes, look: Callable[[], Any], **changes: Any) -> Any:
    offer = ScriptOffer(SPEC.to_dict(), len(data), desk.packed.digest)

    async def take() -> Any:
        stream = cast(Stream, FakeStream(data))
        async with desk.desk.taken(replace(offer, **changes), stream):
            return look()

    return asyncio.run(take())


def test_files_that_a_client_sends_are_here_meanwhile(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert taken(desk, desk.packed.data, desk.left) == [f"{desk.packed.digest}.tar"]
    assert desk.left() == []
    desk.used = True
    taken(desk, desk.packed.data, desk.left)
    assert desk.left() == [f"{desk.packed.digest}.tar"], "a job has it"


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"archive_bytes": 1 << 40}, "larger than 64 MiB"), ({"archive_digest": "ab"}, "damaged")],
)
def test_files_that_are_not_what_was_said(
    tmp_path: Path, changes: dict[str, Any], error: str
) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(UsageError, match=error):
        taken(desk, desk.packed.data, desk.left, **changes)
    assert desk.left() == []


def test_its_process_gives_way(tmp_path: Path) -> None:
    """As it does in what runs a script: see elasticd/train/firststep.py."""
    desk = Desk(tmp_path, files="import os\nraise SystemExit(f'nice {os.nice(0)}')")
    desk.desk.module = stepdesk.MODULE
    found = desk.told()
    assert found is not None and sys.executable in found.error
    assert f"nice {os.nice(0) + BEHIND_RANKS}" in found.error
