"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.ipc.accounts import account_of, peer_uid
from elasticd.types import MOST_ACCOUNT_LETTERS


def test_the_kernel_says_who_connected(tmp_path: Path) -> None:
    listener, client = (socket.socket(socket.AF_UNIX) for _ in range(2))
    with listener, client:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client.connect(str(tmp_path / "s"))
        with listener.accept()[0] as connection:
            assert peer_uid(connection) == os.getuid()
            assert peer_uid(connection, "another system") is None


class Told:
    """A connection of which XNU says this."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED, struct xucred
        return self._said


@pytest.mark.parametrize(
    ("said", "uid"),
    [
        (struct.pack("2I h 2x 16I", 0, 501, 1, 20, *[0] * 15), 501),
        (struct.pack("2I h 2x 16I", 1, 501, 1, 20, *[0] * 15), None),
        (b"", None),
    ],
)
def test_a_mac_says_it_in_its_own_way(said: bytes, uid: int | None) -> None:
    assert peer_uid(cast(Any, Told(said)), "darwin") == uid


def test_an_account_is_called_by_its_name_else_by_its_number() -> None:
    assert account_of(os.getuid()) == pwd.getpwuid(os.getuid()).pw_name
    assert account_of(3_999_999_999) == "3999999999"
    assert account_of(None) == ""


def test_an_odd_name_can_be_told_and_shown() -> None:
    odd = pwd.struct_passwd(("DOMAIN\\anna \x1b[31m" + "x" * 200, "", 501, 20, "", "/", "/bin/sh"))
    found = account_of(501, lambda uid: odd)
    assert found.isprintable() and len(found) == MOST_ACCOUNT_LETTERS
    assert found.startswith("DOMAIN\\anna ")
