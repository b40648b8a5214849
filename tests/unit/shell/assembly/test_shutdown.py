"""Who asks a daemon to begin anew does not end it for good."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from elasticd.errors import OperationError
from elasticd.settings.places import FILE_NAME
from elasticd.shell.assembly.shutdown import Shutdown
from elasticd.shell.storage.starting import refuse_hindered


def test_a_daemon_goes_on_whose_new_process_would_end_of_wrong_settings(tmp_path: Path) -> None:
    """Of its own home, or of the file that it was given."""
    home, other = tmp_path / "home", tmp_path / "other.toml"
    home.mkdir(mode=0o700)
    (home / FILE_NAME).write_text("lissen = 1\n")
    other.write_text("")

    async def main() -> None:
        ending = Shutdown()
        for file, wrong in ((None, home / FILE_NAME), (tmp_path / "none", tmp_path / "none")):
            with pytest.raises(OperationError, match=f"goes on as it is, .*: {wrong}"):
                await ending.begin_anew(partial(refuse_hindered, home, file))
        assert not ending.asked.is_set() and not ending.again
        await ending.begin_anew(partial(refuse_hindered, home, other))
        assert ending.asked.is_set() and ending.again

    asyncio.run(main())


def test_so_does_one_whose_disk_does_not_give_what_is_there() -> None:
    def refuse() -> None:
        raise OSError("it is broken")

    async def main() -> None:
        ending = Shutdown()
        with pytest.raises(OperationError, match=r"goes on as it is, .*: it is broken"):
            await ending.begin_anew(refuse)
        assert not ending.asked.is_set()

    asyncio.run(main())
