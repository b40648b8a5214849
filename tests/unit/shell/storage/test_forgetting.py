"""What a forgotten job leaves on a node goes, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from elasticd.checkpoints.store import LocalStore
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.removing import remove_tree
from elasticd.shell.children.children import Children
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.storage import forgetting
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.forgetting import Forgetting
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.pins import Pins
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

KINDS = ("work", "clones", "output", "outputs", "logs", "checkpoints")
GONE, OTHER = JobId("gone-1-aaaa"), JobId("other-2-bbbb")


def record(job: JobId, archive: str = "own", forgotten: bool = True) -> JobRecord:
    spec = {"job": {"name": "job"}}
    return JobRecord(job, 1, spec, archive, "finished", forgotten=forgotten)


class Home:
    """A node's home with files of two jobs."""

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, ChildFiles(home)
        self.looks: list[bool] = []
        """Whether a process of the job is there, at each look."""
        self.others = [record(OTHER, "others", forgotten=False)]
        self.changed: list[JobId] = []
        self.pauses: list[float] = []
        for job in (GONE, OTHER):
            for kind in KINDS:
                (home / kind / job).mkdir(parents=True)
                (home / kind / job / "file").touch()
        neighbours = SimpleNamespace(me=NodeId("me"))
        archives = Archives(home / "archives", neighbours, self.files.work_folder, print)  # type: ignore[arg-type]
        for digest in ("own", "others"):
            (home / "archives" / f"{digest}.tar").touch()

        async def changed(job: JobId) -> None:
            self.changed.append(job)

        children = SimpleNamespace(
            files=self.files, runs=lambda job: self.looks.pop(0) if self.looks else False
        )
        self.states = SimpleNamespace(
            store=LocalStore(home / "checkpoints", NodeId("me")),
            archives=archives,
            pins=Pins(),
            changed=changed,
        )
        keeper = OutputKeeper(cast(OutputKeeper, None), print, bool, 1)  # type: ignore[arg-type]
        self.events = EventLog(home / "events", "me/1")
        for number, each in enumerate((GONE, OTHER)):
            self.events.write({"time": float(number), "job": each, "kind": "job_finished"})
        self.forgetting = Forgetting(
            cast(Children, children),
            cast(States, self.states),
            keeper,
            self.events,
            lambda: self.others,
            self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def left(self, job: JobId) -> list[str]:
        return [kind for kind in KINDS if (self.home / kind / job).exists()]

    def told(self) -> list[str]:
        """The jobs of which there are events."""
        return sorted(path.stem for path in (self.home / "events").glob("*-*.events"))

    def archives(self) -> list[str]:
        return sorted(path.stem for path in (self.home / "archives").iterdir())

    def do(self, what: Callable[[], None]) -> None:
        async def run() -> None:
            what()
            await self.forgetting._tasks.ended()

        asyncio.run(run())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_all_of_the_job_goes_and_nothing_of_another(home: Home) -> None:
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and home.left(OTHER) == list(KINDS)
    assert home.archives() == ["others"] and home.changed == [GONE]
    assert home.told() == [OTHER]


def test_for_room_goes_what_takes_most_and_nothing_of_what_runs(home: Home) -> None:
    """The disk is full, so that nothing can be noted; the rest goes once it is."""
    home.looks = [False, True]
    both = [record(GONE), record(OTHER, "others")]
    asyncio.run(home.forgetting.make_room(both))
    assert home.left(GONE) == ["output", "outputs"] and home.left(OTHER) == list(KINDS)
    assert home.told() == [] and home.archives() == ["others", "own"]
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and home.archives() == ["others"]


def test_what_no_record_names_is_removed_when_it_is_asked_for(home: Home) -> None:
    """With archives that no job has: which one was its own nobody knows."""
    asyncio.run(home.forgetting.remove_stray(GONE))
    assert home.left(GONE) == [] and home.left(OTHER) == list(KINDS)
    assert home.archives() == ["others"] and home.changed == [GONE]
    assert home.told() == [OTHER]
    for job in (GONE, JobId("../work"), JobId("..")):
        with pytest.raises(OperationError, match="no job"):
            asyncio.run(home.forgetting.remove_stray(job))
    home.looks = [True]
    with pytest.raises(OperationError, match="runs here still"):
        asyncio.run(home.forgetting.remove_stray(OTHER))
    assert home.left(OTHER) == list(KINDS)


def test_an_archive_that_another_job_was_sent_too_stays(home: Home) -> None:
    home.do(lambda: home.forgetting.forget([record(GONE, "others")]))
    assert home.left(GONE) == [] and home.archives() == ["others", "own"]


def test_its_processes_end_first(home: Home) -> None:
    home.looks = [True, True, False]
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.looks == [] and home.left(GONE) == []


def test_a_daemon_that_starts_removes_what_a_crash_left(home: Home) -> None:
    known = [record(OTHER, "others", forgotten=False), record(GONE)]
    home.do(lambda: home.forgetting.go_on(known))
    assert home.left(GONE) == [] and home.left(OTHER) == list(KINDS)
    home.changed.clear()
    home.do(lambda: home.forgetting.go_on(known))
    assert home.changed == [], "there was nothing any more"


def test_what_could_not_be_removed_is_tried_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []
    whole = remove_tree

    def rmtree(path: Path) -> None:
        tries.append(path)
        if path.parent.name == "clones" and home.pauses[-1:] != [600.0]:
            raise OSError("it is busy")
        whole(path)

    monkeypatch.setattr(forgetting, "remove_tree", rmtree)
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and home.archives() == ["others"]
    assert home.pauses == [*(2.0**n for n in range(10)), 600.0] and len(tries) > 11


def kept(home: Home, digest: str) -> Path:
    """No unlink removes that, whoever asks; so it is on a disk that is read-only."""
    path = home.home / "archives" / f"{digest}.tar"
    path.unlink()
    path.mkdir()
    return path


def test_an_archive_that_the_disk_keeps_ends_nothing_and_is_tried_again(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may lie on another disk than the home: what is raised by that would end the daemon, and
    the next one when it goes on with this."""
    path, slept = kept(home, "own"), home.sleep

    async def sleep(seconds: float) -> None:
        await slept(seconds)
        if len(home.pauses) == 3:
            path.rmdir()

    home.forgetting._sleep = sleep
    home.do(lambda: home.forgetting.go_on([record(GONE)]))
    assert home.left(GONE) == [] and home.archives() == ["others"]
    assert home.pauses == [1.0, 2.0, 4.0]
    out = capsys.readouterr().out
    assert out.count("files of a forgotten job stay") == 1 and str(path) in out
    assert out.count("files of a forgotten job removed") == 1


def test_who_removes_what_no_record_names_hears_of_archives_that_stay(home: Home) -> None:
    path = kept(home, "own")
    (home.home / "archives" / "stray.tar").touch()
    with pytest.raises(OperationError, match=f"files of {GONE} stay: .*{path}"):
        asyncio.run(home.forgetting.remove_stray(GONE))
    assert home.left(GONE) == [] and home.archives() == ["others", "own"]
    assert home.changed == [GONE]


def test_a_disk_that_does_not_say_what_is_there_ends_nothing(home: Home) -> None:
    """As one that is broken, or of a server that is gone; here the path of a folder is none."""
    whole = home.files.of_job

    def of_job(job: JobId) -> tuple[Path, ...]:
        broken = home.pauses == []
        return (Path("x" * 300), *whole(job)) if broken else whole(job)

    home.forgetting._children.files = cast(ChildFiles, SimpleNamespace(of_job=of_job))
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and len(home.pauses) == 1


def test_an_archive_goes_once_no_job_is_about_to_be_known_that_needs_it(home: Home) -> None:
    """A copy that another node has asked for stays for a minute whatever is known here."""

    async def run() -> None:
        with home.states.archives.held("own"):
            home.forgetting.forget([record(GONE)])
            while not home.changed:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert home.archives() == ["others", "own"]
        await home.forgetting._tasks.ended()

    asyncio.run(run())
    assert home.archives() == ["others"] and home.changed == [GONE]


def test_a_link_in_the_place_of_a_folder_is_all_that_goes(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (home.home / "output" / GONE / "file").unlink()
    (home.home / "output" / GONE).rmdir()
    (home.home / "output" / GONE).symlink_to(elsewhere)
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and (elsewhere / "file").exists()


def test_folders_in_each_other_without_end_go(home: Home) -> None:
    below = home.home / "output" / GONE
    for _ in range(1100):
        below = below / "d"
        below.mkdir()
    home.do(lambda: home.forgetting.forget([record(GONE)]))
    assert home.left(GONE) == [] and home.archives() == ["others"]
