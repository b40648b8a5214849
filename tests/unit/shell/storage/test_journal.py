from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import DamageError, DiskError, StateError
from elasticd.shell.storage import journal as module
from elasticd.shell.storage.journal import MAGIC, Journal, begin_anew, frame, inspect, salvage, scan


def written(path: Path, *batches: list[object]) -> list[int]:
    """Write the batches; the file's size after each."""
    journal, _ = Journal.open(path)
    sizes = []
    for batch in batches:
        journal.append(batch)
        sizes.append(journal.size_bytes)
    journal.close()
    return sizes


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, [{"a": 1}, {"b": b"\x00"}], [{"c": [1, None, "ü"]}])
    journal, records = Journal.open(path)
    assert records == [{"a": 1}, {"b": b"\x00"}, {"c": [1, None, "ü"]}]
    assert journal.cut_bytes == 0
    journal.append([{"d": 4}])
    journal.close()
    assert Journal.open(path)[1][-1] == {"d": 4}


def test_a_tail_torn_at_any_byte_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = written(path, [{"n": 1}], [{"n": 2}, {"n": 3}], [{"n": 4}])
    whole = path.read_bytes()
    counts = {0: 0, sizes[0]: 1, sizes[1]: 3, sizes[2]: 4}
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        if length < sizes[0]:  # the first write of all, of which nobody was told
            (tmp_path / "journal.begun").unlink(missing_ok=True)
        journal, records = Journal.open(path)
        sound = max(size for size in counts if size <= length)
        assert [record["n"] for record in records] == list(range(1, counts[sound] + 1))
        assert journal.cut_bytes == length - sound
        journal.append([{"n": "next"}])
        journal.close()
        again, records = Journal.open(path)
        assert records[-1] == {"n": "next"} and again.cut_bytes == 0
        again.close()


def test_a_tail_as_a_crash_leaves_it_is_cut_and_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, [{"n": 1}])
    whole = path.read_bytes()
    for tail in (bytes(4096), MAGIC[:2], MAGIC, MAGIC * 10, whole[:-1]):
        path.write_bytes(whole + tail)
        journal, records = Journal.open(path)
        assert records == [{"n": 1}] and journal.cut_bytes == len(tail)
        assert (tmp_path / "journal.cut").read_bytes() == tail
        journal.close()


@pytest.mark.parametrize("damage", ["garbage", "zeros", "emptied", "removed", "end", "many frames"])
def test_what_no_crash_explains_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal"
    sizes = written(path, [{"n": 1}], [{"n": 2}])
    whole = path.read_bytes()
    found = {
        "garbage": b"\xff" * 100,
        "zeros": bytes(len(whole)),
        "emptied": b"",
        "end": whole + b"\xff" * 100,
        "many frames": whole + whole[sizes[0] :],
    }
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(found[damage])
    if damage == "many frames":
        spoilt = bytearray(path.read_bytes())
        spoilt[sizes[0] + 13] ^= 1
        spoilt[-1] ^= 1
        path.write_bytes(spoilt)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(DamageError, match="lost acknowledged data"):
        Journal.open(path)
    assert (path.read_bytes() if path.exists() else None) == before


def test_an_append_of_which_a_crash_left_out_a_sector_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    (size,) = written(path, [{"n": 1, "fill": "x" * 700}])
    whole = path.read_bytes()
    tail = frame([{"n": 2, "fill": "x" * 1900}])
    bounds = [size, *range(1024, size + len(tail), 512), size + len(tail)]
    assert len(bounds) == 5 + 1
    for first, end in pairwise(bounds):
        torn = bytearray(whole + tail)
        torn[first:end] = bytes(end - first)
        path.write_bytes(torn)
        found = inspect(path)
        assert found.harm == "" and found.cut_bytes == len(tail), (first, end)
    torn[-1] = 1  # then no sector is missing
    path.write_bytes(torn)
    assert "no crash explains" in inspect(path).harm


@pytest.mark.parametrize("fill", [0, 2000])
def test_no_rotten_byte_of_the_last_append_passes_for_a_crash(tmp_path: Path, fill: int) -> None:
    path = tmp_path / "journal"
    sizes = written(path, [{"n": 1}], [{"n": 2, "fill": "x" * fill}])
    whole = path.read_bytes()
    for position in range(sizes[0], sizes[1]):
        for flipped in (1, 128):
            rotten = bytearray(whole)
            rotten[position] ^= flipped
            path.write_bytes(rotten)
            assert "no crash explains" in inspect(path).harm, position


