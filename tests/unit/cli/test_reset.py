"""elasticctl reset, on homes that no daemon has open."""

from __future__ import annotations

import errno
import json
import os
import pty
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd import archive
from elasticd.checkpoints.apart import SIGN, is_another, note_of
from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.errors import DamageError
from elasticd.shell.control.server import lock_home
from elasticd.shell.storage import founding, journal, ownsigns, whereabouts
from elasticd.shell.storage.durable import write_durable
from elasticd.shell.storage.records import StableRecords
from elasticd.types import JobId, NodeId
from tests.unit.cli.test_health import Ctl, damage, examined, lived


def jobs_of(home: Path) -> list[str]:
    records = StableRecords(home)
    try:
        return [record.id for record in records.recover().records]
    finally:
        records.close()


def name(home: Path, number: int, peers: list[int]) -> None:
    """Have its elasticd.toml name a node and its peers."""
    others = json.dumps([f"127.0.0.1:{7100 + peer}" for peer in peers])
    (home / "elasticd.toml").write_text(
        f'node_id = "n{number}"\nlisten = "127.0.0.1:{7100 + number}"\npeers = {others}\n'
    )


def test_the_only_node_keeps_a_job_that_has_not_ended(ctl: Ctl, home: Path) -> None:
    damage(lived(home))
    code, out, _ = ctl("reset", "--yes", "--keep-jobs", "--home", str(home))
    assert code == 0 and "1 job is kept" in out and out.endswith("Start the daemon again.\n")
    assert jobs_of(home) == ["a-1"]


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_jobs_that_have_ended_hinder_no_reset(ctl: Ctl, home: Path, state: Any) -> None:
    lived(home)
    records = StableRecords(home)
    records.persist("job", JobRecord(JobId("a-1"), 1, {"job": {"name": "a"}}, "0" * 64, state))
    records.close()
    code, out, _ = ctl("reset", "--yes", "--home", str(home))
    assert code == 0 and out.endswith("Start the daemon again.\n")


def test_a_reset_by_mistake_is_taken_back_with_the_archives(ctl: Ctl, home: Path) -> None:
    lived(home)
    data = b"the job's folder"
    needed = home / "archives" / f"{archive.digest(data)}.tar"
    needed.write_bytes(data)
    records = StableRecords(home)
    records.persist(
        "job", JobRecord(JobId("b-2"), 2, {"job": {"name": "b"}}, needed.stem, "queued")
    )
    records.close()
    other = home / "archives" / f"{'1' * 64}.tar"
    for _ in range(2):
        other.write_bytes(b"of a job that has ended")
        code, out, _ = ctl("reset", "--yes", "--home", str(home))
        assert code == 0 and needed.read_bytes() == data and not other.exists()
        assert jobs_of(home) == []
    code, out, _ = ctl("reset", "--yes", "--home", str(home))
    assert code == 0 and "no other node" not in out, "nothing was at stake"
    assert ctl("reset", "--yes", "--keep-jobs", "--home", str(home))[0] == 0
    assert jobs_of(home) == ["a-1", "b-2"] and needed.read_bytes() == data
    code, out, _ = ctl("reset", "--yes", "--home", str(home))
    assert "It knows no more of 2 jobs that have not ended, and no other node does." in out
    command = out.split("'")[1]
    assert ctl(*shlex.split(command)[1:], "--yes")[0] == 0 and jobs_of(home) == ["a-1", "b-2"]


def test_the_others_tell_the_jobs_only_if_there_are_others(ctl: Ctl, home: Path) -> None:
    nodes = [home / f"node-{each}" for each in range(2)]
    for number, each in enumerate(nodes):
        lived(each)
        name(each, number, [1 - number])
    code, out, _ = ctl("reset", "--yes", "--home", str(nodes[0]))
    assert code == 0 and "The other nodes tell it the jobs. If none is left that has 1 job" in out
    code, out, _ = ctl("reset", "--yes", "--home", str(home))
    assert code == 0 and "It knows no more of 1 job that has not ended, and no other" in out
    name(nodes[0], 0, [1, 2])
    code, out, _ = ctl("reset", "--yes", "--home", str(home))
    assert code == 0 and out.endswith("The other nodes tell it the jobs.\n")


def test_a_node_that_let_others_in_is_not_the_only_one(ctl: Ctl, home: Path) -> None:
    """Its elasticd.toml names none of them."""
    lived(home)
    founding.found(home, NodeId("n"))
    path = home / "cluster" / whereabouts.FILE_NAME
    write_durable(path, b'{"n": ["127.0.0.1:7070"]}')
    assert "no other node does" in ctl("reset", "--yes", "--home", str(home))[1]
    write_durable(path, b'{"n": ["127.0.0.1:7070"], "m": ["10.0.0.2:7070"]}')
    assert "The other nodes tell it" in ctl("reset", "--yes", "--home", str(home))[1]
    records = StableRecords(home)
    records.persist("node", NodeRecord(NodeId("m"), 1, forgotten=True))
    records.persist("job", JobRecord(JobId("b-2"), 2, {"job": {"name": "b"}}, "0" * 64, "queued"))
    records.close()
    code, out, _ = ctl("reset", "--yes", "--json", "--home", str(home))
    said = json.loads(out)
    assert (code, said["unended"], said["lone"]) == (0, ["b-2"], True), "m was forgotten"


