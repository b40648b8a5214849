"""What makes a node a member of its cluster: HOME/cluster/, for this account only.

authority.pem   the certificate of the cluster's authority, the same at every member
node.pem        this node's certificate, made by that authority
node.key        its private key
member.json     the node's id, and the secret that all members share
revoked.json    members that were put out
renewal.json    which certificates are old
addresses.json  where the others were last (whereabouts.py)
renewing.key    while the node renews its certificate: its next key
renewing.pem    ... and the certificate for that, until both have their places
authority.key   only where the cluster was made: with it members are made
tokens.json     ... and the join tokens that are open
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elasticd.errors import DamageError, OperationError, ProtocolError
from elasticd.pasting import of_home, quoted
from elasticd.settings.localhomes import begun_anew, is_local
from elasticd.settings.places import MEMBER, OLD_PAPERS, PAPERS, papers_of
from elasticd.shell.network.credentials import prove
from elasticd.shell.storage.durable import sync_folder, write_durable
from elasticd.trust import renewal, revoked
from elasticd.trust.member import MemberPapers
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.trust.tokens import OpenToken
from elasticd.types import NodeId

_NEW = ".cluster.new"
"""The folder's name before it is whole."""
ASIDE = "cluster.damaged-"
"""Begins the name of one that was damaged, and was put aside when the node joined again."""
AUTHORITY, NODE, KEY = "authority.pem", "node.pem", "node.key"
REVOKED = "revoked.json"
AUTHORITY_KEY, TOKENS = "authority.key", "tokens.json"
RENEWAL, NEXT_KEY, NEXT_NODE = "renewal.json", "renewing.key", "renewing.pem"
_READS = 4
"""More than a renewal has steps: who reads meanwhile may find a certificate and another's key."""

folder_of = papers_of


def is_member(home: Path) -> bool:
    """Whether the home has been given what makes a member, sound or not."""
    return folder_of(home).is_dir()


def read(home: Path) -> MemberPapers:
    """What makes the node of this home a member.

    Raises:
        DamageError: a file is missing or damaged; names it and the cure.
        OSError: the disk doesn't give one that is there, perhaps only now.
    """
    for _ in range(_READS - 1):
        with suppress(DamageError):
            return _read(home)
    return _read(home)


def _read(home: Path) -> MemberPapers:
    folder = folder_of(home)
    if folder.exists() and not folder.is_dir():
        raise _damaged(folder, "it is no folder")
    certificate, key_file = shown(home)
    try:
        said = _read_json(folder / MEMBER)
        authority = (folder / AUTHORITY).read_bytes()
        own, key = certificate.read_bytes(), key_file.read_bytes()
        member = _member(said, authority, own, key)
        prove(member, certificate, key_file)
    except FileNotFoundError as error:
        raise _damaged(folder, f"{error.filename}: {error.strerror}") from None
    except (DamageError, LookupError, TypeError, ValueError) as error:
        raise _damaged(folder, str(error)) from None
    return member


def _member(said: Any, authority: bytes, certificate: bytes, key: bytes) -> MemberPapers:
    """Raises LookupError, TypeError, ValueError: what member.json says is none."""
    secret, peers = bytes.fromhex(said["secret"]), tuple(map(str, said["peers"]))
    more = tuple(map(str, said.get("more", ())))
    return MemberPapers(NodeId(str(said["node"])), secret, authority, certificate, key, peers, more)


def read_but_certificate(home: Path, authority: bytes) -> MemberPapers:
    """What the node of this home is, to be given a new key and certificate.

    Raises:
        DamageError: that is damaged, too; names the file and the cure.
        OSError: the disk doesn't give it.
    """
    path = folder_of(home) / MEMBER
    try:
        return _member(_read_json(path), authority, b"", b"")
    except (FileNotFoundError, LookupError, TypeError, ValueError):
        raise DamageError(
            f"{path}: damaged; copy another node's there, and write this node's id into it"
        ) from None


def read_keys(home: Path) -> tuple[bytes, ...]:
    """The node's own keys that the disk still gives, sound or not, the one that it shows first."""
    folder = folder_of(home)
    found = []
    for path in dict.fromkeys((shown(home)[1], folder / KEY, folder / NEXT_KEY)):
        with suppress(OSError):
            found.append(path.read_bytes())
    return tuple(found)


def put_aside(home: Path, when: str) -> Path:
    """Give what makes the node a member another name, with the date ``when``; nothing is removed.
    Where it is then.

    Raises:
        OSError: the disk is full or broken; it has its old name.
    """
    place = home / f"{ASIDE}{when}"
    folder_of(home).rename(place)
    sync_folder(home)
    return place


def _damaged(folder: Path, reason: str) -> DamageError:
    return DamageError(f"{folder}: damaged ({reason}); {way_back(folder.parent)}")


def way_back(home: Path) -> str:
    """What cures papers that are damaged."""
    if is_local(home):
        return f"make them anew: {begun_anew(home)}"
    if makes_members(home):
        return f"make its certificate anew: {quoted(of_home('cluster init', home))}"
    join = quoted(of_home("cluster join TOKEN", home))
    return f"join again: {join}, with what 'elasticctl cluster token' prints on the first node"


def shown(home: Path) -> tuple[Path, Path]:
    """The files of the node's certificate and of its key."""
    folder = folder_of(home)
    if not (folder / NEXT_NODE).exists():
        return folder / NODE, folder / KEY
    # It has renewed its certificate, and was cut short while both took their places.
    key = folder / NEXT_KEY
    return folder / NEXT_NODE, key if key.exists() else folder / KEY


