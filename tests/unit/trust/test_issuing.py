"""Who may be which node, of those who ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.errors import OperationError
from elasticd.trust import authority, names
from elasticd.trust.authority import Authority, admit
from elasticd.trust.issuing import GivenCertificate, Issuer, Register, outlived
from elasticd.trust.names import Issued
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId

MEMBER = admit(Authority.make(), NodeId("first"), b"s" * 32)
A, B = NodeId("a"), NodeId("b")
AT = "10.0.0.2:7070"
JOINED: Register = {A: GivenCertificate(7, "key a", 1.0, AT)}
PUT_OUT = Revoked({MEMBER.name_of(A): 7})


def check(
    node: str,
    key: str,
    given: Register = JOINED,
    revoked: Revoked | None = None,
    known: tuple[str, ...] = (),
    address: str = AT,
) -> None:
    issuer = Issuer(MEMBER, revoked or Revoked(), given, tuple(map(NodeId, known)))
    issuer.check(NodeId(node), key, address)


def test_who_is_new_or_asks_again_may() -> None:
    check("b", "key b")
    check("a", "key a")
    check("a", "key a", known=("a",))


@pytest.mark.parametrize("node", ["first", "a"])
def test_an_id_is_taken(node: str) -> None:
    with pytest.raises(OperationError, match=f"another node of the cluster is called {node}"):
        check(node, "key b")


def test_an_id_that_is_known_is_taken_also_of_one_that_did_not_join_here() -> None:
    with pytest.raises(OperationError, match="another node"):
        check("b", "key b", known=("b",))


def test_the_id_of_one_that_was_put_out_is_free_but_not_for_it() -> None:
    check("a", "key b", revoked=PUT_OUT)
    check("b", "key b", revoked=Revoked({MEMBER.name_of(B): 1}), known=("b",))
    for node in ("a", "b"):
        with pytest.raises(OperationError, match="was put out"):
            check(node, "key a", revoked=PUT_OUT)


def test_one_that_was_let_in_again_has_its_id() -> None:
    again: Register = {A: GivenCertificate(8, "key c", 2.0, AT)}
    with pytest.raises(OperationError, match="another node"):
        check("a", "key b", given=again, revoked=PUT_OUT)
    check("a", "key c", given=again, revoked=PUT_OUT)


@pytest.mark.parametrize("ahead_seconds", [-1e6, 0.0, 0.001, 1.0, 1e6])
def test_a_new_certificate_is_later_than_what_was_revoked(ahead_seconds: float) -> None:
    """By the clock of another node, which is wrong or this one is."""
    founder, now = Authority.make(), 1e9
    member = admit(founder, NodeId("first"), b"s" * 32)
    asks = authority.request_of(authority.new_key())
    last = names.last_serial(now + ahead_seconds)
    for given, serials in (
        ({}, {member.name_of(A): last}),
        ({A: GivenCertificate(last, "k", 1.0, AT)}, {}),
    ):
        issuer = Issuer(member, Revoked(serials), given)
        made = founder.issue(asks, A, member.secret, issuer.made_at(A, now))
        assert authority.issued(made).serial > last
        assert not Revoked({member.name_of(A): last}).holds(authority.issued(made))


def test_a_revocation_of_the_end_of_time_is_for_good() -> None:
    issuer = Issuer(MEMBER, Revoked({MEMBER.name_of(A): (1 << 160) - 1}), {})
    with pytest.raises(OperationError, match="choose another --node-id"):
        issuer.made_at(A, 1e9)


def test_one_key_is_one_node() -> None:
    with pytest.raises(OperationError, match="joined as a already"):
        check("b", "key a")


@pytest.mark.parametrize(
    "node", ["", "-a", "a b", "a/b", "../a", "a\n", "\x1b[2J", "x" * 64, "é", "a\x00"]
)
def test_ids_are_checked_like_the_settings(node: str) -> None:
    with pytest.raises(OperationError, match="a node id must be 1 to 63 letters"):
        check(node, "key b")


@pytest.mark.parametrize("address", ["", "x", "h:0", "h:1\n", "a b:1"])
def test_addresses_are_checked_like_the_settings(address: str) -> None:
    with pytest.raises(OperationError, match="not host:port"):
        check("b", "key b", address=address)


# --- renewing ---------------------------------------------------------------------------------

SHOWN = Issued(MEMBER.name_of(A), 7)
RENEWED: Register = {A: GivenCertificate(9, "new a", 1.0, AT, first=7)}


def check_renewal(
    key: str,
    shown_key: str = "key a",
    node: str = "a",
    shown: Issued = SHOWN,
    given: Register = JOINED,
    revoked: Revoked | None = None,
    address: str = AT,
    refused: int = 0,
) -> None:
    issuer = Issuer(MEMBER, revoked or Revoked(), given, wanted=refused, refused=refused)
    issuer.check_renewal(NodeId(node), shown, shown_key, key, address)


def test_a_member_renews_with_a_new_key_and_asks_again_with_that() -> None:
    check_renewal("new a")
    check_renewal("new a", given=RENEWED)
    # A cluster on one machine had no register of those that it was made with.
    check_renewal("new a", given={}, refused=6)
    check_renewal("new a", refused=7)
    # The newest key may renew again.
    newest = Issued(MEMBER.name_of(A), 9)
    check_renewal("newer a", "new a", shown=newest, given=RENEWED)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": "key a"}, "its old key"),
        ({"node": "b"}, "not that of b"),
        ({"node": "first", "shown": Issued(MEMBER.name_of(NodeId("first")), 7)}, "not that of"),
        ({"revoked": PUT_OUT}, "was put out"),
        ({"key": "key c", "given": RENEWED}, "renewed its certificate with another key"),
        ({"key": "k", "given": {**JOINED, B: GivenCertificate(1, "k", 1.0, AT)}}, "another node"),
        ({"address": "nowhere"}, "not host:port"),
        ({"given": {}, "refused": 7}, "is not known here any more"),
    ],
)
def test_who_may_not_renew(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(OperationError, match=said):
        check_renewal(**{"key": "new a", **changed})


def test_one_whose_newest_certificate_is_revoked_renews_none() -> None:
    revoked = Revoked({MEMBER.name_of(A): 9})
    with pytest.raises(OperationError, match="was put out"):
        check_renewal("newer a", "new a", shown=Issued(SHOWN.name, 10), given=RENEWED,
                      revoked=revoked)  # fmt: skip


def test_the_register_keeps_since_when_it_is_a_member() -> None:
    issuer = Issuer(MEMBER, Revoked(), JOINED)
    once = issuer.renewed(A, SHOWN, 9, "new a", AT)
    assert once == GivenCertificate(9, "new a", 1.0, JOINED[A].address or AT, first=7)
    twice = Issuer(MEMBER, Revoked(), {A: once}).renewed(A, SHOWN, 11, "newer a", AT)
    assert twice == replace(once, serial=11, key="newer a")
    unknown = Issuer(MEMBER, Revoked(), {}).renewed(A, SHOWN, 9, "new a", AT)
    assert unknown.first == 7 and unknown.at_unix == SHOWN.made_unix


@pytest.mark.parametrize(
    ("known", "reached", "kept"),
    [
        ("10.0.0.2:1", "", "10.0.0.2:1"),
        ("10.0.0.2:1", "10.1.0.2:1", "10.1.0.2:1"),
        ("", "", "10.9.0.2:1"),
        (None, "", "10.9.0.2:1"),
        (None, "10.1.0.2:1", "10.1.0.2:1"),
    ],
)
def test_an_address_that_nobody_has_tried_takes_no_others_place(
    known: str | None, reached: str, kept: str
) -> None:
    given = {} if known is None else {A: GivenCertificate(7, "a", 1.0, known)}
    issuer = Issuer(MEMBER, Revoked(), given)
    assert issuer.renewed(A, SHOWN, 9, "new a", "10.9.0.2:1", reached).address == kept


def test_who_is_put_out_is_out_with_what_has_renewed_its_certificate() -> None:
    """By a node whose clock is behind, and which has not seen the new one."""
    name = MEMBER.name_of(A)
    for serial in (7, 8):
        assert outlived(MEMBER, Revoked({name: serial}), RENEWED) == Revoked({name: 9})
    for serial in (6, 9, 10):  # one that was let in again since; all of them
        assert outlived(MEMBER, Revoked({name: serial}), RENEWED) == Revoked()
    assert outlived(MEMBER, Revoked({name: 6}), JOINED) == Revoked()


def test_a_new_certificate_is_later_than_those_that_are_to_be_renewed() -> None:
    for wanted in (names.last_serial(2e9), names.last_serial(0.5e9)):
        founder = Authority.make()
        issuer = Issuer(MEMBER, Revoked(), {}, wanted=wanted)
        asks = authority.request_of(authority.new_key())
        made = founder.issue(asks, A, MEMBER.secret, issuer.made_at(A, 1e9))
        assert authority.issued(made).serial > wanted
