"""What a rank is told of a file: no more than it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.stepindex import BASE, StepIndex
from elasticd.train.outputs.prefixes import PIECE_BYTES
from elasticd.train.outputs.stepfile import StepFile
from elasticd.train.outputs.telling import Dialect, OfEarlier, OfToday, Told

LINE = b"x" * 99_999 + b"\n"
LAST = 40


def written(folder: Path, steps: int, *, odd: int = 0, line: bytes = LINE) -> StepFile:
    """``odd``: what is another text from that step on."""
    file = StepFile(folder / "log", folder / ".steps", BASE)
    for step in range(1, steps + 1):
        file.append(step, line.swapcase() if odd and step >= odd else line)
    return file


def told(dialect: Dialect, file: StepFile) -> Told:
    return dialect.told(dialect.row(file))


def hand_over(dialect: Dialect, source: StepFile, target: StepFile) -> int:
    """How many bytes it took."""
    ours, theirs = told(dialect, source), told(dialect, target)
    since = theirs.since(ours)
    content = dialect.read(source, since)
    assert len(content) == ours.length(since)
    dialect.replace(target, since, content, ours)
    assert not told(dialect, target).differs(told(dialect, source))
    return len(content)


@pytest.mark.parametrize("dialect", [OfToday(), OfEarlier()])
def test_two_files_become_alike(tmp_path: Path, dialect: Dialect) -> None:
    source, target = written(tmp_path / "a", LAST), written(tmp_path / "b", LAST, odd=25)
    hand_over(dialect, source, target)
    assert (tmp_path / "a" / "log").read_bytes() == (tmp_path / "b" / "log").read_bytes()
    assert target.runs() == source.runs()


def test_a_new_process_is_told_what_its_disk_lacks(tmp_path: Path) -> None:
    """It has no mark: only the text shows what it has."""
    source, target = written(tmp_path / "a", LAST), written(tmp_path / "b", LAST, odd=35)
    assert hand_over(OfToday(), source, target) < 10 * len(LINE) + PIECE_BYTES
    assert hand_over(OfToday(), source, written(tmp_path / "c", 0)) > LAST * len(LINE)


def test_text_without_an_index_is_not_told_again(tmp_path: Path) -> None:
    """As where the daemon has copied main's folder to this node."""
    source = written(tmp_path / "a", LAST)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "log").write_bytes((tmp_path / "a" / "log").read_bytes())
    target = StepFile(tmp_path / "b" / "log", tmp_path / "b" / ".steps", LAST)
    assert target.runs() == [[BASE, BASE]]
    assert hand_over(OfToday(), source, target) < PIECE_BYTES
    assert target.runs() == source.runs()


def test_what_all_have_marked_is_not_told_again(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a", LAST), written(tmp_path / "b", LAST)
    for file, line in ((source, b"mine\n"), (target, b"theirs\n")):
        file.mark()
        file.append(LAST + 1, line)
    assert hand_over(OfToday(), source, target) < 10


def test_the_same_text_of_other_steps_differs(tmp_path: Path) -> None:
    files = [StepFile(tmp_path / name / "log", tmp_path / name / ".steps", BASE) for name in "ab"]
    for file, texts in zip(files, ((b"1\n", b"2\n"), (b"1\n2\n", b"")), strict=True):
        for step, text in enumerate(texts, 1):
            file.append(step, text)
    assert told(OfToday(), files[0]).differs(told(OfToday(), files[1]))
    hand_over(OfToday(), *files)
    files[1].cut(1)
    assert (tmp_path / "b" / "log").read_bytes() == b"1\n"


@pytest.mark.parametrize("dialect", [OfToday(), OfEarlier()])
def test_a_whole_file_can_be_taken_apart(tmp_path: Path, dialect: Dialect) -> None:
    source = written(tmp_path / "a", 5, line=b"line\n")
    nothing = Told().since(ours := told(dialect, source))
    records, text = dialect.apart(dialect.read(source, nothing), ours)
    target = written(tmp_path / "b", 0)
    target.have(StepIndex.of(records), 0, text)
    assert target.runs() == source.runs() and text == b"line\n" * 5
