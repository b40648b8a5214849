"""What the system refuses while an effect is performed costs a child, and never the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from elasticd.core.words import effects as e
from elasticd.core.words import ring
from elasticd.core.words.processes import CANNOT_BEGIN
from elasticd.core.words.records import JobRecord
from elasticd.core.words.reducers import FROM_REDUCER, ReducerWarm
from elasticd.recovery.signatures import LastMemory
from elasticd.settings.job import JobSpec
from elasticd.shell.children.awake import Awake
from elasticd.shell.children.children import Children
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.server import Child, ChildServer
from elasticd.shell.children.temporary import TemporaryFolders
from elasticd.shell.children.watch import ChildWatch
from elasticd.supervision.exits import wait_without_reaping
from elasticd.supervision.process import OwnProcess
from elasticd.supervision.roster import ChildEntry
from elasticd.types import JobId, NodeId, Role
from tests.unit.core.leading.bench import JOB, world_of
from tests.unit.shell.conftest import BOUND_SECONDS

Run = Callable[[Coroutine[Any, Any, None]], None]
TRAINER, REDUCER = 1, 2
SPEC = {
    "job": {"name": "job", "entrypoint": "train.py"},
    "train": {"steps": 1},
    "batch": {"global": 4, "micro": 4},
}


class Process:
    """One that is never started; it notes what it is sent."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.refuses = False

    def signal(self, number: int) -> None:
        if self.refuses and number != signal.SIGKILL:
            raise PermissionError(1, "Operation not permitted")
        self.signals.append(number)

    def reap(self) -> int | None:
        return -self.signals[-1] if self.signals else 0


class Node:
    """Children under test, with a trainer and a reducer, and what they have posted."""

    def __init__(self, home: Path, awake: Awake | None = None) -> None:
        self.posted: list[e.Event] = []
        self.server = ChildServer(home, lambda *_: None, lambda *_: None)
        self.children = Children(home, ["127.0.0.1"], self.server, self._record, self._post)
        self.children.awake = awake or Awake()
        self.processes = {"trainer": Process(), "reducer": Process()}
        self.made = {role: self._child(home, cast(Role, role)) for role in self.processes}
        self.children.adopt([*self.made.values()])

    def _child(self, home: Path, role: Role) -> Child:
        log = home / "logs" / f"{role}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("printed\n")
        job = JOB if role == "trainer" else ""
        entry = ChildEntry(os.getpid(), 0.0, role, f"nonce of {role}", job, False, str(log))
        return Child(entry, cast(OwnProcess, self.processes[role]))

    def _record(self, job: JobId) -> JobRecord:
        return JobRecord(job, 1, JobSpec.from_dict(SPEC).to_dict(), "digest", "running")

    def _post(self, event: e.Event) -> None:
        self.posted.append(event)

    def close(self) -> None:
        self.children.close()
        for child in self.made.values():
            child._reap()


