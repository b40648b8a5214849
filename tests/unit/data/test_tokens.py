from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import gc
import operator
import os
import random
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from elasticd.data import JsonLines, cached
from elasticd.data import tokens as tokens_module
from elasticd.data.tokens import cache_folder
from elasticd.errors import OperationError, UsageError
from elasticd.types import CACHE_VARIABLE

ROWS = ["", "a", "two words", "é" * 9, "last"]
EXPECTED = [list(row.encode()) for row in ROWS]


class Tokenizer:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, row: str) -> list[int]:
        self.asked.append(row)
        return list(row.encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def made(rows: Any, folder: Path, function: Any, key: str = "bytes", **more: Any) -> Any:
    return [each.tolist() for each in cached(rows, function, key=key, folder=folder, **more)]


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_they_are_made_once_for_the_same_rows_function_and_key(folder: Path) -> None:
    first, second = Tokenizer(), Tokenizer()
    assert made(ROWS, folder, first) == made(ROWS, folder, second) == EXPECTED
    assert first.asked == ROWS and second.asked == []
    assert made(ROWS[::-1], folder, second) == EXPECTED[::-1]
    assert made(ROWS, folder, second, key="others") == EXPECTED
    assert second.asked == ROWS[::-1] + ROWS and len(list(folder.iterdir())) == 3


def test_a_function_that_was_changed_is_another(folder: Path) -> None:
    versions: list[Callable[[str], list[int]]] = [
        lambda row: [ord(letter) for letter in row],
        lambda row: [ord(letter) + 1 for letter in row],
        lambda row: [len(letter) for letter in row],
    ]
    for number, function in enumerate(versions):
        made(ROWS, folder, function)
        assert len(list(folder.iterdir())) == number + 1
    again = made(ROWS, folder, lambda row: [ord(letter) for letter in row])
    assert again[1] == [97] and len(list(folder.iterdir())) == 3


class Shifting:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, row: str) -> list[int]:
        return [byte + self.by for byte in row.encode()]

    def encode(self, row: str) -> list[int]:
        return self(row)


class Lowering:
    __slots__ = "down"

    def __init__(self, down: int) -> None:
        self.down = down

    def __call__(self, row: str) -> list[int]:
        return [byte - self.down for byte in row.encode()]


class Hiding:
    __slots__ = ("__down",)

    def __init__(self, down: int) -> None:
        self.__down = down

    def __call__(self, row: str) -> list[int]:
        return [byte - self.__down for byte in row.encode()]


class Counting:
    def __call__(self, row: str) -> list[int]:
        return [len(row)]


def shifted(row: str, by: int) -> list[int]:
    return [byte + by for byte in row.encode()]


def counted(row: str, by: int) -> list[int]:
    return [len(row) + by]