def renew(home: Path, certificate: bytes) -> None:
    """Have the node show ``certificate``, whose key is :data:`NEXT_KEY`. The old key is gone then.

    Raises:
        OSError: the disk is full or broken; it shows the old or the new one, and
            :func:`settle` says which.
    """
    write_durable(folder_of(home) / NEXT_NODE, certificate)
    settle(home)


def settle(home: Path) -> None:
    """Bring a renewal to its end that was cut short. Only the node's daemon does.

    Raises:
        OSError: the disk is broken.
    """
    folder = folder_of(home)
    if not (folder / NEXT_NODE).exists():
        return
    # The certificate comes last, and says until then that the key is the new one.
    for new, name in ((NEXT_KEY, KEY), (NEXT_NODE, NODE)):
        if (folder / new).exists():
            (folder / new).rename(folder / name)
            sync_folder(folder)


def write(home: Path, member: MemberPapers, authority_key: bytes | None = None) -> None:
    """Make the node of a home a member; what it was of another cluster is replaced whole.

    Args:
        authority_key: where it is to make members.

    Raises:
        OSError: the disk is full or broken; nothing has changed.
    """
    said = {
        "node": member.node,
        "secret": member.secret.hex(),
        "peers": list(member.peers),
        "more": list(member.more),
    }
    files = {
        AUTHORITY: member.authority,
        NODE: member.certificate,
        KEY: member.key,
        MEMBER: _json(said),
    }
    if authority_key is not None:
        files[AUTHORITY_KEY] = authority_key
    with _replacing(home) as beside:
        for name, data in files.items():
            write_durable(beside / name, data)
        sync_folder(beside)


@contextmanager
def _replacing(home: Path) -> Iterator[Path]:
    """A folder to be filled, which then takes the place of the one that there is. At no moment
    :func:`folder_of` finds neither."""
    folder, beside, old = home / PAPERS, home / _NEW, home / OLD_PAPERS
    if folder_of(home) == old:
        old.rename(folder)
    for left in (beside, old):
        if left.exists():
            shutil.rmtree(left)
    beside.mkdir(mode=0o700)
    try:
        yield beside
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
        sync_folder(home)
    except BaseException:
        if folder_of(home) == old:
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if folder.is_dir():
            shutil.rmtree(old, ignore_errors=True)


def forget(home: Path) -> None:
    """Have the home be no member's.

    Raises:
        OSError: a file can't be removed.
    """
    for name in (OLD_PAPERS, _NEW, PAPERS):
        if (home / name).exists():
            shutil.rmtree(home / name)


def makes_members(home: Path) -> bool:
    """Whether the authority's key is here."""
    return (folder_of(home) / AUTHORITY_KEY).exists()


def read_revoked(home: Path) -> Revoked:
    """Who was put out, as far as this node knows.

    Raises:
        DamageError: the file can't be read; who was put out must not come back for that.
    """
    path = folder_of(home) / REVOKED
    try:
        return revoked.read(_read_json(path))
    except FileNotFoundError:
        return Revoked()
    except (OSError, ValueError, TypeError, AttributeError, ProtocolError):
        raise DamageError(
            f"{path}: damaged; copy it from another node's home, or remove it: the others tell"
        ) from None


def write_revoked(home: Path, known: Revoked) -> None:
    """Raises OSError: the disk is full or broken; the old list is still there."""
    write_durable(folder_of(home) / REVOKED, _json(known.words()))


def read_renewal(home: Path) -> Renewal:
    """Which certificates are old, as far as this node knows.

    Raises:
        DamageError: the file can't be read; old certificates must not be taken again for that.
    """
    path = folder_of(home) / RENEWAL
    try:
        said = _read_json(path)
        return renewal.read(said["renew"], said["refuse"])
    except FileNotFoundError:
        return Renewal()
    except (OSError, LookupError, ValueError, TypeError, ProtocolError):
        raise DamageError(
            f"{path}: damaged; copy it from another node's home, or remove it: the others tell"
        ) from None


def write_renewal(home: Path, known: Renewal) -> None:
    """Raises OSError: the disk is full or broken; what was known is still there."""
    wanted, refused = known.words()
    write_durable(folder_of(home) / RENEWAL, _json({"renew": wanted, "refuse": refused}))


def read_tokens(home: Path) -> tuple[OpenToken, ...]:
    """The tokens with which nodes may join here.

    Raises:
        OperationError: the file is damaged.
    """
    path = folder_of(home) / TOKENS
    try:
        return tuple(_token(each) for each in _read_json(path))
    except FileNotFoundError:
        return ()
    except (OSError, LookupError, TypeError, ValueError):
        raise OperationError(f"{path}: damaged; remove it and make new join tokens") from None


def write_tokens(home: Path, tokens: tuple[OpenToken, ...]) -> None:
    """Raises OSError: the disk is full or broken; the old ones are still there."""
    write_durable(folder_of(home) / TOKENS, _json([asdict(each) for each in tokens]))


def _token(said: Mapping[str, Any]) -> OpenToken:
    keys = tuple(str(key) for key in said["keys"])
    return OpenToken(str(said["digest"]), float(said["until_unix"]), int(said["uses"]), keys)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _json(said: object) -> bytes:
    return json.dumps(said, indent=1).encode() + b"\n"


def is_private(home: Path) -> bool:
    """Whether only this account can read the keys."""
    return all(
        not os.stat(path).st_mode & 0o077 for path in (folder_of(home), *folder_of(home).iterdir())
    )
