"""The node that makes members: its register of them (HOME/cluster/issued.json) and its tokens.

The daemon and the command line both change these files, one after the other.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elasticd.errors import OperationError
from elasticd.shell.storage import papers
from elasticd.shell.storage.durable import write_durable
from elasticd.trust import issuing, tokens
from elasticd.trust.issuing import GivenCertificate, Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId

ISSUED, LOCK = "issued.json", "issuing.lock"


class FileDamaged(OperationError):
    """One of the files here, which is nobody else's concern."""


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Nobody else changes what is open and who has joined."""
    path = papers.folder_of(home) / LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def read(home: Path) -> Register:
    """Who has joined here.

    Raises:
        FileDamaged: it can't be read.
    """
    path = papers.folder_of(home) / ISSUED
    try:
        said: dict[str, Any] = json.loads(path.read_bytes())
        return {NodeId(node): _given(each) for node, each in said.items()}
    except FileNotFoundError:
        return {}
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        raise FileDamaged(
            f"{path}: damaged; remove it: then ids of nodes that are away may be given twice, and"
            " those join again whose certificates are refused"
        ) from None


def write(home: Path, register: Register) -> None:
    """Raises OSError: the disk is full or broken; the old one is still there."""
    said = {
        node: {
            **asdict(given),
            "serial": format(given.serial, "x"),
            "first": format(given.first, "x"),
        }
        for node, given in register.items()
    }
    data = json.dumps(said, indent=1).encode() + b"\n"
    write_durable(papers.folder_of(home) / ISSUED, data)


def outlived(home: Path, member: MemberPapers, revoked: Revoked) -> Revoked:
    """Certificates that were made here, and are to be revoked: they renew one that was.

    Raises:
        FileDamaged: the register can't be read.
    """
    with alone(home):
        return issuing.outlived(member, revoked, read(home))


def _given(said: Mapping[str, Any]) -> GivenCertificate:
    serial = int(said["serial"], 16)
    at, first = float(said["at_unix"]), int(said.get("first", "0"), 16)
    return GivenCertificate(serial, str(said["key"]), at, str(said["address"]), first)


def read_tokens(home: Path) -> tuple[tokens.OpenToken, ...]:
    """The tokens that are open.

    Raises:
        FileDamaged: they can't be read.
    """
    try:
        return papers.read_tokens(home)
    except OperationError as error:
        raise FileDamaged(str(error)) from None


def open_token(home: Path, new: tokens.OpenToken, now: float) -> None:
    """Let nodes join with another token.

    Raises:
        OperationError: the file with the others is damaged.
        OSError: the disk is full or broken; nothing has changed.
    """
    with alone(home):
        papers.write_tokens(home, tokens.with_new(papers.read_tokens(home), new, now))


def end_tokens(home: Path) -> None:
    """Let nobody join any more with a token of before.

    Raises:
        OSError: the disk is full or broken; they are open still.
    """
    with alone(home):
        papers.write_tokens(home, ())
