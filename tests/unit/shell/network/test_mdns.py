"""Bonjour by zeroconf itself, over this machine's loopback."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import pytest

from elasticd.client import finding
from elasticd.shell.network.bonjour import SERVICE, Announcement
from elasticd.shell.network.mdns import Mdns

pytest.importorskip("zeroconf", reason="needs elasticd[discovery]")

LOOPBACK = ("127.0.0.1",)


def carries_multicast() -> bool:
    """Whether the system brings what one program sends to a group over loopback to another."""
    own = socket.inet_aton(LOOPBACK[0])
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hears,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as says,
    ):
        try:
            hears.bind(("", 0))
            group = socket.inet_aton("224.0.0.251") + own
            hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            hears.settimeout(1.0)
            says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            says.sendto(b"anybody", ("224.0.0.251", hears.getsockname()[1]))
            return hears.recv(16) == b"anybody"
        except OSError:
            return False


pytestmark = [
    pytest.mark.process,  # it opens ports, and has threads
    pytest.mark.skipif(not carries_multicast(), reason="loopback carries no multicast here"),
]
CLUSTER = secrets.token_hex(32)
SECONDS = 20.0
TYPE = [b"_elasticd", b"_tcp", b"local"]


def daemon(host: str, *, makes: bool = False, cluster: str = CLUSTER) -> Announcement:
    return Announcement(secrets.token_hex(16), cluster[:32], makes, (host,), 7070)


@pytest.fixture
def end() -> Iterator[Callable[[], Mdns]]:
    """Another machine's end."""
    with ExitStack() as stack:

        def opened() -> Mdns:
            return stack.enter_context(closing(Mdns.on(LOOPBACK)))

        yield opened


def announce_by_hand(labels: Sequence[bytes]) -> None:
    """That a daemon has such a name: one answer with one pointer, as its bytes travel."""
    owner, name = (b"".join(bytes([len(e)]) + e for e in each) + b"\0" for each in (TYPE, labels))
    record = struct.pack("!HHIH", 12, 1, 4500, len(name)) + name
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        loopback = socket.inet_aton(LOOPBACK[0])
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        sender.sendto(
            struct.pack("!6H", 0, 0x8400, 0, 1, 0, 0) + owner + record, ("224.0.0.251", 5353)
        )


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline


def test_who_announces_itself_is_found_by_its_name(end: Callable[[], Mdns]) -> None:
    said = daemon("10.0.0.7", makes=True)
    here, there = end(), end()
    assert here.find([said.name], ask=False) == []
    there.announce(said)
    until(lambda: here.find([said.name, secrets.token_hex(16)], ask=True) == [said])
    moved = Announcement(said.name, said.cluster, True, ("10.0.0.8",), 7070)
    there.close()
    until(lambda: here.find([said.name], ask=True) == [])
    end().announce(moved)
    until(lambda: here.find([said.name], ask=False) == [moved])


def test_the_node_that_makes_members_is_found_by_the_token(end: Callable[[], Mdns]) -> None:
    """Neither another member is, nor another cluster's."""

    def all_beside(hosts: Sequence[str], own: Sequence[str]) -> Sequence[str]:
        return hosts

    for said in (
        daemon("10.0.0.1"),
        daemon("10.0.0.2", makes=True, cluster=secrets.token_hex(32)),
        daemon("10.0.0.3", makes=True),
    ):
        end().announce(said)
    found = finding.issuers(CLUSTER, LOOPBACK, SECONDS, beside=all_beside)
    assert next(found) == "10.0.0.3:7070"
    found.close()
    assert not list(finding.issuers(CLUSTER, LOOPBACK, 0.0)), "it is beside nobody here"
    assert not list(finding.issuers(secrets.token_hex(32), LOOPBACK, 0.5, beside=all_beside))


NAMES_OF_NOBODY: tuple[list[bytes], ...] = (
    [b"\xff" * 63, *TYPE],  # no text
    [b"x" * 63],  # of another type
    [b"y" * 63, b"y" * 63, b"z" * 60, *TYPE],
    [b"\0\x1b[2J", *TYPE],
    [b"a.b.c", *TYPE],
    TYPE,
    [],
)


def test_names_that_are_no_daemons_are_nobodys_trouble(
    end: Callable[[], Mdns], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever announces them: who made the token is found all the same."""
    there = daemon("10.0.0.3", makes=True)
    end().announce(there)
    listening = end()
    names = listening.browse()
    for each in (*NAMES_OF_NOBODY, [there.name.encode(), *TYPE]):
        announce_by_hand(each)  # the last is heard after the others
    until(lambda: there.name in names.so_far())
    # Who has just announced itself answers all a second later (RFC 6762, section 6).
    until(lambda: listening.find(names.so_far(), ask=True) == [there])
    assert not caplog.records


@pytest.fixture
def neighbour() -> Iterator[socket.socket]:
    """Another program of this machine that shares the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            end.setsockopt(socket.SOL_SOCKET, option, 1)
        end.bind(("", 5353))
        group = socket.inet_aton("224.0.0.251") + socket.inet_aton(LOOPBACK[0])
        end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        end.settimeout(SECONDS)
        yield end


def asked_about(neighbour: socket.socket, name: str) -> list[bool]:
    """Of the first questions with ``name``, whether they are to be answered to who asks alone."""
    from zeroconf._protocol.incoming import DNSIncoming

    while True:
        message = DNSIncoming(neighbour.recv(9000))
        found = [each.unicast for each in message.questions if each.name.startswith(name)]
        if found:
            return found


def test_all_are_asked_so_that_all_who_share_the_port_hear_the_answer(
    end: Callable[[], Mdns], neighbour: socket.socket
) -> None:
    """RFC 6762, section 15.1."""
    name, here = secrets.token_hex(16), end()
    here.find([name], ask=True)
    assert not any(asked_about(neighbour, name))
    here.browse()
    assert not any(asked_about(neighbour, SERVICE))


def refusing(number: int) -> Callable[[str], None]:
    def knock(host: str) -> None:
        raise OSError(number, os.strerror(number))

    return knock


@pytest.mark.parametrize(
    ("system", "number", "said"),
    [
        ("darwin", errno.EHOSTUNREACH, "Privacy & Security > Local Network"),
        ("darwin", errno.EPERM, f"nothing goes out to 224.0.0.251: {os.strerror(errno.EPERM)}$"),
        ("linux", errno.EHOSTUNREACH, f"{os.strerror(errno.EHOSTUNREACH)}$"),
    ],
)
def test_a_machine_that_lets_nothing_out_is_told(system: str, number: int, said: str) -> None:
    """zeroconf would say nothing of it, and the log that the daemon is announced."""
    threads = threading.active_count()
    with pytest.raises(OSError, match=said):
        Mdns.on(LOOPBACK, refusing(number), system)
    assert threading.active_count() == threads


def test_one_network_that_lets_something_out_is_enough() -> None:
    knocked: list[str] = []

    def knock(host: str) -> None:
        knocked.append(host)
        if len(knocked) == 1:
            raise OSError(errno.ENETUNREACH, "")

    Mdns.on(LOOPBACK * 2, knock).close()
    assert len(knocked) == 2


def test_an_address_of_another_machine_is_none_to_listen_at() -> None:
    with pytest.raises(OSError, match="has no address of"):
        Mdns.on(["198.51.100.77"])
