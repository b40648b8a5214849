"""What is noted of each committed step without waiting for the disk."""

from __future__ import annotations

from pathlib import Path

from elasticd.core.words.effects import Reached
from elasticd.shell.storage.marks import Marks
from elasticd.types import JobId, NodeId, Tag
from tests.noroom import no_room

ONE, TWO = JobId("one"), JobId("two")


def reached(job: JobId, step: int, nonce: str = "n") -> Reached:
    return Reached(job, Tag(3, NodeId("node-0"), nonce), step)


def test_the_newest_mark_of_each_job_is_found_again(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "reached")
    assert marks.read({ONE}) == ()
    for mark in (reached(ONE, 1000, "a longer nonce"), reached(TWO, 4), reached(ONE, 7)):
        marks.write(mark)
    assert Marks(tmp_path / "reached").read({ONE, TWO}) == (reached(ONE, 7), reached(TWO, 4))


def test_marks_of_other_jobs_go_and_torn_ones_count_for_nothing(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    marks.write(reached(ONE, 1))
    marks.write(reached(TWO, 2))
    assert marks.read({ONE}) == (reached(ONE, 1),)
    assert not (tmp_path / "two").exists()
    for torn in (b"", b"\0" * 512, b'[3, "node-0"', b'[3, "node-0"]', b"\xff"):
        (tmp_path / "one").write_bytes(torn)
        assert marks.read({ONE}) == ()


def test_a_disk_that_refuses_keeps_the_older_mark(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    marks.write(reached(ONE, 1))
    with no_room():
        marks.write(reached(ONE, 2))
    assert marks.read({ONE}) == (reached(ONE, 1),)
    marks.write(reached(ONE, 3))
    assert marks.read({ONE}) == (reached(ONE, 3),)


def test_a_folder_that_cannot_be_made_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    marks = Marks(tmp_path / "file" / "reached")
    marks.write(reached(ONE, 1))
    assert marks.read({ONE}) == ()


def test_a_mark_that_the_disk_keeps_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    marks.write(reached(TWO, 2))
    (tmp_path / ONE).mkdir()  # no unlink removes it
    assert marks.read({TWO}) == (reached(TWO, 2),)
