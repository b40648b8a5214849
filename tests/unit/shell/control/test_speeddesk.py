"""A node measures how fast it computes in a process of its own, and gives way to training."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import WantSpeed
from elasticd.core.words.codec import to_plain
from elasticd.errors import OperationError
from elasticd.preflight.seen import SPEED_NAME
from elasticd.preflight.speeds import SpeedSeen
from elasticd.shell.control.speeddesk import MODULE, SpeedDesk
from elasticd.shell.network.neighbours import Neighbours
from elasticd.types import JobId, NodeId

ME, OTHER = NodeId("me"), NodeId("other")
JOB = JobId("lm-1-aaaa")
NOW = 5000.0
TIMES = '{"device": "gpu", "seconds": [0.002, 0.002, 0.002]}'
WANTED = WantSpeed(1.0)


class Desk:
    """A node's desk whose neighbour is no daemon, and whose program is a shell's."""

    def __init__(self, home: Path, script: str = f"echo '{TIMES}'", answer: Any = b"") -> None:
        self.me, self.answer, self.jobs, self.time = ME, answer, list[JobId](), NOW
        self.asked: list[tuple[NodeId, WantSpeed]] = []
        self.desk = SpeedDesk(
            home, cast(Neighbours, self), os.environ, lambda: self.jobs,
            ("/bin/sh", "-c", f"echo run >> {home}/runs; {script}", "sh"), lambda: self.time,
        )  # fmt: skip
        self.home = home

    async def fetch(self, node: NodeId, wanted: WantSpeed, fd: int, limit: int) -> int:
        self.asked.append((node, wanted))
        if isinstance(self.answer, Exception):
            raise self.answer
        return os.write(fd, self.answer)

    def told(self, node: NodeId = ME, wanted: WantSpeed = WANTED) -> SpeedSeen | None:
        return asyncio.run(self.desk.told(node, wanted))

    def runs(self) -> int:
        runs = self.home / "runs"
        return len(runs.read_text().split()) if runs.exists() else 0


def test_what_a_process_of_its_own_has_measured_is_told_and_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    found = desk.told()
    assert found is not None and found.gflops > 0 and (found.node, found.unix) == (ME, NOW)
    assert json.loads((tmp_path / SPEED_NAME).read_bytes())["gflops"] == found.gflops
    assert (tmp_path / SPEED_NAME).stat().st_mode & 0o077 == 0


def test_the_program_measures_and_gives_way(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.desk.program = (
        sys.executable, "-P", "-c",
        "import os, sys; before = os.nice(0);"
        " from elasticd.train.calibrating import main; main(16, 0.01);"
        " sys.exit(0 if os.nice(0) >= before + 5 else f'nice {os.nice(0)}')",
    )  # fmt: skip
    found = desk.told()
    assert found is not None and found.error == "" and found.gflops > 0
    assert found.device in ("cpu", "gpu")
    assert SpeedDesk(tmp_path, cast(Neighbours, desk), {}, list).program[-1] == MODULE


def test_one_of_the_last_day_is_used(tmp_path: Path) -> None:
    desk, fresh = Desk(tmp_path), WantSpeed(1.0, fresh_seconds=100.0)
    first = desk.told(wanted=fresh)
    desk.time = NOW + 99
    assert desk.told(wanted=fresh) == first and desk.runs() == 1
    assert desk.told() != first and desk.runs() == 2
    desk.time = NOW + 300
    desk.told(wanted=fresh)
    desk.time = NOW  # the clock was set back: nobody knows how old it is
    desk.told(wanted=fresh)
    assert desk.runs() == 4


def test_where_a_job_trains_nothing_is_measured(tmp_path: Path) -> None:
    desk, fresh = Desk(tmp_path), WantSpeed(1.0, fresh_seconds=100.0)
    desk.jobs = [JOB]
    assert desk.told() == desk.told(wanted=fresh) == SpeedSeen(ME, trains=JOB)
    assert desk.runs() == 0
    busy = desk.told(wanted=WantSpeed(1.0, busy=True))
    assert busy is not None and busy.gflops > 0 and desk.runs() == 1
    desk.time = NOW + 1000
    assert desk.told(wanted=fresh) == busy, "it is better than nothing, however old"
    assert desk.told() == SpeedSeen(ME, trains=JOB)


def test_what_a_job_has_begun_in_is_no_measure(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    trains = chain([[]], repeat([JOB]))
    desk.desk.trains = lambda: next(trains)
    assert desk.told() == SpeedSeen(ME, trains=JOB) and desk.runs() == 1
    assert not (tmp_path / SPEED_NAME).exists()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo no >&2; exit 3", "ended with status 3: no"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("echo hello", "prints something else"),
        ("echo 7", "prints something else"),
        ("""echo '{"device": "gpu", "seconds": [1]}'""", "too few times"),
    ],
)
def test_a_process_that_measures_nothing(tmp_path: Path, script: str, error: str) -> None:
    found = Desk(tmp_path, script).told()
    assert found is not None and error in found.error and found.gflops == 0
    assert not (tmp_path / SPEED_NAME).exists()


def test_two_at_once_would_measure_each_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def both() -> tuple[SpeedSeen | None, SpeedSeen | None]:
        return await asyncio.gather(desk.desk.told(ME, WANTED), desk.desk.told(ME, WANTED))

    first, second = asyncio.run(both())
    assert first is not None and first.gflops > 0
    assert second is not None and "for somebody else" in second.error and desk.runs() == 1


@pytest.mark.parametrize("text", ["", "[1]", '{"node": "me", "gflops": 0.0}', "{}"])
def test_a_damaged_result_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / SPEED_NAME).write_text(text)
    desk = Desk(tmp_path)
    found = desk.told(wanted=WantSpeed(1.0, fresh_seconds=1e9))
    assert found is not None and found.gflops > 0 and desk.runs() == 1


def test_another_node_is_asked(tmp_path: Path) -> None:
    said = SpeedSeen(NodeId("somebody"), 7.0, "gpu", unix=NOW)
    desk = Desk(tmp_path, answer=json.dumps(to_plain(said)).encode())
    found = desk.told(OTHER)
    assert found == SpeedSeen(OTHER, 7.0, "gpu", unix=NOW) and desk.asked == [(OTHER, WANTED)]
    assert desk.runs() == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (OperationError("unknown message 'speed'"), None),
        (OperationError("other is not connected"), "not connected"),
        (TimeoutError(), "it has not told it in 51 s"),
        (b"no json", "Expecting value"),
        (b'{"node": 7}', "expected str"),
    ],
)
def test_one_that_tells_nothing(tmp_path: Path, answer: Any, error: str | None) -> None:
    found = Desk(tmp_path, answer=answer).told(OTHER)
    assert (found is None) == (error is None)
    assert error is None or (found is not None and error in found.error)


def test_what_a_node_tells_others(tmp_path: Path) -> None:
    async def served() -> Any:
        fd = await Desk(tmp_path).desk.serve(WANTED)
        try:
            return json.loads(os.pread(fd, 1 << 16, 0))
        finally:
            os.close(fd)

    assert asyncio.run(served())["node"] == ME
