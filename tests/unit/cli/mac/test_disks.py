"""The probe of full flushes."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.cli.mac.disks import flush

MIB = 1 << 20


class SlowDisk:
    """One whose flushes take so long by its own clock; ``beside``: once a large file is there."""

    def __init__(self, folder: Path, idle: float, beside: float) -> None:
        self.folder, self.idle, self.beside, self.now = folder, idle, beside, 0.0

    def sync(self, fd: int) -> None:
        self.now += self.beside if (self.folder / "large").exists() else self.idle

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("idle", "beside", "verdict", "cure"),
    [
        (0.017, 0.2, "pass", ""),
        (0.3, 0.3, "warn", "faster disk: each decision waits"),
        (0.017, 2.5, "warn", "Nodes fall silent while their checkpoints are written"),
    ],
)
def test_slow_flushes_are_told(
    tmp_path: Path, idle: float, beside: float, verdict: str, cure: str
) -> None:
    disk = SlowDisk(tmp_path, idle, beside)
    found = flush(tmp_path, disk.sync, 5, 16 * MIB, disk.clock)
    assert found.verdict == verdict and cure in found.cure
    assert f"idle {idle * 1000:.1f}" in found.value


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    found = flush(tmp_path, full, 2, 8 * MIB)
    assert found.verdict == "fail" and "No space left" in found.value and found.cure


def test_it_is_measured_here(tmp_path: Path) -> None:
    found = flush(tmp_path, flushes=2, large_bytes=8 * MIB)
    assert found.verdict in ("pass", "warn") and not (tmp_path / "large").exists()
