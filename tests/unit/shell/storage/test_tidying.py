"""What ``[keep]`` does not keep goes from the disk, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words.records import JobRecord, JobState
from elasticd.removing import remove_tree
from elasticd.settings.keep import KeepRules
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.diskdesk import summed
from elasticd.shell.storage import tidying
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.tidying import Tidying
from elasticd.shell.storage.usage import OF_JOBS, RECREATED, measure
from elasticd.types import JobId
from tests.unit.nested import nest

OLD, NEW, LIVE, ENDING = JobId("old-1"), JobId("new-2"), JobId("live-3"), JobId("ending-4")
STATES: dict[JobId, JobState] = {
    OLD: "finished", NEW: "failed", LIVE: "running", ENDING: "cancelled",
}  # fmt: skip
DAY = 86_400.0
ALL = KeepRules(days=0, jobs=0, bytes=0, log_bytes=0)


class Home:
    """A node's home with files of four jobs; the first two share an archive with nobody."""

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, ChildFiles(home)
        self.forgotten: list[JobId] = []
        self.open: set[Path] = set()
        self.archives: dict[JobId, str] = {}
        """Of those that have another's."""
        self.meanwhile: list[JobRecord] = []
        """Submitted while files are removed."""
        for number, job in enumerate(STATES):
            for folder in OF_JOBS.values():
                (home / folder / job).mkdir(parents=True)
                (home / folder / job / "0000000000001-trainer.log").write_bytes(b"x" * 10_000)
            (home / "archives").mkdir(exist_ok=True)
            (home / "archives" / f"digest-{number}.tar").write_bytes(b"x" * 5000)

    def tidy(self, rules: KeepRules) -> None:
        known = [
            JobRecord(
                job, n, {"job": {"name": "job"}}, self.archives.get(job, f"digest-{n}"), STATES[job]
            )
            for n, job in enumerate(STATES)
        ]
        now = unix_seconds()
        ended = {OLD: now - 100 * DAY, NEW: now - DAY, ENDING: now - 200 * DAY}
        children = SimpleNamespace(
            files=self.files,
            runs=lambda job: job == ENDING,
            open_logs=lambda: self.open,
        )
        none = cast(Any, None)
        archives = Archives(self.home / "archives", none, none, none)

        def records() -> list[JobRecord]:
            removed = not (self.home / OF_JOBS[RECREATED[0]] / OLD).exists()
            return [*known, *(self.meanwhile if removed else [])]

        one = Tidying(
            self.home, rules, records, ended.get, cast(Any, children), archives,
            self.forgotten.extend,
        )  # fmt: skip
        asyncio.run(one.tidy())

    def has(self, job: JobId) -> set[str]:
        return {kind for kind, folder in OF_JOBS.items() if (self.home / folder / job).exists()}


