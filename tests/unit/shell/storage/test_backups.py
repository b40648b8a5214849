"""Time Machine leaves out what is large and changes all the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog

from elasticd.shell.storage.backups import LEFT_OUT, leave_out


class Tmutil:
    """tmutil(8): an exclusion is an attribute of the item, which has to be there."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.excluded: list[str] = []

    def run(self, command: Sequence[str]) -> str:
        assert command[:2] == ["/usr/bin/tmutil", "addexclusion"]
        for path in command[2:]:
            if self.fails or not Path(path).exists():
                return f"{path}: Error (-43) while attempting to change exclusion setting."
        self.excluded += command[2:]
        return ""


def test_checkpoints_and_caches_are_left_out_from_the_first_start_on(tmp_path: Path) -> None:
    tmutil = Tmutil()
    leave_out(tmp_path, "darwin", tmutil.run)
    leave_out(tmp_path, "darwin", tmutil.run)
    assert tmutil.excluded == 2 * [str(tmp_path / name) for name in LEFT_OUT]
    assert "checkpoints" in LEFT_OUT and "cache" in LEFT_OUT


def test_elsewhere_nothing_is_done(tmp_path: Path) -> None:
    leave_out(tmp_path, "linux", Tmutil().run)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_logged_and_harms_nothing(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        leave_out(tmp_path, "darwin", Tmutil(fails=True).run)
        leave_out(tmp_path, "darwin")  # no such tool here
        (tmp_path / "clones").rmdir()
        (tmp_path / "clones").write_text("")
        leave_out(tmp_path, "darwin", Tmutil().run)
    reasons = [line["reason"] for line in lines]
    assert "Error (-43)" in reasons[0] and "tmutil" in reasons[1] and "clones" in reasons[2]
