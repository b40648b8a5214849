"""Copies of main's output folder: whole or not there, and put where scripts read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgpack
import pytest

from elasticd.core.words.codec import to_plain
from elasticd.errors import ProtocolError
from elasticd.outputs import (
    OWN_FOLDER,
    Listing,
    OutputFile,
    OutputSet,
    list_files,
    partial_name,
)
from elasticd.outputsigns import note_given
from elasticd.removing import remove_tree
from elasticd.shell.storage.outputcopies import Copy, OutputCopies, decode_set, encode_set
from elasticd.types import JobId, NodeId

JOB, MAIN = JobId("job"), NodeId("main")
SECOND = 1_000_000_000


class Here:
    """A node's copies and the output folder of a job."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder / "outputs", folder / "output"
        self.copies = OutputCopies(self.folder)

    def keep(self, *files: tuple[str, str, int], managed: bool = False) -> Copy:
        """A copy of (name, text, seconds)."""
        staged = self.copies.stage(JOB)
        listed = []
        for number, (name, text, seconds) in enumerate(files):
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            listed.append(OutputFile(name, len(text), seconds * SECOND, number, managed))
        made = OutputSet(MAIN, 1, 2.0, Listing(tuple(listed)))
        return self.commit(staged, made)

    def commit(self, staged: Path, made: OutputSet) -> Copy:
        self.copies.seal(staged, made)
        self.copies.name(staged)
        return self.copies.settle(JOB, staged, made)

    def place(self, idle: bool = False, stopped: bool = False, newer: bool = False) -> None:
        stop = threading.Event()
        if stopped:
            stop.set()
        copy = self.copies.newest(JOB)
        assert copy is not None
        placing = self.copies.placing(copy.made, JOB, self.output, stop)
        placing.begin(copy.files, idle=idle, newer=newer)
        placing.finish()

    def own(self, name: str, text: str) -> Path:
        path = self.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def texts(self) -> dict[str, str]:
        found = list_files(self.output).files
        return {file.name: (self.output / file.name).read_text() for file in found}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_the_newest_whole_copy_counts(here: Here) -> None:
    assert here.copies.newest(JOB) is None
    here.keep(("a", "old", 1))
    kept = here.keep(("a", "new", 2))
    here.copies.stage(JOB)  # a crash came in between
    again = OutputCopies(here.folder).newest(JOB)
    assert again == kept and (again.files / "a").read_text() == "new"
    here.keep(("a", "newer", 3))
    assert len(list((here.folder / JOB).iterdir())) == 1


def test_a_file_of_another_size_is_no_copy(here: Here) -> None:
    staged = here.copies.stage(JOB)
    (staged / "a").write_text("half")
    made = OutputSet(MAIN, 1, 2.0, Listing((OutputFile("a", 5, 0, 0),)))
    with pytest.raises(ProtocolError, match="another size"):
        here.commit(staged, made)
    assert here.copies.newest(JOB) is None


def test_files_are_placed_replaced_and_removed_like_mains(here: Here) -> None:
    here.keep(("a/b", "one", 1), ("c", "keep", 1))
    here.place()
    assert here.texts() == {"a/b": "one", "c": "keep"}
    before = os.stat(here.output / "c").st_ino
    here.keep(("a/b", "two!", 2), ("c", "keep", 1))
    here.place()
    assert here.texts() == {"a/b": "two!", "c": "keep"}
    assert os.stat(here.output / "c").st_ino == before
    here.keep(("c", "keep", 1))
    here.place()
    assert here.texts() == {"c": "keep"}


def test_what_a_script_here_has_written_stays_while_it_runs(here: Here) -> None:
    here.own("a", "mine")
    here.keep(("a", "mains", 1), ("b", "mains", 1))
    here.place()
    assert here.texts() == {"a": "mine", "b": "mains"}
    here.own("b", "mains and mine")
    here.keep(("a", "mains", 1), ("b", "mains later", 2))
    here.place()
    assert here.texts() == {"a": "mine", "b": "mains and mine"}
    here.keep(("a", "mains", 1))
    here.place()
    assert here.texts() == {"a": "mine", "b": "mains and mine"}


def test_what_is_older_than_the_state_gives_way_to_what_main_has(here: Here) -> None:
    for name in ("best", "kept", "log", "alone", "held"):
        here.own(name, f"old {name}")
    with (here.output / "held").open("a"):
        note_given(here.output)
    here.own("kept", "mine since")
    here.keep(*((name, "mains", 1) for name in ("best", "kept", "held")), ("log", "mains", 1))
    here.place()
    assert here.texts()["best"] == "old best", "a copy may be older"
    here.place(newer=True)
    assert here.texts() == {
        "best": "mains", "log": "mains", "kept": "mine since", "alone": "old alone",
        "held": "old held",
    }  # fmt: skip
    here.own("best", "mine")
    here.keep(("best", "mains later", 2))
    here.place(newer=True)
    assert here.texts()["best"] == "mine" and here.texts()["alone"] == "old alone"


@pytest.mark.parametrize("said", [b"", b"what", b"\x93\x01\x02\x03", b"\x81\xa1a\xc0"])
def test_a_note_of_older_files_that_can_not_be_read_names_none(here: Here, said: bytes) -> None:
    here.own("a", "mine")
    note_given(here.output)
    (here.output / OWN_FOLDER / "given").write_bytes(said)
    here.keep(("a", "mains", 1))
    here.place(newer=True)
    assert here.texts() == {"a": "mine"}