@contextlib.contextmanager
def no_descriptors(free: int = 0) -> Iterator[None]:
    """So many are ``free``, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


def _file(path: Path) -> None:
    path.write_text("x")


def _dead_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [_file, _dead_link])
@pytest.mark.parametrize("place", ["output", "output/JOB", "cache"])
def test_what_has_the_place_of_a_folder_is_named_by_a_trainer_that_does_not_start(
    tmp_path: Path, run: Run, place: str, put: Callable[[Path], None]
) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        path = tmp_path / place.replace("JOB", JOB)
        path.parent.mkdir(exist_ok=True)
        put(path)
        node.children.start_trainer(e.StartTrainer(7, JOB, spare=False))
        await node.server.disk.flushed(BOUND_SECONDS)
        (exited,) = node.posted
        assert isinstance(exited, e.ChildExited) and exited.status == CANNOT_BEGIN
        assert str(path) in exited.tail and "remove" in exited.tail
        node.close()

    run(main())


@pytest.mark.parametrize("gone", [True, False])
def test_a_reducer_that_is_warm_where_no_address_is_left_is_ended(
    tmp_path: Path, run: Run, gone: bool
) -> None:
    """macOS takes an interface's addresses away with its link. The frame is answered all the same:
    an error would cost the connection, and with it the child's name."""

    async def main() -> None:
        node = Node(tmp_path)
        reducer = node.made["reducer"]
        if gone:
            node.children.hosts = ("192.0.2.7",)  # of a network for examples: nobody's
        warm = FROM_REDUCER.encode(ReducerWarm(proves=True))
        with capture_logs() as lines:
            node.children.on_message(reducer, dict(warm), [])
        ready = [each for each in node.posted if isinstance(each, e.ReducerReady)]
        if gone:
            assert ready == [] and node.processes["reducer"].signals == [signal.SIGKILL]
            node.children.on_exit(reducer, -signal.SIGKILL)
            (exited,) = node.posted
            assert isinstance(exited, e.ChildExited) and exited.child == REDUCER
            assert any("192.0.2.7" in line.get("reason", "") for line in lines)
        else:
            assert len(ready) == 1 and node.processes["reducer"].signals == []
        node.close()

    run(main())


