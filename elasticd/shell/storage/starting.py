"""What keeps a node's daemon from starting: it ends of that, and ``elasticctl doctor`` tells it
beforehand. Both ask here. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticd.errors import ElasticdError, OperationError, UsageError
from elasticd.launchd.otherdisk import require_mounted
from elasticd.pasting import of_home, quoted
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.localhomes import begun_anew, is_local
from elasticd.settings.ownhome import refuse_open, refuse_ownerless
from elasticd.settings.ownname import default_node_id
from elasticd.settings.places import FILE_NAME
from elasticd.shell.storage import issuing, papers, settingsfile
from elasticd.shell.storage.homefolders import misplaced
from elasticd.trust.issuing import Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Where, why, what to do, and the error of which the daemon ends."""

    path: Path
    cause: str
    cure: str
    error: ElasticdError


@dataclass(frozen=True, slots=True)
class Belonging:
    """What makes the node a member, and what it knows of the others."""

    member: MemberPapers
    revoked: Revoked
    renewal: Renewal
    register: Register


def hindrances(home: Path, file: Path | None = None, me: int | None = None) -> Iterator[Hindrance]:
    """``file``: its elasticd.toml, if that is not in the home. ``me``: whose the home is to be;
    None: the account of this process.

    Raises:
        OSError: the disk doesn't give what is there.
    """
    try:
        require_mounted(home)
    except OperationError as error:
        yield Hindrance(home, str(error), "Do what is said there", error)
    try:
        refuse_ownerless(home, me)
        refuse_open(home, me)
    except UsageError as error:
        yield Hindrance(home, str(error), "Do what is named there", error)
    for path, cause, cure in misplaced(home):
        yield Hindrance(path, cause, cure, OperationError(f"{path} {cause}. {cure}"))
    path = file or home / FILE_NAME
    try:
        settings = config.load(home, file)
    except ElasticdError as error:
        yield Hindrance(path, str(error), "Mend what is named there", error)
        settings = None
    try:
        own = belonging(home, settings)
        if own is not None and settings is not None:
            _refuse_emptied(home, path, own)
    except ElasticdError as error:
        cause, _, cure = str(error).partition("; ")
        place = path if isinstance(error, UsageError) else papers.folder_of(home)
        yield Hindrance(place, cause, cure[:1].upper() + cure[1:], error)


def refuse_hindered(home: Path, file: Path | None = None) -> None:
    """As :func:`hindrances`.

    Raises:
        ElasticdError: what a daemon of that home would end of, the first of it.
        OSError: the disk doesn't give what is there.
    """
    for hindrance in hindrances(home, file):
        raise hindrance.error


def belonging(home: Path, settings: NodeConfig | None) -> Belonging | None:
    """What the daemon of a home shows others. None: it has nothing yet, and makes a cluster of its
    own, which others can join.

    Args:
        settings: what its elasticd.toml says; None: that can't be read, and isn't compared.

    Raises:
        UsageError: it has peers and no certificate, or the certificate of another node.
        DamageError: a file of it is damaged.
        OperationError: the list of those that joined here is.
        OSError: the disk doesn't give one that is there.
    """
    if not papers.folder_of(home).exists():
        if settings is not None and settings.peers:
            raise UsageError(
                f"{home / FILE_NAME}: peers are given, and this node has no certificate;"
                f" {_first_papers(home)}"
            )
        return None
    member = papers.read(home)
    if settings is not None and member.node != settings.node_id:
        raise UsageError(
            f"{home / FILE_NAME}: node_id is {settings.node_id!r}, and the node's"
            f" certificate is {member.node!r}'s; {_named_again(home, member)}"
        )
    revoked, renewal = papers.read_revoked(home), papers.read_renewal(home)
    return Belonging(member, revoked, renewal, issuing.read(home))


def _refuse_emptied(home: Path, path: Path, own: Belonging) -> None:
    """A node that others know has its name there, or at least where it listens. One that was
    started alone, and has met nobody, may have neither.

    Raises:
        UsageError: it has none of both, and its name isn't what it would be called by itself.
    """
    keys = settingsfile.keys_in(path)
    others = own.member.peers or own.register
    if others and keys.isdisjoint(("node_id", "listen")) and own.member.node != default_node_id():
        raise UsageError(
            f"{path}: says neither node_id nor listen, as if it was emptied, and other nodes know"
            f" this one as {own.member.node!r}; {_named_again(home, own.member)}"
        )


def _first_papers(home: Path) -> str:
    if is_local(home):
        return f"make it anew: {begun_anew(home)}"
    join = quoted(of_home("cluster join TOKEN", home))
    return (
        f"say {join} with what 'elasticctl cluster token' prints on the node that lets others in."
        f" If there is no cluster yet, say {quoted(of_home('cluster init', home))} on one node"
    )


def _named_again(home: Path, member: MemberPapers) -> str:
    if is_local(home):
        return f"give it its settings again: {begun_anew(home)}"
    command = f"configure --node-id {member.node}"
    if "listen" not in settingsfile.keys_in(home / FILE_NAME):
        command += " --listen HOST:PORT"
    return f"give it its name again: {quoted(of_home(command, home))}"