def test_where_others_were_may_be_damaged(
    ctl: Ctl, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lived(home)
    founding.found(home, NodeId("n"))
    write_durable(home / "cluster" / whereabouts.FILE_NAME, b"\xff")
    code, out, _ = ctl("reset", "--yes", "--json", "--home", str(home))
    assert code == 0 and json.loads(out)["unended"] == ["a-1"]
    assert "not known" not in capfd.readouterr().out


def test_who_is_asked_is_told_what_would_be_gone(
    ctl: Ctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(home)
    main, terminal = pty.openpty()
    with open(terminal) as stdin, open(main, "wb", buffering=0) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        for answer, jobs in ((b"n\n", ["a-1"]), (b"y\n", [])):
            keys.write(answer)
            _, out, _ = ctl("reset", "--home", str(home))
            assert "No other node has 1 job that has not ended: without --keep-jobs" in out
            assert jobs_of(home) == jobs


def test_the_daemon_itself_names_the_way_of_the_only_node(home: Path) -> None:
    damage(lived(home))
    with pytest.raises(DamageError, match="If there is no other node, add --keep-jobs"):
        StableRecords(home)


def test_reset_begins_anew_and_keeps_what_cannot_be_had_again(ctl: Ctl, home: Path) -> None:
    journal = lived(home)
    damage(journal)
    bad = journal.read_bytes()
    code, out, _ = ctl("reset", "--yes", "--json", "--home", str(home))
    (done,) = json.loads(out)["nodes"]
    assert code == 0 and done["jobs"] == 0
    assert (home / "journal.lost").read_bytes() == bad
    assert {p.name for p in home.iterdir()} >= {"checkpoints", "output", "elasticd.toml"}
    assert not (home / "events").exists() and not (home / "work").exists()
    records = StableRecords(home)
    stable = records.recover()
    records.close()
    assert stable.lost and stable.records == ()
    assert examined(ctl, home)[0] == 0


def test_reset_keeps_the_jobs_that_are_readable_if_told(ctl: Ctl, home: Path) -> None:
    damage(lived(home))
    assert ctl("reset", "--yes", "--keep-jobs", "--checkpoints", "--home", str(home))[0] == 0
    records = StableRecords(home)
    stable = records.recover()
    records.close()
    assert [record.id for record in stable.records] == ["a-1"] and stable.lost
    assert (home / "archives").exists() and not (home / "checkpoints").exists()


@pytest.fixture
def full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's disk is, while the checkpoints are there."""

    def durable(path: Path, data: Any) -> None:
        if (home / "checkpoints" / "a-1").exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_durable(path, data)

    monkeypatch.setattr(journal, "write_durable", durable)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("keep", [False, True])
def test_on_a_full_disk_what_goes_anyway_makes_room_for_the_new_journal(
    ctl: Ctl, home: Path, keep: bool
) -> None:
    old = lived(home).read_bytes()
    words = ["--keep-jobs"] if keep else []
    code, out, err = ctl("reset", "--checkpoints", "--yes", "--json", *words, "--home", str(home))
    assert code == 0, err
    (done,) = json.loads(out)["nodes"]
    assert jobs_of(home) == ["a-1"] * keep and {*done["removed"]} >= {"checkpoints", "work"}
    assert done["journal"] == str(home / "journal.lost") and Path(done["journal"]).is_file()
    assert (home / "journal.lost").read_bytes() == old


@pytest.mark.usefixtures("full")
def test_a_reset_that_a_full_disk_has_cut_short_is_done_by_another(ctl: Ctl, home: Path) -> None:
    lived(home)
    code, _, err = ctl("reset", "--keep-jobs", "--yes", "--home", str(home))
    assert code == 1 and "No space left" in err and (home / "checkpoints" / "a-1").exists()
    words = ("reset", "--keep-jobs", "--checkpoints", "--yes", "--home", str(home))
    assert ctl(*words)[0] == 0 and jobs_of(home) == ["a-1"]


def test_a_second_reset_keeps_what_the_first_has_put_aside_and_can_take_it_back(
    ctl: Ctl, home: Path
) -> None:
    first = lived(home).read_bytes()
    for _ in range(2):
        assert ctl("reset", "--yes", "--home", str(home))[0] == 0
    assert (home / "journal.lost").read_bytes() == first
    second = (home / "journal.lost-2").read_bytes()
    (home / "journal").write_bytes(second)  # as of a reset that was cut short
    (home / "journal.lost-2.partial").write_bytes(b"")
    code, out, _ = ctl("reset", "--keep-jobs", "--yes", "--json", "--home", str(home))
    (done,) = json.loads(out)["nodes"]
    assert (code, done["jobs"], done["journal"]) == (0, 1, str(home / "journal.lost-2"))
    assert done["jobs_from"] == str(home / "journal.lost")
    records = StableRecords(home)
    assert [record.id for record in records.recover().records] == ["a-1"]
    records.close()
    aside = [str(home / name) for name in ("journal.lost", "journal.lost-2")]
    code, findings = examined(ctl, home)
    assert code == 0 and [each["path"] for each in findings] == aside
    code, out, _ = ctl("reset", "--keep-jobs", "--yes", "--home", str(home))
    assert "1 job is kept; the old" in out and (home / "journal.lost").read_bytes() == first


def test_of_a_folder_on_another_disk_reset_removes_what_is_in_it(
    ctl: Ctl, home: Path, tmp_path: Path
) -> None:
    lived(home)
    (home / "work" / "a-1" / "kept").symlink_to(tmp_path / "scripts")
    for name in ("scripts", "disk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("x")
    names = ("checkpoints", "archives", "work")
    for name in names:
        (home / name).rename(tmp_path / "disk" / name)
        (home / name).symlink_to(tmp_path / "disk" / name)
    code, out, _ = ctl("reset", "--yes", "--checkpoints", "--json", "--home", str(home))
    (done,) = json.loads(out)["nodes"]
    assert code == 0 and {"checkpoints", "work"} <= {*done["removed"]}
    assert "archives" not in done["removed"], "nothing was in it"
    for name in names:
        assert (home / name).is_symlink() and [*(home / name).iterdir()] == []
    assert (tmp_path / "scripts" / "data").exists() and (tmp_path / "disk" / "data").exists()


def test_reset_refuses_where_the_disk_of_a_folder_is_not_mounted(
    ctl: Ctl, home: Path, tmp_path: Path
) -> None:
    before = lived(home).read_bytes()
    (home / "checkpoints").rename(tmp_path / "away")
    (home / "checkpoints").symlink_to(tmp_path / "disk")
    code, _, err = ctl("reset", "--yes", "--checkpoints", "--home", str(home))
    assert code == 1 and "mount the disk" in err and (home / "events").exists()
    assert (home / "journal").read_bytes() == before
    assert ctl("reset", "--yes", "--home", str(home))[0] == 0
    assert (home / "checkpoints").is_symlink()


def test_reset_takes_no_mount_point_for_the_disk_that_is_away(ctl: Ctl, home: Path) -> None:
    before = lived(home).read_bytes()
    note = note_of(home / "checkpoints")
    note.write_text("one\n")
    code, _, err = ctl("reset", "--yes", "--checkpoints", "--home", str(home))
    assert code == 1 and "Mount that disk" in err and "nothing was changed" in err
    assert (home / "journal").read_bytes() == before
    assert ctl("reset", "--yes", "--home", str(home))[0] == 0
    note.unlink()
    assert ctl("reset", "--yes", "--checkpoints", "--home", str(home))[0] == 0


def test_after_a_reset_a_folder_on_another_disk_is_still_the_one_that_it_was(
    ctl: Ctl, home: Path, tmp_path: Path
) -> None:
    lived(home)
    folder = home / "checkpoints"
    folder.rename(tmp_path / "disk")
    folder.symlink_to(tmp_path / "disk")
    ownsigns.lay(home)
    assert ctl("reset", "--yes", "--checkpoints", "--home", str(home))[0] == 0
    assert [path.name for path in folder.iterdir()] == [SIGN] and not is_another(folder)


def test_an_empty_home_is_reset_to_one_that_forgot(ctl: Ctl, home: Path) -> None:
    """Of a Mac with a new disk and its old name."""
    home.mkdir(exist_ok=True)
    code, out, _ = ctl("reset", "--yes", "--json", "--home", str(home))
    (done,) = json.loads(out)["nodes"]
    assert code == 0 and done == {
        "home": str(home), "removed": [], "jobs": 0, "jobs_from": None, "journal": None,
    }  # fmt: skip
    records = StableRecords(home)
    assert records.recover().lost
    records.close()


def test_reset_asks_and_refuses_where_a_daemon_runs(ctl: Ctl, home: Path) -> None:
    journal = lived(home)
    before = journal.read_bytes()
    code, _, err = ctl("reset", "--home", str(home))
    assert (code, "--yes" in err) == (2, True)
    lock = lock_home(home)
    try:
        code, _, err = ctl("reset", "--yes", "--home", str(home))
    finally:
        os.close(lock)
    assert code == 1 and "stop it first" in err
    assert journal.read_bytes() == before and (home / "events").exists()
