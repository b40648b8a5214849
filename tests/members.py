"""Members of clusters that only tests know: certificates from authorities made on the spot."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust.authority import Authority, admit
from elasticd.trust.member import MemberPapers
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId


@functools.cache
def authority_of(cluster: str) -> Authority:
    """The same of a name at every call."""
    return Authority.make()


def member(node: str, cluster: str = "test") -> MemberPapers:
    """A node with a new key; nodes of one ``cluster`` are members of the same."""
    return admit(authority_of(cluster), NodeId(node), cluster.encode())


def credentials(node: str, cluster: str = "test", revoked: Revoked | None = None) -> Credentials:
    """What a daemon of that node has in its home."""
    return credentials_of(member(node, cluster), revoked)


def credentials_of(whose: MemberPapers, revoked: Revoked | None = None) -> Credentials:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        papers.write(home, whose)
        return Credentials(whose, *papers.shown(home), revoked or Revoked())
