"""Memory cgroups of our own, of version 1 or 2, in which real processes really run short."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from elasticd.shell.children import room

_CLOSE_SECONDS = 10.0
_EXHAUST_SECONDS = 10.0
_LEFT_BYTES = 16 << 20
_HOG = """
import sys
kept = []
for line in sys.stdin:
    kept.append(b"x" * int(line))
    print("taken", flush=True)
"""


@dataclass(frozen=True)
class _Version:
    root: Path
    used: str
    limit: str
    unlimited: str
    kills: str


_V1 = _Version(
    Path("/sys/fs/cgroup/memory"),
    "memory.usage_in_bytes", "memory.limit_in_bytes", "-1", "memory.oom_control",
)  # fmt: skip
_V2 = _Version(Path("/sys/fs/cgroup"), "memory.current", "memory.max", "max", "memory.events")


class MemoryGroup:
    """One group, empty at first; as a context manager it is taken away at the end.

    A process that enters brings nothing with it: the group counts what it takes from then on.
    """

    folder: Path

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: there can be none here.
        """
        self._version = _V1 if (_V1.root / _V1.used).exists() else _V2
        if sys.platform != "linux":
            raise OSError("memory cgroups need Linux")
        self.folder = self._version.root / f"elasticd-test-{secrets.token_hex(4)}"
        self.folder.mkdir()
        if not (self.folder / self._version.limit).exists():
            self.folder.rmdir()
            raise OSError(f"{self._version.root} has no memory controller")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, pid: int) -> None:
        """Raises OSError if that process has ended."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, limit_bytes: int | None) -> None:
        """Raises OSError where more is used and can't be taken away (version 1)."""
        text = self._version.unlimited if limit_bytes is None else str(limit_bytes)
        (self.folder / self._version.limit).write_text(text)

    def exhaust(self, victim: int) -> bool:
        """Let another process take the memory that is left until the kernel kills, first of all
        ``victim``. False if it never did."""
        Path(f"/proc/{victim}/oom_score_adj").write_text("1000")
        self.limit(self.used_bytes + _LEFT_BYTES)
        hog = subprocess.Popen(
            ["sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec tail /dev/zero"]
        )
        deadline = time.monotonic() + _EXHAUST_SECONDS
        try:
            while not self.kills and hog.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
        finally:
            hog.kill()
            hog.wait()
        return self.kills > 0

    @property
    def used_bytes(self) -> int:
        return int((self.folder / self._version.used).read_text())

    @property
    def kills(self) -> int:
        """How often the kernel has killed here for want of memory."""
        lines = (self.folder / self._version.kills).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")

    def close(self) -> None:
        """Let everybody out, and take it away."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(FileNotFoundError):
            self.limit(None)
            while True:
                for pid in (self.folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(OSError):
                        (self._version.root / "cgroup.procs").write_text(pid)
                try:
                    self.folder.rmdir()
                    return
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.01)


class Hog:
    """A process in a group that takes memory when it is told to, and ends as a context manager."""

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        group.add(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        with self._process:
            pass

    def leave(self, left_bytes: int) -> None:
        """Take what is left of the group's limit but for so much."""
        left = room.left(self._group.folder)
        assert left is not None, "the group has no limit"
        assert self._process.stdin is not None and self._process.stdout is not None
        if left[0] > left_bytes:
            print(left[0] - left_bytes, file=self._process.stdin, flush=True)
            self._process.stdout.readline()


def why_not() -> str:
    """Why there can be no such groups here; empty if there can."""
    try:
        MemoryGroup().close()
    except OSError as error:
        return f"no memory cgroup can be made here: {error}"
    return ""
