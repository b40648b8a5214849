"""What makes a home a member's: whole whatever ends the writer, and for its account alone."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elasticd.errors import DamageError, OperationError, ProtocolError
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import authority, tokens
from elasticd.trust.authority import Authority, admit
from elasticd.trust.issuing import GivenCertificate
from elasticd.trust.member import MemberPapers
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.unit.shell.crashing import Killed, stopping_at

FIRST, SECOND = Authority.make(), Authority.make()
OLD, NEW = admit(FIRST, NodeId("a"), b"o" * 32), admit(SECOND, NodeId("b"), b"n" * 32)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def member_of(home: Path) -> MemberPapers | None:
    return papers.read(home) if papers.is_member(home) else None


@pytest.mark.parametrize("before", [None, OLD], ids=["new", "again"])
def test_a_kill_at_any_change_leaves_the_old_or_the_new(
    home: Path, before: MemberPapers | None
) -> None:
    outcomes = set()
    for number in itertools.count(1):
        papers.forget(home)
        if before is not None:
            papers.write(home, before, FIRST.key)
        try:
            with stopping_at(number, Killed()):
                papers.write(home, NEW, SECOND.key)
            break
        except Killed:
            found = member_of(home)
            assert found in (before, NEW), number
            # With the key of its own authority, or with none.
            founder = founding.founder_of(home) if found else None
            assert founder == {NEW: SECOND, before: FIRST if before else None}[found], number
            outcomes.add(found == NEW)
        # Whoever repeats it succeeds, and nothing is left over.
        papers.write(home, NEW, SECOND.key)
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
        founding.found(home, NodeId("a"))
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
    made = founding.found(home, NodeId("mac-1"))
    assert papers.read(home) == made
    founder = founding.founder_of(home)
    assert founder is not None and founder.certificate == made.authority
    several = (tokens.opened(b"s", 1.5, 1), tokens.opened(b"t", 2.0, 3))
    papers.write_tokens(home, several)
    assert papers.read_tokens(home) == several
    papers.write_revoked(home, Revoked({"0" * 32: 1 << 100}))
    assert papers.read_revoked(home) == Revoked({"0" * 32: 1 << 100})


@pytest.mark.parametrize("name", ["authority.pem", "node.pem", "node.key", "member.json"])
@pytest.mark.parametrize("data", [None, b"", b"\xff{", b"{}", b"[1]"])
def test_a_damaged_file_is_named_with_the_cure(home: Path, name: str, data: bytes | None) -> None:
    founding.found(home, NodeId("a"))
    path = papers.folder_of(home) / name
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    with pytest.raises(DamageError) as caught:
        papers.read(home)
    said = str(caught.value)
    assert str(path.parent) in said and "elasticctl cluster init --home" in said
    assert "\n" not in said and (data is not None or name in said)


MIXED = [
    ({"key": NEW.key}, "the certificate is of another key"),
    ({"authority": NEW.authority}, "the certificate is of another authority"),
    ({"certificate": FIRST.certificate}, "the certificate is of another key"),
    ({"certificate": NEW.certificate, "key": NEW.key}, "the certificate is of another authority"),
    ({"node": NodeId("b")}, "the certificate is not that of b"),
    ({"secret": b"n" * 32}, "the certificate is not that of a"),
]


@pytest.mark.parametrize(("change", "reason"), MIXED)
def test_papers_of_two_nodes_are_mixed_up(home: Path, change: dict[str, Any], reason: str) -> None:
    """A daemon says it in the same words as who reads the certificates."""
    mixed = replace(OLD, **change)
    papers.write(home, mixed)
    with pytest.raises(DamageError, match=rf"damaged \({reason}\); join again"):
        papers.read(home)
    with pytest.raises(DamageError, match=reason):
        authority.check(mixed)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(["authority.pem", "node.pem", "node.key"]), st.data())
def test_a_bit_that_rots_is_noticed_or_means_nothing(
    home: Path, name: str, data: st.DataObject
) -> None:
    papers.write(home, OLD)
    path = papers.folder_of(home) / name
    rotten = bytearray(path.read_bytes())
    rotten[data.draw(st.integers(0, len(rotten) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(rotten)
    try:
        found = papers.read(home)
    except DamageError:
        return
    shown = Credentials(found, *papers.shown(home), Revoked())
    assert shown.incoming.get_ca_certs(binary_form=True) == [authority.to_der(OLD.authority)]


@pytest.mark.parametrize("years", [-1.0, 0.0])
def test_a_clock_that_is_wrong_damages_nothing(home: Path, years: float) -> None:
    key = authority.new_key()
    ended = FIRST.issue(authority.request_of(key), OLD.node, OLD.secret, years=years)
    late = replace(OLD, key=key, certificate=ended)
    papers.write(home, late)
    assert papers.read(home) == late


def test_nobody_is_asked_for_the_password_of_a_key(home: Path) -> None:
    key = serialization.load_pem_private_key(OLD.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    papers.write(home, replace(OLD, key=locked))
    with pytest.raises(DamageError, match="can't be read"):
        papers.read(home)


@pytest.mark.parametrize("data", [b"", b"{", b"[{}]", b"3", b"\xff"])
def test_other_damaged_files_name_their_cure(home: Path, data: bytes) -> None:
    founding.found(home, NodeId("a"))
    (papers.folder_of(home) / papers.TOKENS).write_bytes(data)
    with pytest.raises(OperationError, match=r"tokens\.json: damaged; remove it"):
        papers.read_tokens(home)
    (papers.folder_of(home) / papers.REVOKED).write_bytes(data)
    with pytest.raises(DamageError, match=r"revoked\.json: damaged; copy it"):
        papers.read_revoked(home)


def test_who_makes_no_members(home: Path) -> None:
    papers.write(home, OLD)
    assert founding.founder_of(home) is None
    assert papers.read_tokens(home) == () and papers.read_revoked(home) == Revoked()


# --- renewing ---------------------------------------------------------------------------------


def test_a_kill_while_it_is_renewed_leaves_the_old_or_the_new(home: Path) -> None:
    """Whoever reads finds a certificate with its key, and the next start brings it to its end."""
    outcomes = set()
    for number in itertools.count(1):
        papers.write(home, OLD, FIRST.key)
        request = founding.next_request(home)
        assert founding.next_request(home) != OLD.key and authority.key_of_request(request)
        certificate = FIRST.issue(request, OLD.node, OLD.secret)
        with stopping_at(number, Killed()) as watch, contextlib.suppress(Killed):
            founding.take(home, OLD, certificate, 0)
        whole = watch.seen < number
        found = papers.read(home)
        assert found.certificate in (OLD.certificate, certificate), number
        authority.check(found)
        outcomes.add(found.certificate == certificate)
        assert founding.founder_of(home) == FIRST
        for again in itertools.count(1):
            with stopping_at(again, Killed()) as second, contextlib.suppress(Killed):
                papers.settle(home)
            assert papers.read(home) == found, (number, again)
            if second.seen < again:
                break
        left = {each.name for each in papers.folder_of(home).iterdir()}
        if found != OLD:
            assert left == {*OF_A_FOUNDER}, "the old key is gone"
        else:
            assert authority.request_of((papers.folder_of(home) / papers.NEXT_KEY).read_bytes())
        if whole:
            break
    assert outcomes == {False, True} and number > 3


OF_A_FOUNDER = ("authority.pem", "node.pem", "node.key", "member.json", "authority.key")


@pytest.mark.parametrize("step", range(3))
def test_who_reads_in_the_midst_of_a_renewal_finds_a_whole(home: Path, step: int) -> None:
    papers.write(home, OLD)
    certificate = FIRST.issue(founding.next_request(home), OLD.node, OLD.secret)
    folder = papers.folder_of(home)
    (folder / papers.NEXT_NODE).write_bytes(certificate)
    if step > 0:
        (folder / papers.NEXT_KEY).rename(folder / papers.KEY)
    if step > 1:
        (folder / papers.NEXT_NODE).rename(folder / papers.NODE)
    assert papers.read(home).certificate == certificate
    assert set(papers.shown(home)) <= set(folder.iterdir())


def test_what_is_sent_as_a_certificate_is_checked(home: Path) -> None:
    papers.write(home, OLD)
    request = founding.next_request(home)
    good = FIRST.issue(request, OLD.node, OLD.secret)
    wrong = [
        SECOND.issue(request, OLD.node, OLD.secret),
        FIRST.issue(authority.request_of(authority.new_key()), OLD.node, OLD.secret),
        FIRST.issue(request, NodeId("other"), OLD.secret),
        b"",
    ]
    for each in wrong:
        with pytest.raises(ProtocolError, match="no certificate of ours"):
            founding.take(home, OLD, each, 0)
    with pytest.raises(ProtocolError, match="old already"):
        founding.take(home, OLD, good, authority.issued(good).serial)
    assert papers.read(home) == OLD
    assert founding.take(home, OLD, good, 0) == papers.read(home) != OLD


def test_which_certificates_are_old_is_kept(home: Path) -> None:
    papers.write(home, OLD)
    assert papers.read_renewal(home) == Renewal()
    papers.write_renewal(home, Renewal(1 << 100, 7))
    assert papers.read_renewal(home) == Renewal(1 << 100, 7)
    for data in (b"", b"{}", b"[]", b'{"renew": "x", "refuse": ""}', b'{"renew": 1, "refuse": 1}'):
        (papers.folder_of(home) / papers.RENEWAL).write_bytes(data)
        with pytest.raises(DamageError, match=r"renewal\.json: damaged; copy it"):
            papers.read_renewal(home)


def test_a_register_of_before_is_read(home: Path) -> None:
    papers.write(home, OLD, FIRST.key)
    before = '{"a": {"serial": "ff", "key": "00", "at_unix": 1.5, "address": "h:1"}}'
    (papers.folder_of(home) / issuing.ISSUED).write_text(before)
    register = issuing.read(home)
    assert register == {NodeId("a"): GivenCertificate(255, "00", 1.5, "h:1")}
    issuing.write(home, {NodeId("a"): GivenCertificate(255, "00", 1.5, "h:1", 1 << 90)})
    assert issuing.read(home)[NodeId("a")].first == 1 << 90
