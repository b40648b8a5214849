"""Files written past the cache hold the same bytes, whatever the file system makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticd.checkpoints.disk import LOCAL_DISK
from elasticd.checkpoints.sequential import BLOCK_BYTES, Writer

DATA = os.urandom(2 * BLOCK_BYTES + 4097)


def folders(tmp_path: Path) -> list[Path]:
    """On a disk and, where there is one, in memory."""
    return [tmp_path, *(path for path in (Path("/dev/shm"),) if os.access(path, os.W_OK))]


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, len(DATA)]
)
@pytest.mark.parametrize("chunk", [1_000_003, len(DATA)])
def test_every_byte_is_written_and_the_head_last(tmp_path: Path, size: int, chunk: int) -> None:
    data, head = memoryview(DATA)[:size], b"the head"[:size]
    for folder in folders(tmp_path):
        path = folder / f"elasticd-{os.getpid()}"
        try:
            chunks = (data[at : at + chunk] for at in range(0, size, chunk))
            LOCAL_DISK.write(path, chunks, lambda: head)
            assert path.read_bytes() == head + data[len(head) :]
        finally:
            path.unlink()


def test_what_a_file_system_refuses_is_written_the_ordinary_way(tmp_path: Path) -> None:
    """No disk takes direct writes of a thousand bytes."""
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with Writer(fd, block_bytes=1000) as out:
        for at in range(0, len(DATA), 1_000_003):
            out.take(memoryview(DATA)[at : at + 1_000_003])
        out.finish()
    assert os.pread(fd, len(DATA) + 1, 0) == DATA
    os.close(fd)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_what_the_disk_refuses_is_raised() -> None:
    """A block is refused in the thread that writes it, the last bytes in finish()."""
    for size in (len(DATA), 10):
        fd = os.open("/dev/full", os.O_WRONLY)
        try:
            with pytest.raises(OSError, match="No space left"), Writer(fd) as out:
                out.take(memoryview(DATA)[:size])
                out.finish()
        finally:
            os.close(fd)
