from __future__ import annotations

import gzip
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from elasticd.data import JsonLines, SampleStream
from elasticd.errors import UsageError
from elasticd.train.fingerprint import fingerprint
from elasticd.train.states.state import TrainingState
from elasticd.train.steps.data import StreamSource, source_of
from elasticd.train.steps.likeness import LineDigests
from elasticd.train.steps.sampling import Batches
from elasticd.train.steps.witness import Witness

BATCHES = Batches(6, 2)
ROWS = 57


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Rows of three files, one of them compressed, with blank lines."""
    lines = [json.dumps({"n": n, "text": "é" * (n % 5)}, ensure_ascii=False) for n in range(ROWS)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:20]) + "\n\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(["", *lines[20:41]]))
    (tmp_path / "c.jsonl").write_text("\r\n".join(lines[41:]))
    return tmp_path


def number(row: dict[str, Any]) -> int:
    return int(row["n"])


def numbers(corpus: Path) -> SampleStream:
    return JsonLines(corpus / "*.jsonl*").stream().map(number)


def letters(n: int) -> list[int]:
    """Of some rows none, of others more than two windows."""
    return [n] * (n % 12)


WAYS: dict[str, Callable[[SampleStream], SampleStream]] = {
    "as it is": lambda stream: stream,
    "shuffled": lambda stream: stream.shuffle(8, seed=3),
    "ahead": lambda stream: stream.prefetch(5),
    "both": lambda stream: stream.shuffle(8, seed=3).prefetch(5).map(lambda n: n),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_who_joins_goes_on_at_the_same_sample(
    corpus: Path, way: Callable[[SampleStream], SampleStream]
) -> None:
    """At each step of more than two epochs, and with what it is given to go on as JSON knows it."""
    stream = way(numbers(corpus))
    whole = StreamSource(stream, BATCHES, 0)
    expected = [whole.samples(step, grain) for step in range(1, 24) for grain in range(3)]
    leading = StreamSource(stream, BATCHES, 0)
    for step in range(1, 23):
        leading.samples(step, 1)  # its own grain alone
        joining = StreamSource(stream, BATCHES, 0)
        joining.load_state(json.loads(json.dumps(leading.state(step))))
        assert [joining.samples(step + 1, g) for g in range(3)] == expected[3 * step : 3 * step + 3]
        assert joining.epoch(step + 1) == whole_epoch(step + 1)


def whole_epoch(step: int) -> int:
    return (step - 1) * BATCHES.global_size // ROWS


WINDOWS: dict[str, Callable[[SampleStream], SampleStream]] = {
    "rows": lambda stream: stream.map(letters).windows(5),
    "shuffled rows": lambda stream: stream.shuffle(8).map(letters).windows(5),
    "shuffled": lambda stream: stream.map(letters).windows(5).shuffle(8).prefetch(4),
}


@pytest.mark.parametrize("way", WINDOWS.values(), ids=WINDOWS)
def test_windows_of_tokens_go_on_within_a_row(
    corpus: Path, way: Callable[[SampleStream], SampleStream]
) -> None:
    stream = way(numbers(corpus))
    whole = [window.tolist() for window in stream]
    every = [n for row in range(ROWS) for n in letters(row)]
    assert len(whole) == len(every) // 5 and all(len(window) == 5 for window in whole)
    left = Counter(every) - Counter(n for window in whole for n in window)
    assert left.total() == len(every) % 5
    for at in range(len(whole)):
        leading, joining = stream(), stream()
        for _ in range(at):
            next(leading)
        joining.load_state(json.loads(json.dumps(leading.state())))
        assert [window.tolist() for window in joining] == whole[at:]


def test_windows_are_of_rows_of_tokens(corpus: Path) -> None:
    in_order = numbers(corpus).map(letters).windows(5)
    every = [n for row in range(ROWS) for n in letters(row)]
    assert np.concatenate(list(in_order)).tolist() == every[: len(every) // 5 * 5]
    cursor = in_order()
    next(cursor), next(cursor)
    assert cursor.name() == f"{corpus / 'a.jsonl'}:4"  # behind 1 + 2 + 3 tokens, of rows 0 to 3
    with pytest.raises(UsageError, match=r"a\.jsonl:1 has the shape \[\]"):
        next(numbers(corpus).windows(5)())


def test_each_epoch_has_every_row_once_in_another_order(corpus: Path) -> None:
    source = StreamSource(numbers(corpus).shuffle(8, seed=3), Batches(ROWS, ROWS), 0)
    first, second = (source.samples(step, 0) for step in (1, 2))
    assert Counter(first) == Counter(second) == Counter(range(ROWS))
    assert first != second != sorted(second)
    again = StreamSource(numbers(corpus).shuffle(8, seed=3), Batches(ROWS, ROWS), 1)
    assert again.samples(1, 0) == first  # of its own seed, wherever it is read
    other = StreamSource(numbers(corpus).shuffle(8, seed=4), Batches(ROWS, ROWS), 0)
    assert other.samples(1, 0) != first


def test_who_goes_on_reads_a_block_and_nothing_before(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100)):
        rows = [json.dumps({"n": n}) for n in range(first, first + 100)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    read: list[int] = []

    def seen(row: dict[str, Any]) -> int:
        read.append(row["n"])
        return int(row["n"])

    stream = JsonLines(tmp_path / "*.jsonl").stream().map(seen).shuffle(10)
    cursor = stream()
    given = [next(cursor) for _ in range(155)]
    state = cursor.state()
    read.clear()
    joining = stream()
    joining.load_state(state)
    rest = list(joining)
    assert sorted(given + rest) == list(range(200)) and len(read) == 50


def test_rows_by_position_are_not_kept(corpus: Path) -> None:
    (corpus / "b.jsonl.gz").unlink()
    rows = JsonLines(corpus / "*.jsonl")
    assert [number(rows[at]) for at in range(len(rows))] == [*range(20), *range(41, ROWS)]
    assert rows.name(20) == f"{corpus / 'c.jsonl'}:1"
    source = source_of(rows, BATCHES, 0)
    assert source.describe() == "36 samples" and source.name(1, 3).count(".jsonl:") == 1
    with pytest.raises(IndexError):
        rows[36]


def test_rows_of_many_files_are_read_by_many_threads(tmp_path: Path) -> None:
    """More of them than are kept open."""
    for number in range(100):
        (tmp_path / f"{number:03}.jsonl").write_text(f'{{"n": {number}}}')
    rows = JsonLines(tmp_path / "*.jsonl")
    places = [number * 37 % 100 for number in range(1000)]
    with ThreadPoolExecutor(4) as pool:
        assert [row["n"] for row in pool.map(rows.__getitem__, places)] == places


def test_a_line_behind_blank_ones_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"n": 0}\n \n\n{"n": 1}\n{"n": 2}')
    rows = JsonLines(path)
    cursor = rows.stream()()
    for at, line in enumerate((2, 5, 6)):
        assert next(cursor)["n"] == at == rows[at]["n"]
        assert rows.name(at) == cursor.name() == f"{path}:{line}"


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"{", "is no JSON"), (b"[1]", "no JSON object"), (b'{"a": "\xff"}', "byte 0xff")],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n' + raw + b"\n")
    with pytest.raises(UsageError, match=rf"a\.jsonl:2: .*{words}"):
        list(JsonLines(path).stream())
    with pytest.raises(UsageError, match=rf"a\.jsonl:2: .*{words}"):
        JsonLines(path)[1]


def test_a_compressed_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n": 1}\n' * 9)[:-10])
    with pytest.raises(UsageError, match=r"a\.jsonl\.gz:\d+: can't be unpacked"):
        list(JsonLines(path).stream())
    with pytest.raises(UsageError, match=r"a\.jsonl\.gz: .*stream"):
        len(JsonLines(path))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "[b].jsonl").write_text("{}")
    for names in ((), (tmp_path / "*.json",), (tmp_path / "*.jsonl", tmp_path / "a.jsonl")):
        with pytest.raises(UsageError, match="on this node"):
            JsonLines(*names)
    found = JsonLines(tmp_path / "[b].jsonl", tmp_path / "*.jsonl", tmp_path / "*.gz")
    assert found.files == (tmp_path / "[b].jsonl",)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_sizes_are_whole_numbers(corpus: Path, wrong: Any) -> None:
    stream = numbers(corpus)
    for way in (stream.shuffle, stream.prefetch, stream.windows):
        with pytest.raises(UsageError, match="whole number"):
            way(wrong)


def test_an_error_comes_out_at_its_sample(corpus: Path) -> None:
    def picky(n: int) -> int:
        if n == 23:
            raise ValueError("no such letter")
        return n

    cursor = numbers(corpus).map(picky).prefetch(9)()
    assert [next(cursor) for _ in range(23)] == list(range(23))
    with pytest.raises(ValueError, match="no such letter") as found:
        next(cursor)
    assert found.value.__notes__ == [f"elasticd: at {corpus / 'b.jsonl.gz'}:5"]


def test_a_function_that_stops_does_not_end_the_stream(corpus: Path) -> None:
    def exhausted(n: int) -> int:
        return int(next(iter([])))

    with pytest.raises(RuntimeError, match=r"StopIteration at .*a\.jsonl:1"):
        list(numbers(corpus).map(exhausted))


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "elasticd-data"]


@pytest.mark.parametrize(("items", "size", "most"), [(4, 1, 1 << 20), (100, 1000, 3000)])
def test_it_reads_ahead_no_further_than_it_may(items: int, size: int, most: int) -> None:
    """As many as are allowed, or as few as their bytes let; and one more that waits for room."""
    before, released = threads(), threading.Semaphore(0)
    made: list[int] = []

    def wide(n: int) -> Any:
        made.append(n)
        released.release()
        return np.zeros(size, np.uint8)

    cursor = SampleStream(lambda: Counted(200)).map(wide).prefetch(items, most)()
    next(cursor), next(cursor)
    allowed = min(items, most // (size + 64))
    for _ in range(2 + allowed + 1):
        assert released.acquire(timeout=20)
    thread = next(each for each in threads() if each not in before)
    assert not released.acquire(timeout=0.2) and len(made) == 2 + allowed + 1
    del cursor
    thread.join(20)
    assert not thread.is_alive()


class Counted:
    def __init__(self, count: int) -> None:
        self._count, self._at = count, 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        if self._at == self._count:
            raise StopIteration
        self._at += 1
        return self._at - 1

    def state(self) -> dict[str, Any]:
        return {"at": self._at}

    def load_state(self, state: dict[str, Any]) -> None:
        self._at = state["at"]

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        pass

    def name(self) -> str:
        return f"row {self._at - 1}"


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_who_draws_above_what_reads_ahead_is_told(draw: Callable[[], Any]) -> None:
    drawing = SampleStream(lambda: Counted(9)).map(lambda n: np.array([n, draw()]))
    for stream in (drawing.prefetch(), drawing.shuffle(4), drawing.windows(3)):
        with pytest.raises(UsageError, match="random numbers"):
            next(stream())
    assert len(list(drawing)) == 9


def test_who_makes_arrays_of_mlx_above_prefetch_is_told() -> None:
    """At the first sample, or where they come; behind it they may be made."""
    rows = SampleStream(lambda: Counted(9))
    with pytest.raises(UsageError, match="NumPy's"):
        next(rows.map(lambda n: {"n": mx.array([n])}).prefetch()())
    later = rows.map(lambda n: mx.array([n]) if n == 3 else n).prefetch()()
    assert [next(later) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UsageError, match="NumPy's"):
        next(later)
    assert len(list(rows.prefetch().map(lambda n: mx.ones((2,)) * n))) == 9


def test_nodes_with_other_files_are_told_apart_by_name(corpus: Path) -> None:
    before = dict(numbers(corpus).shuffle(8).prefetch().digests_by_file())
    assert before.keys() == {"a.jsonl", "b.jsonl.gz", "c.jsonl"}
    path = corpus / "c.jsonl"
    path.write_bytes(path.read_bytes().replace(b"43", b"34"))  # of the same size
    after = numbers(corpus).digests_by_file()
    assert {name for name in before if before[name] != after[name]} == {"c.jsonl"}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 128])
def test_of_files_that_are_compared_whole_the_line_is_named(count: int) -> None:
    """One line of all is another: it is within the lines that are named, and no others are."""
    lines = [b"%d" % number for number in range(count)]

    def said(lines: list[bytes]) -> dict[str, str]:
        digests = LineDigests(8)
        for line in lines:
            digests.add(line)
        return digests.named("a")

    whole = said(lines)
    assert len(whole) <= 9 and whole["a"] == f"{count} lines"
    for at in range(count):
        other = said([*lines[:at], b"x", *lines[at + 1 :]])
        (name,) = {name for name in whole if whole[name] != other[name]}
        found = [int(number) for number in re.findall(r"\d+", name)]
        assert found[0] <= at + 1 <= found[-1] and found[-1] - found[0] < max(1, count // 4)
    assert said(lines[1:]) != whole != said([*lines[:-1], lines[-1] + b" "])


def test_all_of_a_streamed_file_is_compared_if_that_is_wished(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = json.dumps({"text": "x" * 1000}) + "\n"
    path.write_text(row * 200)
    some, whole = (JsonLines(path).stream(compare_all=wished) for wished in (False, True))
    before = dict(some.digests_by_file()), dict(whole.digests_by_file())
    path.write_text(row * 100 + row.replace("xx", "xy", 1) + row * 99)
    assert dict(some.digests_by_file()) == before[0]
    assert dict(whole.digests_by_file()) != before[1]
    after = whole.digests_by_file()
    assert JsonLines(path).digests_by_file() == after
    differ = {name for name in after if after[name] != before[1][name]}
    assert differ == {"a.jsonl:101"}
    packed = tmp_path / "packed" / "a.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(path.read_bytes()))
    as_lines = JsonLines(packed).stream(compare_all=True).digests_by_file()
    assert set(as_lines.values()) == set(after.values())


class Shown:
    """Keeps what is told of samples."""

    def __init__(self) -> None:
        self.spec = SimpleNamespace(
            recovery=SimpleNamespace(verify_every=2),
            batch=SimpleNamespace(global_=BATCHES.global_size),
            train=SimpleNamespace(seed=0),
        )
        self.told: list[tuple[int, str]] = []

    def sampled(self, world: Any, step: int, at: int, digest: str, name: str) -> None:
        self.told.append((at, name))


@pytest.mark.parametrize("streamed", [True, False])
def test_a_sample_that_nodes_compare_is_told_with_file_and_line(
    corpus: Path, streamed: bool
) -> None:
    (corpus / "b.jsonl.gz").unlink()
    rows = JsonLines(corpus / "*.jsonl")
    source = source_of(rows.stream().shuffle(8) if streamed else rows, BATCHES, 0)
    seat, world = Shown(), SimpleNamespace(size=2)
    witness = Witness(source, cast(Any, seat), lambda: cast(Any, world))
    for step in range(1, 9):
        witness.samples(step, 0)
    assert len(seat.told) == 5
    for at, name in seat.told:
        path, _, line = name.rpartition(":")
        row = json.loads(Path(path).read_text().splitlines()[int(line) - 1])
        assert row == witness.at(at // BATCHES.global_size + 1, at)


def test_files_are_part_of_what_nodes_compare_before_the_first_step(corpus: Path) -> None:
    spec = SimpleNamespace(batch=SimpleNamespace(global_=6, micro=2), train=SimpleNamespace(seed=0))
    state = TrainingState(nn.Linear(1, 1), None, None)
    source = source_of(numbers(corpus), BATCHES, 0)
    found = fingerprint(cast(Any, spec), state, source, [mx.zeros((1,))], None)
    said = source.digests()
    assert len(said) == 3 and {found[f"data/{name}"] for name in said} == set(said.values())
