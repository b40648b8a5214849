"""Files written past the cache hold the same bytes, whatever the file system makes of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from elasticd.checkpoints.disk import LOCAL_DISK
from elasticd.checkpoints.sequential import BLOCK_BYTES, Writer, direct_writes

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


class DarwinFcntl:
    """fcntl(2) there: F_NOCACHE (48, sys/fcntl.h) holds until it is taken back."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.calls: list[Sequence[int]] = []
        """Command, argument, and how much the file has then."""

    def __call__(self, fd: int, command: int, argument: int) -> int:
        self.calls.append((command, argument, os.fstat(fd).st_size))
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        return 0


@pytest.mark.parametrize("refuses", [0, errno.ENOTSUP, errno.EINVAL])
def test_a_mac_keeps_no_shard_in_its_cache(tmp_path: Path, refuses: int) -> None:
    """Whole blocks go past it, as F_NOCACHE needs them aligned; the rest and the head don't."""
    fcntl = DarwinFcntl(refuses)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with Writer(fd, switch=direct_writes("darwin", fcntl)) as out:
        for at in range(0, len(DATA), 1_000_003):
            out.take(memoryview(DATA)[at : at + 1_000_003])
        out.finish()
    assert os.pread(fd, len(DATA) + 1, 0) == DATA
    os.close(fd)
    taken_back = [] if refuses else [(48, 0, 2 * BLOCK_BYTES)]
    assert fcntl.calls == [(48, 1, 0), *taken_back]


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