def test_by_default_results_stay(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.tidy(KeepRules())
    assert home.has(OLD) == set(OF_JOBS) - set(RECREATED) and not home.forgotten
    for job in (NEW, LIVE, ENDING):
        assert home.has(job) == set(OF_JOBS), job
    archives = sorted(path.name for path in (tmp_path / "archives").iterdir())
    assert archives == ["digest-1.tar", "digest-2.tar", "digest-3.tar"]


def test_the_archive_of_a_job_that_is_submitted_again_meanwhile_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    again = JobRecord(JobId("again"), 9, {"job": {"name": "job"}}, "digest-0", "queued")
    home.meanwhile = [again]
    home.tidy(KeepRules())
    assert home.has(OLD) == set(OF_JOBS) - set(RECREATED)
    assert (tmp_path / "archives" / "digest-0.tar").exists()


def removed(capsys: pytest.CaptureFixture[str]) -> int:
    return capsys.readouterr().out.count("files of an ended job removed")


@pytest.mark.parametrize("job", [NEW, LIVE])
def test_what_went_is_said_once_though_another_job_has_its_archive(
    tmp_path: Path, job: JobId, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    home.archives = {job: "digest-0"}
    home.tidy(KeepRules())
    assert removed(capsys) == 1 and home.has(OLD) == set(OF_JOBS) - set(RECREATED)
    assert (tmp_path / "archives" / "digest-0.tar").exists()
    home.tidy(KeepRules())
    assert removed(capsys) == 0


def test_an_archive_goes_with_the_last_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    home.archives = {NEW: "digest-0"}
    home.tidy(KeepRules())
    home.tidy(replace(ALL, bytes=1))
    assert removed(capsys) == 2 and home.has(NEW) == set(OF_JOBS) - set(RECREATED)
    assert not (tmp_path / "archives" / "digest-0.tar").exists()


@pytest.mark.parametrize("rules", [KeepRules(), replace(ALL, bytes=1)])
def test_folders_in_each_other_without_end_go_with_their_job(
    tmp_path: Path, rules: KeepRules
) -> None:
    home = Home(tmp_path)
    nest(tmp_path / "clones" / OLD / "0", "d", 1100)
    nest(tmp_path / "clones" / LIVE / "0", "d", 1100)
    took = measure(tmp_path)["clones"]
    assert took[OLD] == took[LIVE] > took[ENDING]
    home.tidy(rules)
    assert home.has(OLD) == set(OF_JOBS) - set(RECREATED) and home.has(LIVE) == set(OF_JOBS)
    remove_tree(tmp_path / "clones" / LIVE)  # pytest itself couldn't


def test_a_folder_that_a_script_has_closed_goes_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    nest(tmp_path / "clones" / OLD, "closed", 1)
    (tmp_path / "clones" / OLD / "closed").chmod(0o555)
    home.tidy(KeepRules())
    assert home.has(OLD) == set(OF_JOBS) - set(RECREATED)


def test_what_of_a_job_stays_keeps_no_more_of_it_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)

    def busy(path: Path) -> None:
        if path.parent.name == "work":
            raise OSError("it is busy")
        remove_tree(path)

    monkeypatch.setattr(tidying, "remove_tree", busy)
    home.tidy(KeepRules())
    assert home.has(OLD) == set(OF_JOBS) - set(RECREATED) | {"work"}
    assert "files of an ended job stay" in capsys.readouterr().out


def test_without_results_the_cluster_forgets_the_job(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.tidy(replace(KeepRules(), results=False))
    assert home.forgotten == [OLD]
    assert home.has(OLD) == set(OF_JOBS), "each node removes the files when it hears of it"


def test_without_limits_nothing_goes(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = measure(tmp_path)
    home.tidy(ALL)
    home.tidy(replace(ALL, results=False))
    assert measure(tmp_path) == before and not home.forgotten


def test_a_running_jobs_log_loses_its_oldest_parts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    logs = tmp_path / "logs" / LIVE
    first, second, third = (logs / f"000000000000{n}-trainer.log" for n in (1, 2, 3))
    for path in (second, third):
        path.write_bytes(b"x" * 10_000)
    home.open = {third}
    home.tidy(replace(ALL, log_bytes=1))
    assert [path.exists() for path in (first, second, third)] == [False, False, True]
    assert home.has(NEW) == set(OF_JOBS)


def test_what_goes_of_a_log_is_counted_in_bytes(tmp_path: Path) -> None:
    """Blocks of the disk are more, and who follows would see lines twice."""
    home = Home(tmp_path)
    logs, files = tmp_path / "logs" / LIVE, ChildFiles(tmp_path)
    for number, size in ((1, 40), (2, 20)):
        (logs / f"000000000000{number}-trainer.log").write_bytes(b"x" * size)
    home.open = {logs / "0000000000002-trainer.log"}
    home.tidy(replace(ALL, log_bytes=1))
    assert files.dropped(LIVE) == 40
    assert files.printed(LIVE, 45, 100, counted=True) == b"x" * 15


def test_what_takes_the_space_is_told_by_kind_and_by_job(tmp_path: Path) -> None:
    Home(tmp_path)
    (tmp_path / "checkpoints" / NEW / "big").write_bytes(b"x" * 100_000)
    told = summed(measure(tmp_path))
    assert told["jobs"][0]["job"] == NEW and told["kinds"][0]["kind"] == "checkpoints"
    assert told["bytes"] == sum(each["bytes"] for each in told["kinds"])
    assert {each["job"] for each in told["jobs"]} == set(STATES)
    assert summed(measure(tmp_path / "none")) == {
        "bytes": 0, "kinds": [], "jobs": [], "other_jobs": 0, "other_bytes": 0,
    }  # fmt: skip


def test_a_part_of_a_log_that_the_disk_keeps_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The logs may lie on another disk than the home."""
    home = Home(tmp_path)
    kept = tmp_path / "logs" / LIVE / "0000000000001-trainer.log.1"
    kept.mkdir()  # no unlink removes it

    class Files(ChildFiles):
        def shown_logs(self, job: JobId) -> list[Path]:
            return [kept, *super().shown_logs(job)]

    home.files = Files(tmp_path)
    home.tidy(replace(ALL, log_bytes=1))
    out = capsys.readouterr().out
    assert out.count("old parts of a log stay") == 1 and str(kept) in out
