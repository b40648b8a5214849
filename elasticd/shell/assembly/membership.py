"""Who belongs to the cluster, at a running daemon: who was put out, and whose certificates are
old."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.core.words import effects as e
from elasticd.core.words.connections import NodeInfo, PutOut
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.expulsion import Expulsion
from elasticd.shell.assembly.renewing import Renewing, Surroundings
from elasticd.shell.assembly.rotating import KnownNodes, Rotating
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.clock import unix_seconds
from elasticd.shell.complaints import Complaints
from elasticd.shell.control.admission import Admission
from elasticd.shell.control.renewing import RenewalDesk
from elasticd.shell.control.server import Handlers
from elasticd.shell.network import mdns
from elasticd.shell.network.bonjour import Announcement, announced
from elasticd.shell.network.bonjourwatch import BonjourWatch
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.mdns import Mdns
from elasticd.shell.storage import papers
from elasticd.shell.storage.whereabouts import Whereabouts
from elasticd.shell.tasks import Tasks
from elasticd.trust import renewal
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class Others:
    """What a membership has to do with; all of it is asked for when it is needed.

    Attributes:
        talk: says things to the others.
        listed: the nodes that there are, dead ones too.
        ever: also those that are gone for good.
        present: those that are not known to be dead, this one included.
        failed: is told when the disk takes nothing.
        out: is told whom a person has put out.
    """

    talk: Callable[[], Talk]
    listed: Callable[[], Collection[NodeId]]
    ever: Callable[[], Collection[NodeId]]
    present: Callable[[], Collection[NodeId]]
    failed: Callable[[OSError], None]
    out: Callable[[NodeId], None]


class TrustedMembers:
    """Of one daemon.

    Attributes:
        admission: lets others become members.
        desk: gives members new certificates.
        expulsion: puts members out.
        renewing: renews this node's certificate.
        rotating: has all renew theirs.
        whereabouts: where the others are.
    """

    def __init__(
        self, home: Path, settings: NodeConfig, credentials: Credentials, others: Others
    ) -> None:
        self._home, self._credentials, self._others = home, credentials, others
        self._me = NodeId(settings.node_id)
        self._complain = Complaints("renewing")
        self.whereabouts = Whereabouts(home)
        self._discovers = settings.discovery
        self._tasks = Tasks("looking for others by Bonjour")
        self.admission = Admission(
            home, credentials, settings.cluster, settings.partition,
            lambda: others.talk().peers.reached(),
            lambda: others.talk().peers.addresses(), others.ever,
        )  # fmt: skip
        self.desk = RenewalDesk(
            home, credentials, lambda node: others.talk().peers.address_of(node)
        )
        self.expulsion = Expulsion(
            home, credentials,
            lambda: others.talk().peers.cut_off(),
            lambda word: others.talk().tell_all(word),
            others.failed,
            self._put_out,
            others.ever,
            lambda node: others.talk().peers.serial_of(node),
        )  # fmt: skip
        around = Surroundings(
            lambda: others.talk().peers, self._issuers,
            lambda word: others.talk().tell_all(word), others.failed, self._shown,
        )  # fmt: skip
        self.renewing = Renewing(home, credentials, settings.addresses[0], around)
        known = KnownNodes(
            others.listed, others.ever, others.present, lambda: others.talk().infos,
            lambda node: others.talk().peers.serial_of(node),
        )  # fmt: skip
        self.rotating = Rotating(
            home, credentials, self.renewing, known, others.failed,
            lambda kind, text: self._emit(kind, text, self._me),
        )  # fmt: skip

    def start(self) -> None:
        """Go on with what was begun before this daemon, and look for the others everywhere."""
        elsewhere = (*self._credentials.member.more, *self.whereabouts.addresses())
        self._others.talk().peers.may_be_at(elsewhere)
        self.renewing.start()
        self.rotating.start()
        if self._discovers and mdns.is_installed():
            self._tasks.keep("looking for others by Bonjour", self._bonjour().rounds)

    def _bonjour(self) -> BonjourWatch:
        member, peers = self._credentials.member, self._others.talk().peers
        makes = papers.makes_members(self._home)

        def own() -> Announcement | None:
            name = member.name_of(self._me)
            return announced(name, member.cluster_id, makes, peers.me.addresses)

        def missing() -> list[str]:
            known = {*self._others.listed(), *self.whereabouts.known}
            away = sorted(known.difference(peers.connected(), [self._me]))
            return [member.name_of(node) for node in away]

        return BonjourWatch(own, missing, peers.hint_at, Mdns.on)

    async def close(self) -> None:
        await self._tasks.cancel()
        for each in (self.rotating, self.renewing, self.expulsion):
            await each.close()

    def handlers(self) -> Handlers:
        return {**self.expulsion.handlers(), **self.rotating.handlers()}

    @property
    def known(self) -> PutOut | None:
        """What others are to hear; None: nobody was put out, and no certificate is old."""
        put_out, old = self.expulsion.known, self._credentials.renewal
        if put_out is None and not old.wanted:
            return None
        return PutOut({} if put_out is None else put_out.serials, *old.words())

    def heard(self, node: NodeId, word: PutOut) -> None:
        """``node`` says it.

        Raises:
            ProtocolError: it makes no sense.
        """
        old = renewal.read(word.renew, word.refuse)
        self.expulsion.heard(word)
        shown = self._others.talk().peers.serial_of(node)
        if old.is_believable(max(shown, self._credentials.own.serial), unix_seconds()):
            self._heard_old(old)
        else:
            self._complain(
                node,
                "it says that certificates are old of more than a year from now: that does not"
                " count until it shows such a one itself. Its clock is wrong, or this one's",
            )

    def must_renew(self, wanted: Renewal) -> None:
        """A node takes our certificate no more."""
        self._heard_old(wanted)

    def met(self, node: NodeId) -> None:
        """A node has connected, or says what it is."""
        self.whereabouts.note(node, self._others.talk().peers.addresses_of(node))
        self.renewing.met()
        self.rotating.go_on()

    def marked(self, info: NodeInfo) -> NodeInfo:
        """What this node is, with what its certificate is."""
        serial = renewal.word_of(self._credentials.own.serial)
        makes = papers.makes_members(self._home)
        return replace(info, serial=serial, makes_members=makes)

    def _heard_old(self, old: Renewal) -> None:
        self.renewing.heard(old)
        self.rotating.go_on()

    def _shown(self) -> None:
        """This node shows another certificate."""
        talk = self._others.talk()
        talk.tell_what_it_is()
        self._emit("certificate_renewed", f"{self._me} has a new certificate", self._me)
        talk.peers.dial_now()
        self.rotating.go_on()

    def _issuers(self) -> list[str]:
        infos = self._others.talk().infos
        return [info.address for info in infos.values() if info.makes_members]

    def _put_out(self, node: NodeId) -> None:
        self._emit("node_put_out", f"{node} was put out of the cluster", node)
        self._others.out(node)

    def _emit(self, kind: str, text: str, node: NodeId) -> None:
        self._others.talk().emit(e.Emit(None, kind, text, None, {"culprit": node}))
