"""What fails in the background is told, and what a daemon does all its life is begun again."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import elasticd.shell
from elasticd.core.jobs.notices import Around
from elasticd.core.words.records import JobRecord
from elasticd.settings.config import NodeConfig
from elasticd.settings.notify import NotifyRules
from elasticd.settings.places import FILE_NAME
from elasticd.shell.assembly.daemon import Daemon
from elasticd.shell.assembly.pulse import LoopPulse
from elasticd.shell.assembly.renewing import Renewing, Surroundings
from elasticd.shell.children import watch as childwatch
from elasticd.shell.children.watch import ChildWatch
from elasticd.shell.control import noticedesk
from elasticd.shell.control.jobsfolder import ItsId, JobsFolder
from elasticd.shell.control.noticedesk import NoticeDesk
from elasticd.shell.control.settingswatch import SettingsWatch
from elasticd.shell.network import accepting, minder
from elasticd.shell.network.bonjourwatch import BonjourWatch
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers, scrub
from elasticd.shell.storage.forgetting import Forgetting
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.tasks import FailureCount, Tasks, reason
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import JobId, NodeId
from tests.members import member
from tests.unit.shell.network.daemons import Daemon as Connected
from tests.unit.shell.network.daemons import running
from tests.unit.shell.storage.storednode import Node

SHELL = Path(elasticd.shell.__file__).parent
WAIT = 30.0

WAITED_FOR = {
    "controlplane.py: _begin": "_write tells the daemon of every exception",
    "assembly/endings.py: _refusal": "is waited for",
    "assembly/rotating.py: asked": "is waited for, unless who asks leaves",
    "network/transfer.py: answer": "_ready waits for it, or closes what comes",
    "network/transfer.py: _ready": "is waited for",
    "control/outputdesk.py: _path": "is waited for",
    "control/admission.py: admit": "is waited for, unless the guest leaves",
    "control/renewing.py: renew": "is waited for, unless the member leaves",
    "control/answers.py: in_time": "is waited for, or cancelled when it is late",
    "control/givingway.py: given_way": "is waited for",
    "control/inventory.py: verify": "is waited for",
    "control/noticedesk.py: rounds": "a group, which is waited for",
    "control/server.py: _serve": "its end ends who reads from it",
    "network/mdns.py: find": "a thread waits for it",
    "storage/outputkeeper.py: enters": "_take_over waits for it",
    "storage/outputkeeper.py: _put": "is waited for",
    "storage/outputkeeper.py: _to_its_end": "is waited for",
    "storage/spreading.py: spread": "is waited for",
    "storage/states.py: call": "a thread waits for it",
    "storage/verifying.py: answer": "is waited for, or nobody wants it any more",
}
"""Where tasks are made otherwise, and why no failure is lost."""

MAKE = {"create_task", "ensure_future", "run_coroutine_threadsafe"}


def calls(names: set[str]) -> Iterator[tuple[str, ast.Call]]:
    """``file: function`` of each call of a method of that name in the daemon."""

    def within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = child.name
            called = child.func if isinstance(child, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in names:
                yield inner, cast(ast.Call, child)
            yield from within(child, inner)

    for path in sorted(SHELL.rglob("*.py")):
        if path != SHELL / "tasks.py":
            for function, call in within(ast.parse(path.read_text()), ""):
                yield f"{path.relative_to(SHELL)}: {function}", call


def test_each_task_is_one_whose_failure_is_told() -> None:
    """Begin new ones with elasticd.shell.tasks.Tasks, or say here who waits for them."""
    assert {where for where, _ in calls(MAKE)} == set(WAITED_FOR)


class Told:
    """What the loop was told."""

    def __init__(self) -> None:
        self.failures = FailureCount()
        self.news = asyncio.Queue[str]()
        asyncio.get_running_loop().set_exception_handler(self.hear)

    def hear(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.add(str(context["message"]), context.get("exception"))
        self.news.put_nowait(str(self.failures.last))


class Planted:
    """Fails the first time with what nobody has thought of, and then does what it is to."""

    def __init__(self, then: Callable[..., Any] = lambda *args: None) -> None:
        self._then, self.calls, self.again = then, 0, asyncio.Event()

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise LookupError("planted")
        self.again.set()
        return self._then(*args)


Plant = Callable[[Path, pytest.MonkeyPatch], AsyncIterator[Planted]]


async def in_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted = Planted()
    (home / FILE_NAME).write_text("quota_bytes = 1000\n")
    watch = SettingsWatch(home, home / FILE_NAME, NodeConfig(), planted, lambda *told: None)
    watch.start()
    yield planted
    await watch.close()


async def in_jobs_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted = Planted(lambda folder: [])
    monkeypatch.setattr("elasticd.shell.control.jobsfolder.find_jobs", planted)
    jobs = await JobsFolder.start(home / "jobs", cast(Any, None))
    yield planted
    await jobs.close()


@contextlib.asynccontextmanager
async def scrubbing(home: Path, planted: Planted, name: str) -> AsyncIterator[None]:
    node = Node(home)
    scrubber = Scrubber(node.states, lambda: [], round_seconds=0.0, retry_seconds=0.01)

    async def fail() -> Any:
        return planted()

    if name == "root":

        class Store:
            root = property(planted)

        scrubber._states = cast(Any, type("States", (), {"store": Store()})())
        scrubber._tasks.keep("noticing what changes among the checkpoints", scrubber._observe)
    else:
        scrubber._all = fail  # type: ignore[method-assign]
        loop = {"_rounds": "reading all checkpoints again", "_watch": "repairing checkpoints"}[name]
        scrubber._tasks.keep(loop, getattr(scrubber, name))
    yield
    await scrubber.close()


async def in_observe(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted = Planted(lambda store: home / "checkpoints")
    async with scrubbing(home, planted, "root"):
        yield planted


async def in_rounds(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted = Planted(lambda: [])
    async with scrubbing(home, planted, "_rounds"):
        yield planted


async def in_repairs(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    monkeypatch.setattr(scrub, "SETTLE_SECONDS", 0.0)
    planted = Planted(lambda: [])
    async with scrubbing(home, planted, "_watch"):
        yield planted


async def in_child_watch(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    monkeypatch.setattr(childwatch, "LOOK_SECONDS", 0.01)
    planted = Planted(lambda: [])
    watch = ChildWatch(planted, lambda child, seconds: None)
    watch.start()
    yield planted
    watch.close()


async def in_minder(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    monkeypatch.setattr(minder, "PING_SECONDS", 0.01)
    planted, one = Planted(lambda: {}.values()), Connected("a")
    runs = type("Runs", (dict,), {"values": lambda self: planted()})
    one.peers._table.runs = runs()
    async with running(one):
        yield planted


async def in_accepting(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted, acceptor = Planted(), Connected("a").peers._acceptor

    class Listening(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            planted()
            return super().accept()

    async def bind(address: str) -> list[socket.socket]:
        listening = Listening()
        listening.bind(("127.0.0.1", 0))
        return [listening]

    acceptor.bind = bind
    await acceptor._serve_at("127.0.0.1:0")
    yield planted
    await acceptor.stop()


async def in_listening_later(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    monkeypatch.setattr(accepting, "LISTEN_AGAIN_SECONDS", 0.0)
    acceptor = Connected("a").peers._acceptor

    async def bind(address: str) -> Any:
        return planted(address)

    planted = Planted(lambda address: [])
    acceptor.bind = bind
    acceptor._kept.keep(
        "listening at addresses that come later", lambda: acceptor._serve_later(["10.0.0.1:1"])
    )
    yield planted
    await acceptor.stop()


async def in_bonjour(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted, tasks = Planted(), Tasks("looking for others by Bonjour")
    unused: Any = None
    watch = BonjourWatch(planted, unused, unused, unused)
    tasks.keep("looking for others by Bonjour", watch.rounds)
    yield planted
    await tasks.cancel()


async def in_forgetting(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    async def gone(*what: Any) -> tuple[bool, str]:
        return True, ""

    planted = Planted(lambda job: False)
    lock = SimpleNamespace(forget=lambda job: asyncio.Lock())
    states = SimpleNamespace(archives=SimpleNamespace(remove=gone))
    events = SimpleNamespace(forget=list)
    parts: Any = (SimpleNamespace(runs=planted), states, lock, events, lambda: [])
    forgetting = Forgetting(*parts)
    forgetting._remove = lambda job: (False, [])  # type: ignore[method-assign]
    forgetting.forget([JobRecord(JobId("job-1"), 1, {}, "", "failed")])
    yield planted
    await forgetting._tasks.ended()


async def in_renewing(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Planted]:
    planted = Planted(lambda: [])
    papers.write(home, own := member("a"))
    credentials = Credentials(own, *papers.shown(home), Revoked())
    credentials.renewal = Renewal(credentials.own.serial)
    nobody: Any = SimpleNamespace(dialled=list, dial_now=lambda: None)
    around = Surroundings(lambda: nobody, planted, lambda _: None, lambda _: None, lambda: None)
    renewing = Renewing(home, credentials, "h:1", around)
    renewing.start()
    yield planted
    await renewing.close()


PLANTS: dict[str, Plant] = {
    "renewing this node's certificate": in_renewing,
    "removing the files of a forgotten job": in_forgetting,
    "following elasticd.toml": in_settings,
    "looking into the jobs folder": in_jobs_folder,
    "noticing what changes among the checkpoints": in_observe,
    "reading all checkpoints again": in_rounds,
    "repairing checkpoints": in_repairs,
    "looking at this node's processes": in_child_watch,
    "judging the connections of peers": in_minder,
    "accepting connections": in_accepting,
    "listening at addresses that come later": in_listening_later,
    "looking for others by Bonjour": in_bonjour,
}


def test_each_task_of_a_daemons_life_has_its_plant() -> None:
    kept = [call.args[0] for _, call in calls({"keep"}) if len(call.args) == 2]
    named = {each.value for each in kept if isinstance(each, ast.Constant)}
    assert named == set(PLANTS)


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize("what", PLANTS)
def test_what_fails_is_told_and_goes_on(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        told = Told()
        async with asyncio.timeout(WAIT):
            async with contextlib.asynccontextmanager(PLANTS[what])(tmp_path, monkeypatch) as it:
                assert await told.news.get() == (
                    f"{what} failed, and is begun again: LookupError: planted"
                )
                await it.again.wait()
        assert told.failures.count == 1

    asyncio.run(main())


@pytest.mark.usefixtures("soon_quiet")
def test_a_job_that_nobody_has_thought_of_keeps_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        told, taken = Told(), asyncio.Event()

        async def submit(toml: Path, its_id: ItsId) -> JobId:
            if toml.parent.name == "a":
                raise LookupError("planted")
            taken.set()
            return JobId("job-1")

        for name in ("a", "b"):
            (tmp_path / "made" / name).mkdir(parents=True)
            (tmp_path / "made" / name / "job.toml").write_text(name)
        (tmp_path / "made").rename(tmp_path / "jobs")
        jobs = await JobsFolder.start(tmp_path / "jobs", submit)
        async with asyncio.timeout(WAIT):
            await taken.wait()
        await jobs.close()
        assert told.failures.last == (
            "taking a in the jobs folder failed, and is tried again: LookupError: planted"
        )

    asyncio.run(main())


def test_notices_go_on_after_one_that_nobody_has_thought_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each chore of the daemon, which begins them all in one way."""
    monkeypatch.setattr(noticedesk, "LOOK_SECONDS", 0.0)

    class Events:
        async def happening(self, since: float) -> AsyncIterator[tuple[dict[str, Any], bool]]:
            await asyncio.Event().wait()
            yield {}, False

    async def main() -> None:
        told = Told()
        planted = Planted(lambda: Around(NodeId("a"), NodeId("a"), {}))
        rules = NotifyRules(job_failed=("/bin/x",))
        desk = NoticeDesk(rules, "lab", cast(Any, Events()), planted, lambda *args: None)
        chores = Tasks("a chore")
        chores.keep("telling people of events", desk.rounds)
        async with asyncio.timeout(WAIT):
            await planted.again.wait()
        await chores.cancel()
        assert told.failures.last == (
            "telling people of events failed, and is begun again: LookupError: planted"
        )

    asyncio.run(main())