def decorated(function: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
    def wrapper(row: str) -> list[int]:
        return function(row)

    return wrapper


def test_functions_differ_by_what_they_are_made_of(folder: Path) -> None:
    """Each makes its own tokens, and finds them again."""
    functions: list[Callable[[], Callable[[str], Any]]] = [
        lambda: functools.partial(shifted, by=0),
        lambda: functools.partial(shifted, by=1),
        lambda: functools.partial(counted, by=1),
        lambda: functools.partial(functools.partial(counted), by=2),
        lambda: Shifting(0),
        lambda: Shifting(1),
        lambda: Lowering(1),
        lambda: Lowering(2),
        lambda: Hiding(1),
        lambda: Hiding(2),
        Counting,
        lambda: Shifting(0).encode,
        lambda: Shifting(2).encode,
        lambda: decorated(functools.partial(shifted, by=0)),
        lambda: decorated(functools.partial(shifted, by=3)),
        lambda: functools.lru_cache(functools.partial(shifted, by=4)),
    ]
    rows = ["ab", "c"]
    for number, function in enumerate(functions, start=1):
        expected = [function()(row) for row in rows]
        assert made(rows, folder, function()) == expected == made(rows, folder, function())
        assert len(list(folder.iterdir())) == number


def test_a_function_of_which_nothing_is_known_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        made([{"a": [1]}], folder, operator.itemgetter("a"))
    assert str(raised.value) == (
        "cached(): the function, of type itemgetter, can't be told from another one: put it into a"
        " def, and name in key what it depends on"
    )
    assert not folder.exists()


@dataclasses.dataclass
class Row:
    text: str


def test_rows_count_by_all_they_hold(folder: Path) -> None:
    def encode(row: Any) -> list[int]:
        return list(row["a"][0].encode())

    for text in "xyx":
        row = {"a": np.array([text, None], dtype=object)}
        assert made([row], folder, encode) == [[ord(text)]]
    assert len(list(folder.iterdir())) == 2
    with pytest.raises(UsageError) as raised:
        made([{"a": "x"}, {"a": [Row("x")]}], folder, encode)
    assert str(raised.value) == (
        "cached(): row 1 has something of type Row, of which can't be told whether it is the same"
        " as before: have rows of numbers, texts, bytes, arrays, and dicts and lists of them"
    )


def test_rows_of_files_count_by_their_content(tmp_path: Path, folder: Path) -> None:
    path, function = tmp_path / "a.jsonl", Tokenizer()
    path.write_text('{"text": "ab"}\n{"text": "c"}\n')
    tokens = cached(JsonLines(path), lambda row: function(row["text"]), key="", folder=folder)
    assert [each.tolist() for each in tokens] == [[97, 98], [99]]
    assert tokens[0].dtype == np.int32 and tokens.name(1) == f"{path}:2"
    digests = tokens.digests_by_file()
    assert digests.keys() == {"a.jsonl", "a.jsonl:1", "a.jsonl:2", "tokens"}
    path.write_text('{"text": "ab"}\n{"text": "d"}\n')
    other = cached(JsonLines(path), lambda row: function(row["text"]), key="", folder=folder)
    assert other[1].tolist() == [100] and other.digests_by_file()["tokens"] != digests["tokens"]


def test_two_processes_at_once_make_them_once(folder: Path) -> None:
    tokenizer, found = Tokenizer(), []
    threads = [threading.Thread(target=lambda: found.append(made(ROWS, folder, both)))]

    def both(row: str) -> list[int]:
        if len(tokenizer.asked) == 2:
            threads[0].start()
            threads[0].join(0.5)  # it would be done, if it didn't wait
        return tokenizer(row)

    found.append(made(ROWS, folder, both))
    threads[0].join(20)
    assert found == [EXPECTED, EXPECTED] and tokenizer.asked == ROWS


def test_tokens_that_are_let_go_in_a_cycle_are_closed_without_a_word(folder: Path) -> None:
    made(ROWS, folder, Tokenizer())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cycle: list[Any] = [cached(ROWS, Tokenizer(), key="bytes", folder=folder)]
        cycle.append(cycle)
        del cycle
        gc.collect()
    assert not [str(each.message) for each in said if each.category is ResourceWarning]


def test_what_a_killed_process_has_left_is_no_file(folder: Path) -> None:
    made(ROWS, folder, Tokenizer())
    path = the_file(folder)
    whole = path.read_bytes()
    path.unlink()
    path.with_suffix(".partial").write_bytes(whole[:30])
    (folder / "another.partial").write_bytes(b"x")
    with open(folder / "busy.partial", "wb") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        assert made(ROWS, folder, Tokenizer()) == EXPECTED
    assert {each.name for each in folder.iterdir()} == {path.name, "busy.partial"}
    assert path.read_bytes() == whole


def test_a_damaged_file_is_made_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever a byte is another, or the end is missing."""
    made(ROWS, folder, Tokenizer())
    path = the_file(folder)
    whole = path.read_bytes()
    broken = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    broken += [whole[:length] for length in range(len(whole))] + [whole + b"\0"]
    for raw in broken:
        path.unlink(missing_ok=True)
        path.write_bytes(raw)
        capsys.readouterr()
        assert made(ROWS, folder, Tokenizer()) == EXPECTED
        assert f"{path} is damaged" in capsys.readouterr().err
    assert made(ROWS, folder, Tokenizer()) == EXPECTED and path.read_bytes() == whole


def test_what_the_disk_cannot_read_is_made_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who had it mapped would be killed."""

    def broken(fd: int, buffers: Any, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    tokens = cached(ROWS, Tokenizer(), key="bytes", folder=folder)
    path = the_file(folder)
    monkeypatch.setattr(os, "preadv", broken)
    assert tokens[1].tolist() == EXPECTED[1] and f"{path} is damaged" in capsys.readouterr().err
    assert not path.exists()


def test_what_is_read_in_pieces_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_PIECE_BYTES", 5)
    tokens = cached(ROWS, Tokenizer(), key="bytes", folder=folder)
    assert [each.tolist() for each in tokens] == EXPECTED
    tokens[1][0] = 7  # a copy
    assert tokens[1].tolist() == EXPECTED[1]


def test_a_file_that_went_is_read_on_and_closed_with_its_tokens(folder: Path) -> None:
    before = psutil.Process().num_fds()
    tokens = cached(ROWS, Tokenizer(), key="bytes", folder=folder)
    the_file(folder).unlink()
    assert [each.tolist() for each in tokens] == EXPECTED
    assert psutil.Process().num_fds() == before + 1
    del tokens
    assert psutil.Process().num_fds() == before


def test_the_oldest_go_where_there_are_too_many(folder: Path) -> None:
    for number, key in enumerate("abc"):
        made(ROWS, folder, Tokenizer(), key=key)
        newest = max(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    size = newest.stat().st_size
    made(ROWS, folder, (again := Tokenizer()), key="a")  # used just now
    assert again.asked == []
    made(ROWS, folder, Tokenizer(), key="d", most_bytes=2 * size)
    assert len(list(folder.iterdir())) == 2
    made(ROWS, folder, again, key="a")
    assert again.asked == []
    with pytest.raises(UsageError, match="most_bytes"):
        made(ROWS, folder, Tokenizer(), key="e", most_bytes=size - 1)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("wrong", [1.5, [0.5], [[1]], "text", [2**31]])
def test_what_are_no_tokens(wrong: Any, folder: Path) -> None:
    with pytest.raises(UsageError, match="of row 0 come"):
        made(["a"], folder, lambda row: wrong)
    assert list(folder.iterdir()) == []


def test_errors_say_of_which_row(folder: Path) -> None:
    with pytest.raises(UnicodeEncodeError) as found:
        made(["a", "é"], folder, lambda row: list(row.encode("ascii")))
    assert found.value.__notes__ == ["elasticd: at row 1"]
    with pytest.raises(UsageError, match="random numbers"):
        made(["a"], folder, lambda row: [random.randrange(9)])
    with pytest.raises(UsageError, match="random numbers"):
        own = random.Random(3)
        made(["a"], folder, lambda row: [own.randrange(9)])
    (folder.parent / "file").write_text("")
    with pytest.raises(OperationError, match="file"):
        made(ROWS, folder.parent / "file", Tokenizer())


def test_they_are_where_the_node_keeps_what_can_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "node"))
    cached(ROWS, Tokenizer(), key="a")
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cached(ROWS, Tokenizer(), key="a")
    found = [path.parent.relative_to(tmp_path) for path in tmp_path.rglob("*.tokens")]
    assert sorted(map(str, found)) == ["node/tokens", "user/elasticd/tokens"]


@pytest.mark.parametrize(("platform", "usual"), [("linux", ".cache"), ("darwin", "Library/Caches")])
def test_alone_they_are_where_the_system_keeps_such(
    platform: str, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(platform) == tmp_path / usual / "elasticd/tokens"


def test_no_rows_are_no_tokens(folder: Path) -> None:
    assert made([], folder, Tokenizer()) == made([], folder, Tokenizer()) == []
    assert made([""], folder, Tokenizer()) == [[]]