def test_a_reducer_without_a_cache_does_not_start(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        _file(tmp_path / "cache")
        node.children.start_reducer(e.StartReducer(7))
        await node.server.disk.flushed(BOUND_SECONDS)
        (exited,) = node.posted
        assert isinstance(exited, e.ChildExited) and str(tmp_path / "cache") in exited.tail
        node.close()

    run(main())


def test_the_cache_of_a_home_is_made_once_and_found_again(tmp_path: Path) -> None:
    files = ChildFiles(tmp_path)
    assert files.cache_folder() == files.cache_folder() == tmp_path / "cache"


def test_temporary_files_go_with_the_child_whichever_daemon_has_started_it(
    tmp_path: Path, run: Run
) -> None:
    folders = TemporaryFolders(ChildFiles(tmp_path), "linux", "", tmp_path / "absent", None)

    def left() -> set[str]:
        return {each.name for each in (tmp_path / "cache" / "tmp").iterdir()}

    async def main(ended: subprocess.Popen[bytes]) -> None:
        names = {
            nonce: Path(folders.of_child(nonce)).name
            for nonce in ("nonce of trainer", "nonce of reducer", "of one that is dead")
        }
        node = Node(tmp_path)  # which takes over two of them
        await node.children._tasks.ended()
        assert left() == {names["nonce of trainer"], names["nonce of reducer"]}
        trainer = node.made["trainer"]
        trainer.pid = ended.pid
        node.children.kill(e.KillChild(TRAINER, "why"))
        await node.children._tasks.ended()
        late = tmp_path / "cache" / "tmp" / names["nonce of trainer"] / "late"
        late.write_text("written by what it had started")
        node.children.reaped(trainer)
        await node.children._tasks.ended()
        assert left() == {names["nonce of reducer"]}

        node.children._temporary = folders
        (tmp_path / "logs" / "reducer.log").unlink()
        (tmp_path / "logs" / "reducer.log").mkdir()
        node.children.start_reducer(e.StartReducer(7))
        await node.server.disk.flushed(BOUND_SECONDS)
        exited = node.posted[-1]
        assert isinstance(exited, e.ChildExited) and exited.status == 127
        await node.children._tasks.ended()
        assert left() == {names["nonce of reducer"]}, "one that does not start has none either"
        node.close()

    with subprocess.Popen(["true"]) as ended:
        wait_without_reaping(ended.pid)
        run(main(ended))


WORLD = world_of(NodeId("a"), NodeId("b"))


@pytest.mark.parametrize("free", [0, 1, 2, 3, 4])
def test_without_descriptors_a_trainer_that_enters_a_world_ends(
    tmp_path: Path, run: Run, free: int
) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        before = len(os.listdir("/dev/fd"))
        with no_descriptors(free):
            node.children.enter_world(e.EnterWorld(TRAINER, REDUCER, WORLD, 0), tmp_path)
        assert node.processes["trainer"].signals == [signal.SIGKILL]
        node.children.on_exit(node.made["trainer"], -9)
        (exited,) = node.posted
        assert isinstance(exited, e.ChildExited) and exited.tail.startswith("printed\n")
        assert "Too many open files" in exited.tail
        node.close()
        assert len(os.listdir("/dev/fd")) == before

    run(main())


def test_without_descriptors_a_reducer_is_not_told_and_ends(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        node.children.enter_world(e.EnterWorld(TRAINER, REDUCER, WORLD, 0), tmp_path)
        order = ring.FormRing(WORLD.generation, 0, 2, ("a:1", "b:2"), "exact")
        with no_descriptors():
            node.children.form_reducer(e.FormReducer(REDUCER, WORLD, 0, order))
        assert node.processes["reducer"].signals == [signal.SIGKILL]
        node.close()

    run(main())


def test_without_descriptors_a_trainer_that_is_given_a_state_ends(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        states = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
        with no_descriptors(1):
            node.children.load(TRAINER, WORLD.generation, states)
        with no_descriptors(1):
            node.children.prepare(TRAINER, 1, [os.open(os.devnull, os.O_RDONLY)])
        assert node.processes["trainer"].signals == [signal.SIGKILL, signal.SIGKILL]
        for state in states:
            with pytest.raises(OSError):
                os.fstat(state)
        node.close()

    run(main())


@pytest.mark.parametrize(
    "effect",
    [
        e.KillChild(REDUCER, "why", graceful=True),
        ring.StopReducer(REDUCER),
        ring.ContinueReducer(REDUCER),
    ],
)
def test_a_signal_that_is_refused_is_followed_by_one_that_is_not(
    tmp_path: Path, run: Run, effect: Any
) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        node.processes["reducer"].refuses = True
        if isinstance(effect, e.KillChild):
            node.children.kill(effect)
        else:
            node.children.engines.perform(effect)
        assert node.processes["reducer"].signals == [signal.SIGKILL]
        node.close()

    run(main())


def test_a_child_whose_log_cannot_be_read_has_ended_all_the_same(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        node.made["trainer"].log.unlink()
        node.made["trainer"].log.mkdir()
        node.children.on_exit(node.made["trainer"], 1)
        (exited,) = node.posted
        assert isinstance(exited, e.ChildExited) and "can't be read" in exited.tail
        node.close()

    run(main())


class BlindWatch(ChildWatch):
    """Nothing can be asked of what it looks at."""

    def last_seen(self, pid: int, now: float | None = None) -> LastMemory | None:
        raise SystemError("returned a result with an exception set")


def test_a_child_that_cannot_be_looked_at_has_ended_all_the_same(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append(context["message"])
        )
        node = Node(tmp_path)
        node.children.watch = BlindWatch(list, lambda child, seconds: None)
        node.children.on_exit(node.made["trainer"], -9)
        (exited,) = node.posted
        assert isinstance(exited, e.ChildExited) and exited.status == -9
        assert (exited.memory, exited.tail) == (None, "printed")
        assert told == ["looking at a process that has ended failed"]
        node.close()

    run(main())


def test_a_log_that_cannot_be_renamed_costs_a_spare_nothing(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        one = node.children._running[TRAINER]
        spare = tmp_path / "logs" / "1-spare.log"
        one.log.path.rename(spare)
        one.log.path = spare
        (tmp_path / "logs" / "1-trainer.log").mkdir()
        node.children.enter_world(e.EnterWorld(TRAINER, None, WORLD, 0), tmp_path)
        await node.children._tasks.ended()
        assert node.processes["trainer"].signals == [] and len(node.made["trainer"]._early) == 1
        node.close()

    run(main())
