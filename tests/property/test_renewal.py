"""All certificates are made anew, through faults in any order: at the end all members can talk, and
nobody takes what they had before.

The members are homes on a disk, of which any change may be the last that a process makes; what they
say to each other, and whether it arrives, is drawn. The node that makes members is one of them.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from elasticd.core.words.joining import Renew
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.network import credentials as tls
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.hello import Refused
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import authority, renewal
from elasticd.trust.names import Issued, last_serial
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId
from tests.unit.shell.crashing import Killed, stopping_at

ISSUER, OTHERS = NodeId("n0"), (NodeId("n1"), NodeId("n2"))
NODES = (ISSUER, *OTHERS)
nodes, others = st.sampled_from(NODES), st.sampled_from(OTHERS)
kills = st.none() | st.integers(1, 8)
"""The process ends before so many-th change of a file; None: it doesn't."""
FAULTS = [
    ("", 0), ("lost", 0), *(("own", n) for n in range(1, 9)), *(("there", n) for n in range(1, 6)),
]  # fmt: skip
"""Of a member's attempt: its own process ends, or that of the issuer, or the answer is lost."""


class World(RuleBasedStateMachine):
    """Three nodes. ``running``: what the daemon of each has in memory; one that is missing is
    away."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # syncing takes no time there
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.clock = 1.7e9
        self.members = list(NODES)
        self.running: dict[NodeId, Credentials] = {}
        self.stolen: list[tuple[NodeId, Credentials]] = []
        for node in NODES:
            self.home(node).mkdir()
        founded = founding.found(self.home(ISSUER), ISSUER)
        founder = founding.founder_of(self.home(ISSUER))
        assert founder is not None
        self.founder = founder
        at = datetime.fromtimestamp(self.clock, UTC)
        for node in OTHERS:
            made = founding.admit_beside(self.home(ISSUER), founder, founded, node, "h:1", at)
            papers.write(self.home(node), made)
        for node in NODES:
            self.start(node, None)
            self.steal(node)

    @initialize(kill=kills)
    def first(self, kill: int | None) -> None:
        self.rotate(kill)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def home(self, node: NodeId) -> Path:
        return self.folder / node

    @contextmanager
    def dying(self, node: NodeId, kill: int | None) -> Iterator[None]:
        """Its process ends at that change of its files, and nobody hears from it."""
        if kill is None:
            yield
            return
        try:
            with stopping_at(kill, Killed()):
                yield
        except Killed:
            self.running.pop(node, None)
            papers.read(self.home(node))  # whole, whatever it was cut short in

    # What happens.

    @rule(node=nodes)
    def away(self, node: NodeId) -> None:
        self.running.pop(node, None)

    @rule(node=nodes, kill=kills)
    def start(self, node: NodeId, kill: int | None) -> None:
        if node in self.running:
            return
        home = self.home(node)
        with self.dying(node, kill):
            papers.settle(home)
            shown = papers.shown(home)
            known = papers.read_renewal(home)
            revoked = papers.read_revoked(home)
            self.running[node] = Credentials(papers.read(home), *shown, revoked, known)

    @rule(node=nodes)
    def steal(self, node: NodeId) -> None:
        """Somebody copies what there is of it now."""
        home = self.home(node)
        self.stolen.append((node, Credentials(papers.read(home), *papers.shown(home),
                                              papers.read_revoked(home))))  # fmt: skip

    @rule()
    def register_is_lost(self) -> None:
        """As a person does with one that is damaged."""
        (papers.folder_of(self.home(ISSUER)) / issuing.ISSUED).unlink(missing_ok=True)

    @rule(seconds=st.sampled_from([-1000.0, 0.0, 1000.0]))
    def clock_moves(self, seconds: float) -> None:
        self.clock += seconds

    @precondition(lambda self: ISSUER in self.running)
    @rule(kill=kills)
    def rotate(self, kill: int | None) -> None:
        own = self.running[ISSUER]
        if own.renewal.is_under_way:
            return
        given = [each.serial for each in issuing.read(self.home(ISSUER)).values()]
        seen = [each.own.serial for each in self.running.values()]
        wanted = max(last_serial(self.clock), *given, *seen, own.renewal.wanted)
        self.hears(ISSUER, Renewal(wanted), kill)

    def hears(self, node: NodeId, news: Renewal, kill: int | None) -> None:
        """It writes it down; who only hears it acts on it before."""
        known = self.running[node]
        now = known.renewal.merged(news)
        if node != ISSUER:
            known.renewal = now
        with self.dying(node, kill):
            papers.write_renewal(self.home(node), now)
            known.renewal = now

    @rule(one=nodes, other=nodes, kill=kills)
    def meet(self, one: NodeId, other: NodeId, kill: int | None) -> None:
        """One connects to the other, if that takes it; both say which certificates are old."""
        if one == other or one not in self.running or other not in self.running:
            return
        client, server = self.running[one], self.running[other]
        try:
            shown = connect(server, client)
        except Refused:
            return
        if server.renewal.refuses(shown):
            word = renewal.word_of(server.renewal.refused)
            self.hears(one, renewal.told(word, server.own), kill)
            return
        told = client.renewal
        self.hears(one, server.renewal, kill)
        if other in self.running:
            self.hears(other, told, None)

    @rule(node=nodes, fault=st.sampled_from(FAULTS))
    def attempt(self, node: NodeId, fault: tuple[str, int]) -> None:
        """It hears of the issuer that it is to renew its certificate, and tries."""
        what, number = fault
        kill, there = (number if what == each else None for each in ("own", "there"))
        self.meet(node, ISSUER, None)
        known = self.running.get(node)
        if known is None or not known.renewal.is_due(known.own):
            return
        home = self.home(node)
        with self.dying(node, kill):
            papers.settle(home)
            new = papers.read(home)
            if new.certificate == known.member.certificate:
                if node == ISSUER:
                    own, out = known.member, known.revoked
                    wanted = known.renewal.wanted
                    new = founding.renew_own(home, self.founder, own, out, wanted, self.clock)
                else:
                    word = Renew(node, founding.next_request(home), "h:1")
                    # Its own death comes after the issuer's part here, or before.
                    certificate = self.issuer_answers(known, word, there)
                    if certificate is None or what == "lost":
                        return
                    new = founding.take(home, known.member, certificate, known.renewal.wanted)
            known.show(new, *papers.shown(home))

    def issuer_answers(self, asking: Credentials, word: Renew, kill: int | None) -> bytes | None:
        issuer = self.running.get(ISSUER)
        if issuer is None:
            return None
        shown = founding.ShownCertificate(asking.own, authority.to_der(asking.member.certificate))
        answer = None
        try:
            with uncounted(), self.dying(ISSUER, kill), contextlib.suppress(ProtocolError):
                answer = founding.renew(
                    self.home(ISSUER), word, shown, self.founder, issuer, self.clock
                )
        except OperationError:
            if not self.joins_again(word.node, issuer, asking):
                raise
        return answer

    @precondition(lambda self: ISSUER in self.running)
    @rule(kill=kills)
    def end(self, kill: int | None) -> None:
        """Old ones are refused, if those that are there have new ones."""
        known = self.running[ISSUER]
        if not known.renewal.is_under_way:
            return
        given = {n: each.serial for n, each in issuing.read(self.home(ISSUER)).items()}
        shown = {node: each.own.serial for node, each in self.running.items()}
        wanted = known.renewal.wanted
        standing = renewal.standing(wanted, self.members, self.running.keys(), shown, given)
        if standing.may_end(settled=True):
            assert all(not known.renewal.is_due(each.own) for each in self.running.values())
            self.hears(ISSUER, Renewal(wanted, wanted), kill)

    # What holds.

    @invariant()
    def who_refuses_old_ones_has_a_new_one(self) -> None:
        """So whoever was there when that began has lost no connection."""
        for each in self.running.values():
            assert not each.renewal.refuses(each.own)

    def finish(self) -> None:
        """No more faults."""
        self.go_on()
        if again := self.to_join_again():  # somebody has them put out first
            for node in again:
                del self.running[node]
                self.members.remove(node)
            self.go_on()
        known = {each.renewal for each in self.running.values()}
        assert len(known) == 1 and not known.pop().is_under_way
        for server in self.running.values():
            for client in self.running.values():
                server.other_end(_End(connect(server, client)))
        for node, old in self.stolen:
            self.gets_nowhere(node, old)

    def go_on(self) -> None:
        for _ in range(3):
            for node in self.members:
                self.start(node, None)
                self.attempt(node, ("", 0))
            for one in self.members:
                for other in self.members:
                    self.meet(one, other, None)
            self.end(None)

    def to_join_again(self) -> list[NodeId]:
        """Their certificates are refused, and nobody knows any more that they are their newest."""
        issuer = self.running[ISSUER]
        return [n for n, each in self.running.items() if self.joins_again(n, issuer, each)]

    def joins_again(self, node: NodeId, issuer: Credentials, asking: Credentials) -> bool:
        register = issuing.read(self.home(ISSUER))
        return issuer.renewal.refuses(asking.own) and node not in register

    def gets_nowhere(self, node: NodeId, old: Credentials) -> None:
        """What was copied before all renewed theirs."""
        refused = self.running[ISSUER].renewal.refused
        if old.own.serial > refused:
            return
        for server in self.running.values():
            with pytest.raises(Refused, match="it has to renew it"):
                server.other_end(_End(connect(server, old)))
        if node == ISSUER:
            return
        word = Renew(node, authority.request_of(authority.new_key()), "h:1")
        shown = founding.ShownCertificate(old.own, authority.to_der(old.member.certificate))
        with pytest.raises(OperationError, match=r"with another key|not known here any more"):
            founding.renew(
                self.home(ISSUER), word, shown, self.founder, self.running[ISSUER], self.clock
            )


@contextmanager
def uncounted() -> Iterator[None]:
    """What another process does is not among the changes after which this one ends."""
    from tests.unit.shell import crashing

    watches = [(each, each.error, each.left, each.seen) for each in crashing._watch]
    for each, *_ in watches:
        each.error = None
    try:
        yield
    finally:
        for each, error, left, seen in watches:
            each.error, each.left, each.seen = error, left, seen


class _End:
    """Of a connection on which this was shown."""

    def __init__(self, shown: Issued) -> None:
        self._shown = shown

    def getpeercert(self) -> dict[str, Any]:
        name, serial = self._shown.name, format(self._shown.serial, "X")
        return {"subject": ((("commonName", name),),), "serialNumber": serial}


def connect(server: Credentials, client: Credentials) -> Issued:
    """A handshake, which the client ends if it refuses what it is shown; returns what it shows.

    Raises:
        Refused: it does.
    """
    client.other_end(_End(server.own))
    shown = tls.shown_by(tls._shaken_hands(server.incoming, client.outgoing))
    assert shown == client.own
    return shown


class Finished(World):
    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            super().teardown()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_alone(fault: tuple[str, int]) -> None:
    for node in NODES:
        world = Finished()
        world.rotate(None)
        world.attempt(node, fault)
        world.teardown()


TestRenewal = Finished.TestCase
TestRenewal.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
