"""What keeps a daemon from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.shell.daemon import main


def test_a_home_that_everybody_may_write_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    assert main(["run", "--home", str(tmp_path)]) == 2
    assert f"chmod 700 {tmp_path}" in capsys.readouterr().err
