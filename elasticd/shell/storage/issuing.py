"""The node that makes members: its register of them (HOME/cluster/issued.json) and its tokens.

The daemon and the command line both change these files, one after the other.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elasticd.core.words.joining import Join
from elasticd.errors import OperationError
from elasticd.shell.storage import papers
from elasticd.shell.storage.durable import write_durable
from elasticd.trust import authority, tokens
from elasticd.trust.authority import Authority
from elasticd.trust.issuing import Given, Issuer, Register
from elasticd.trust.member import Member
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
            f"{path}: damaged; remove it: then ids of nodes that are away may be given twice"
        ) from None


def write(home: Path, register: Register) -> None:
    """Raises OSError: the disk is full or broken; the old one is still there."""
    said = {
        node: {**asdict(given), "serial": format(given.serial, "x")}
        for node, given in register.items()
    }
    data = json.dumps(said, indent=1).encode() + b"\n"
    write_durable(papers.folder_of(home) / ISSUED, data)


def _given(said: Mapping[str, Any]) -> Given:
    serial = int(said["serial"], 16)
    return Given(serial, str(said["key"]), float(said["at_unix"]), str(said["address"]))


def _tokens(home: Path) -> tuple[tokens.OpenToken, ...]:
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


def admit(
    home: Path,
    asked: Join,
    founder: Authority,
    member: Member,
    revoked: Revoked,
    known: Collection[NodeId],
    now: float,
) -> tuple[bytes, Register]:
    """The certificate of who asks, and all who have joined here. It is noted on disk before.

    Raises:
        OperationError: it is not let in, and may hear why.
        FileDamaged: of the tokens, or the register.
        ProtocolError: its request is none.
        OSError: the disk is full or broken; what it asks can be asked again.
    """
    with alone(home):
        open_ones = _tokens(home)
        # First of all: who has no token can have nothing else looked at.
        tokens.check(open_ones, asked.secret, now)
        key = authority.key_of_request(asked.request)
        left = tokens.used(open_ones, asked.secret, key, now)
        register = read(home)
        issuer = Issuer(member, revoked, register, known)
        issuer.check(asked.node, key, asked.address)
        at = issuer.made_at(asked.node, now)
        certificate = founder.issue(asked.request, asked.node, member.secret, at)
        serial = authority.issued(certificate).serial
        register = {**register, asked.node: Given(serial, key, now, asked.address)}
        papers.write_tokens(home, left)
        write(home, register)
        return certificate, register
