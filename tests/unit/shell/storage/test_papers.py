"""What makes a home a member's: whole whatever ends the writer, and for its account alone."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from pathlib import Path

import pytest

from elasticd.errors import DamageError, OperationError
from elasticd.shell.storage import papers
from elasticd.trust import tokens
from elasticd.trust.authority import Authority
from elasticd.trust.member import Member, admit
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.unit.shell.crashing import Killed, stopping_at

FIRST, SECOND = Authority.make(), Authority.make()
OLD, NEW = admit(FIRST, NodeId("a"), b"o" * 32), admit(SECOND, NodeId("b"), b"n" * 32)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def member_of(home: Path) -> Member | None:
    return papers.read(home) if papers.is_member(home) else None


@pytest.mark.parametrize("before", [None, OLD], ids=["new", "again"])
def test_a_kill_at_any_change_leaves_the_old_or_the_new(home: Path, before: Member | None) -> None:
    outcomes = set()
    for number in itertools.count(1):
        papers.forget(home)
        if before is not None:
            papers.write(home, before, FIRST)
        try:
            with stopping_at(number, Killed()):
                papers.write(home, NEW, SECOND)
            break
        except Killed:
            found = member_of(home)
            assert found in (before, NEW), number
            # With the key of its own authority, or with none.
            founder = papers.founder_of(home) if found else None
            assert founder == {NEW: SECOND, before: FIRST if before else None}[found], number
            outcomes.add(found == NEW)
        # Whoever repeats it succeeds, and nothing is left over.
        papers.write(home, NEW, SECOND)
        assert member_of(home) == NEW
        assert [each.name for each in home.iterdir()] == ["cluster"]
    assert outcomes == ({False} if before is None else {False, True}) and number > 6


def test_a_disk_that_fails_at_any_change_leaves_the_old_or_the_new(home: Path) -> None:
    for number in itertools.count(1):
        papers.write(home, OLD)
        full = OSError(errno.ENOSPC, "No space left on device")
        with stopping_at(number, full) as watch:
            try:
                papers.write(home, NEW)
            except OSError:
                assert member_of(home) == OLD, number
            else:
                assert member_of(home) == NEW, number
        if watch.seen < number:
            break
    assert number > 8


def test_who_is_cut_short_is_no_member_with_old_papers_once_it_forgets(home: Path) -> None:
    papers.write(home, OLD)
    for number in itertools.count(1):
        with stopping_at(number, Killed()) as watch, contextlib.suppress(Killed):
            papers.write(home, NEW)
        papers.forget(home)
        assert not papers.is_member(home) and list(home.iterdir()) == []
        papers.write(home, OLD)
        if watch.seen < number:
            break


def test_only_this_account_can_read_it(home: Path) -> None:
    old = os.umask(0)
    try:
        papers.found(home, NodeId("a"))
        papers.write_tokens(home, (tokens.opened(b"s", 1.0, 1),))
        papers.write_revoked(home, Revoked({"0" * 32: 1}))
    finally:
        os.umask(old)
    folder = papers.folder_of(home)
    assert papers.is_private(home)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 7
    (folder / papers.KEY).chmod(0o640)
    assert not papers.is_private(home)


def test_what_was_written_is_read(home: Path) -> None:
    made = papers.found(home, NodeId("mac-1"))
    assert papers.read(home) == made
    founder = papers.founder_of(home)
    assert founder is not None and founder.certificate == made.authority
    several = (tokens.opened(b"s", 1.5, 1), tokens.opened(b"t", 2.0, 3))
    papers.write_tokens(home, several)
    assert papers.read_tokens(home) == several
    papers.write_revoked(home, Revoked({"0" * 32: 1 << 100}))
    assert papers.read_revoked(home) == Revoked({"0" * 32: 1 << 100})


@pytest.mark.parametrize("name", ["authority.pem", "node.pem", "node.key", "member.json"])
@pytest.mark.parametrize("data", [None, b"", b"\xff{", b"{}", b"[1]"])
def test_a_damaged_file_is_named_with_the_cure(home: Path, name: str, data: bytes | None) -> None:
    papers.found(home, NodeId("a"))
    path = papers.folder_of(home) / name
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(DamageError) as caught:
        papers.read(home)
    said = str(caught.value)
    assert str(path.parent) in said and "elasticctl cluster join" in said
    assert "\n" not in said and (data is not None or name in said)


def test_papers_of_two_nodes_are_mixed_up(home: Path) -> None:
    papers.write(home, OLD)
    other = home / "other"
    other.mkdir()
    papers.write(other, NEW)
    shutil.copy(papers.folder_of(other) / papers.KEY, papers.folder_of(home))
    with pytest.raises(DamageError, match="of another key"):
        papers.read(home)


@pytest.mark.parametrize("data", [b"", b"{", b"[{}]", b"3", b"\xff"])
def test_other_damaged_files_name_their_cure(home: Path, data: bytes) -> None:
    papers.found(home, NodeId("a"))
    (papers.folder_of(home) / papers.TOKENS).write_bytes(data)
    with pytest.raises(OperationError, match=r"tokens\.json: damaged; remove it"):
        papers.read_tokens(home)
    (papers.folder_of(home) / papers.REVOKED).write_bytes(data)
    with pytest.raises(DamageError, match=r"revoked\.json: damaged; copy it"):
        papers.read_revoked(home)


def test_who_makes_no_members(home: Path) -> None:
    papers.write(home, OLD)
    assert papers.founder_of(home) is None
    assert papers.read_tokens(home) == () and papers.read_revoked(home) == Revoked()