def test_without_a_process_mains_files_count(here: Here) -> None:
    here.own("a", "stale")
    here.keep(("a", "mains", 1))
    here.place(idle=True)
    assert here.texts() == {"a": "mains"}


def test_a_script_never_writes_in_a_copy(here: Here) -> None:
    kept = here.keep(("a", "mains", 1))
    here.place()
    with (here.output / "a").open("a") as file:
        file.write(" and mine")
    assert (kept.files / "a").read_text() == "mains"


def test_files_of_run_open_are_the_librarys(here: Here) -> None:
    here.keep(("log", "mains", 1), managed=True)
    here.place(idle=True)
    assert here.texts() == {}


def test_nothing_is_placed_through_a_link(here: Here, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    here.output.mkdir()
    (here.output / "links").symlink_to(outside)
    (here.output / "link").symlink_to(outside / "file")
    here.keep(("links/a", "x", 1), ("link", "x", 1), ("b", "x", 1))
    here.place(idle=True)
    assert here.texts() == {"b": "x"} and not list(outside.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb({"source": "main"}),
        encode_set(OutputSet(MAIN, 1, 2.0, Listing((OutputFile("../a", 1, 0, 0),)))),
        encode_set(OutputSet(MAIN, 1, 2.0, Listing((OutputFile("a", -1, 0, 0),)))),
    ],
)
def test_what_is_no_list_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_set(data)


def test_a_list_is_read_as_it_was_written() -> None:
    made = OutputSet(MAIN, 3, 1.5, Listing((OutputFile("a", 1, 1 << 60, 1 << 63, True),), ("b",)))
    assert decode_set(encode_set(made)) == made
    assert to_plain(made)["listing"]["skipped"] == ["b"]


def test_what_the_next_main_never_had_stays(here: Here) -> None:
    here.keep(("best", "1", 5), ("log", "2", 5))
    here.place()
    staged = here.copies.stage(JOB)
    (staged / "log").write_text("3")
    made = OutputSet(NodeId("next"), 2, 3.0, Listing((OutputFile("log", 1, 6 * SECOND, 9),)))
    here.commit(staged, made)
    here.place()
    assert here.texts() == {"best": "1", "log": "3"}
    kept = sorted(path.name for path in (here.folder / JOB).iterdir() if path.is_dir())
    assert len(kept) == 2, "the copy of the main before is still there"
    staged = here.copies.stage(JOB)
    (staged / "log").write_text("4")
    here.commit(staged, made)
    assert len([path for path in (here.folder / JOB).iterdir() if path.is_dir()]) == 2


def test_a_trainer_that_starts_meanwhile_loses_nothing(here: Here) -> None:
    here.keep(("log", "old", 5), ("other", "x", 5))
    here.own("log", "new")
    here.place(idle=True, stopped=True)
    assert here.texts() == {"log": "new"}


def test_one_name_that_is_too_long_keeps_no_other_file_away(here: Here) -> None:
    here.keep(("a", "1", 5), ("\u00e9" * 120, "2", 5), ("b", "3", 5))
    here.place()
    assert set(here.texts().values()) == {"1", "2", "3"}
    (here.output / "b").unlink()
    (here.output / "b").mkdir()
    (here.output / "b" / "mine").touch()
    here.keep(("a", "4", 6), ("b", "3", 6))
    here.place()
    assert here.texts()["a"] == "4"


def test_no_link_is_written_through(here: Here) -> None:
    elsewhere = here.output.parent / "elsewhere"
    elsewhere.mkdir()
    here.output.mkdir()
    (here.output / "folder").symlink_to(elsewhere)
    (here.output / "file").symlink_to(elsewhere / "target")
    here.keep(("folder/inner/x", "1", 5), ("file", "2", 5), ("z", "3", 5))
    here.place(idle=True)
    assert list(elsewhere.iterdir()) == [] and (here.output / "z").read_text() == "3"


def test_a_ranks_own_file_is_one_with_mains_on_a_disk_that_knows_no_case(here: Here) -> None:
    here.own("Log.csv", "mine")
    here.keep(("log.csv", "mains", 1))
    here.place()
    assert here.texts() == {"Log.csv": "mine"} and os.listdir(here.output) == ["Log.csv"]


def test_main_may_give_a_file_a_name_in_another_case(here: Here) -> None:
    here.keep(("log.csv", "mains", 1))
    here.place()
    here.keep(("Log.csv", "mains", 1))
    here.place()
    assert here.texts() == {"Log.csv": "mains"} and len(list(here.output.iterdir())) == 1


def test_a_mark_of_a_name_in_another_case_is_found(here: Here) -> None:
    here.keep(("Log.csv", "one", 1))
    here.place()
    marks = here.folder / JOB / "placed.msgpack"
    mark = msgpack.unpackb(marks.read_bytes())["log.csv"]
    marks.write_bytes(msgpack.packb({"Log.csv": mark, b"x": mark}))  # as versions before wrote it
    here.keep(("Log.csv", "two!", 2))
    here.place()
    assert here.texts() == {"Log.csv": "two!"}


def test_what_a_crash_left_goes_and_what_a_script_calls_so_stays(here: Here) -> None:
    here.keep(("a", "mains", 1))
    left = here.own("sub/" + partial_name(), "half")
    own = here.own(".partial-log.csv", "whole")
    deep = here.output.joinpath(*["d"] * 1100)
    below = here.output
    for _ in range(1100):
        below = below / "d"
        below.mkdir()
    here.place(idle=True)
    assert own.exists() and not left.exists() and deep.exists()
    remove_tree(here.output / "d")