@pytest.mark.parametrize("count", [1, 3, 6, 7])
def test_no_rotten_byte_of_what_a_compaction_left_passes_for_a_crash(
    tmp_path: Path, count: int
) -> None:
    """Nor does any that is missing but for those of the empty frame at its end."""
    path = tmp_path / "journal"
    journal, _ = Journal.open(path)
    journal.compact([b"x" * (module.FRAME_BYTES // 3)] * count)
    journal.close()
    whole = path.read_bytes()
    end = len(whole) - len(frame([]))
    assert whole[end:] == frame([]) and scan(whole).records == scan(whole[:end]).records
    for position in (0, 5, 9, end // 2, end - 5000, end - 1):
        for bad in (whole[position] ^ 1, 0):
            path.write_bytes(whole[:position] + bytes([bad]) + whole[position + 1 :])
            if bad != whole[position]:
                assert inspect(path).harm.startswith("damaged at byte"), position
    anew = begin_anew(path, [{"n": 1}])
    assert anew is not None and path.read_bytes() == frame([{"n": 1}]) + frame([])


def test_a_journal_of_nothing_is_empty(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / "journal")
    journal.compact([])
    assert journal.size_bytes == 0
    journal.close()


def test_a_garbage_journal_is_refused_also_where_nothing_was_noted(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"garbage" * 100)
    with pytest.raises(DamageError, match="no crash explains"):
        Journal.open(tmp_path / "journal")


def test_a_first_write_that_was_interrupted_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(frame([{"n": 1}])[:-1])
    journal, records = Journal.open(path)
    assert records == [] and journal.cut_bytes
    journal.close()
    assert Journal.open(path)[1] == []


def test_every_rotten_byte_of_the_middle_is_reported_and_the_file_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = written(path, [{"n": 1}], [{"n": 2}], [{"n": 3}])
    whole = path.read_bytes()
    for position in range(sizes[1]):
        rotten = bytearray(whole)
        rotten[position] ^= 0x41
        path.write_bytes(rotten)
        with pytest.raises(StateError, match="damaged at byte"):
            Journal.open(path)
        assert path.read_bytes() == rotten


def test_compaction_replaces_everything_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, _ = Journal.open(path)
    for number in range(100):
        journal.append([{"n": number, "fill": "x" * 100}])
    before = journal.size_bytes
    journal.compact([{"state": 99}])
    assert journal.size_bytes < before / 10
    journal.append([{"n": 100}])
    journal.close()
    assert Journal.open(path)[1] == [{"state": 99}, {"n": 100}]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["journal", "journal.begun"]


def test_a_compaction_has_no_more_in_memory_than_a_frame(tmp_path: Path) -> None:
    """Of years of jobs two copies of all of it took 54 MiB."""
    journal, _ = Journal.open(tmp_path / "journal")
    written: list[int] = []

    def records() -> Iterator[bytes]:
        for _ in range(8):
            partial = tmp_path / "journal.partial"
            written.append(partial.stat().st_size // module.FRAME_BYTES)
            yield b"x" * module.FRAME_BYTES

    journal.compact(records())
    assert written == list(range(8)) and journal.size_bytes == journal.path.stat().st_size
    assert len(Journal.open(journal.path)[1]) == 8


def test_a_compaction_that_ends_by_a_defect_leaves_the_old_journal(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / "journal")
    journal.append([{"state": 1}])
    with pytest.raises(ZeroDivisionError):
        journal.compact(1 // number for number in (1, 0))
    journal.append([{"state": 2}])
    assert Journal.open(journal.path)[1] == [{"state": 1}, {"state": 2}]
    assert not (tmp_path / "journal.partial").exists()


def test_an_interrupted_compaction_leaves_the_old_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, [{"n": 1}])
    (tmp_path / "journal.partial").write_bytes(b"half")
    assert Journal.open(path)[1] == [{"n": 1}]
    assert not (tmp_path / "journal.partial").exists()


def test_wants_compaction_only_when_large_and_doubled(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / "journal")
    assert not journal.wants_compaction
    journal.append([b"x" * (module.COMPACT_AT_BYTES + 1)])
    assert journal.wants_compaction
    journal.compact([b"x" * (module.COMPACT_AT_BYTES + 1)])
    assert not journal.wants_compaction
    journal.close()
    assert not Journal.open(tmp_path / "journal")[0].wants_compaction


def test_what_has_grown_in_many_short_runs_is_compacted_too(tmp_path: Path) -> None:
    for _ in range(50):
        journal, _ = Journal.open(tmp_path / "journal")
        journal.append([b"x" * (module.COMPACT_AT_BYTES // 5)])
        if journal.wants_compaction:
            journal.compact([b"live"])
        journal.close()
    assert journal.size_bytes < 2 * module.COMPACT_AT_BYTES


def test_a_compaction_is_read_in_parts_and_known_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, _ = Journal.open(path)
    kept = [b"x" * (module.FRAME_BYTES // 3)] * 10
    journal.compact(kept)
    whole = path.read_bytes()
    found = inspect(path)
    assert found.records == kept and found.compacted_bytes == len(whole)
    assert whole.count(MAGIC) == 5, "the last is empty"
    journal.append([{"n": 1}])
    journal.append([{"n": 2}])
    journal.close()
    last = whole[: whole.rindex(MAGIC, 0, -len(frame([])))]
    assert inspect(path).compacted_bytes == len(whole)
    path.write_bytes(whole[: len(last) - 1] + b"?" + whole[len(last) :])
    assert inspect(path).harm.startswith("damaged at byte")
    assert salvage(path.read_bytes()) == kept[:6] + kept[9:]


def test_a_closed_journal_takes_no_more(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, _ = Journal.open(path)
    journal.append([1])
    journal.close()
    with pytest.raises(DiskError, match="closed"):
        journal.append([3])
    assert Journal.open(path)[1] == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_not_a_loss(tmp_path: Path) -> None:
    journal = Journal(Path("/dev/full"), _full(), 0, 0, 0)
    with pytest.raises(DiskError, match="/dev/full: No space"):
        journal.append([1])
    with pytest.raises(DiskError, match="earlier write failed"):
        journal.append([2])
    journal.close()


def _full() -> int:
    import os

    return os.open("/dev/full", os.O_WRONLY)


def test_salvage_steps_over_damage() -> None:
    frames = [frame([number]) for number in range(5)]
    assert salvage(b"".join(frames)) == [0, 1, 2, 3, 4]
    damaged = bytearray(b"".join(frames))
    damaged[len(frames[0]) + 13] ^= 1
    assert salvage(b"noise" + damaged + b"\xe1J") == [0, 2, 3, 4]


@given(st.binary(max_size=300))
def test_scan_takes_any_bytes(data: bytes) -> None:
    found = scan(data)
    assert 0 <= found.sound_bytes <= len(data)
    assert salvage(data)[: len(found.records)] == found.records