def test_pauses_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        told, slept = Told(), list[float]()
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            slept.append(seconds)
            await sleep(0)

        monkeypatch.setattr("tenacity.asyncio._portable_async_sleep", noted)
        monkeypatch.setattr(asyncio, "sleep", noted)
        left = iter(range(12))

        async def work() -> None:
            if next(left, None) is not None:
                raise LookupError("planted")

        tasks = Tasks("some work")
        await tasks.keep("some work", work)
        assert told.failures.count == 12 and len(tasks) == 0
        assert slept[:3] == [0.1, 0.2, 0.4] and slept[-1] == slept[-2] == 30.0

    asyncio.run(main())


def test_what_is_done_once_is_told_too_and_what_is_ended_is_not() -> None:
    async def main() -> None:
        told, tasks = Told(), Tasks("some work")

        async def fail() -> None:
            raise OSError(5, "bad", "/disk")

        tasks.start(fail())
        assert await told.news.get() == "some work failed: OSError: [Errno 5] bad: '/disk'"
        tasks.start(asyncio.sleep(3600, None))
        tasks.keep("more", asyncio.Event().wait)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        tasks.stop()
        await tasks.ended()
        assert told.failures.count == 1 and len(tasks) == 0

    asyncio.run(main())


def test_the_daemon_counts_what_its_loop_is_told() -> None:
    """What ``status`` has; it goes on."""

    class Loop:
        _pulse = LoopPulse()

    daemon, loop = cast(Daemon, Loop()), asyncio.new_event_loop()
    assert daemon._pulse.plain()["failures"] == 0 and daemon._pulse.plain()["last_failure"] is None
    error = BaseExceptionGroup("some", [LookupError("x"), ValueError("y")])
    Daemon._uncaught(daemon, loop, {"message": "it failed", "exception": error})
    assert daemon._pulse.plain()["failures"] == 1
    assert daemon._pulse.plain()["last_failure"] == "it failed: LookupError: x; ValueError: y"
    loop.close()


def test_what_a_disk_refuses_is_said_with_the_path() -> None:
    """It is why a checkpoint is not stored, say."""
    assert reason("x", OSError(28, "No space left", "/data/x")) == "/data/x: No space left"
