"""What is wrong with a node's home, with the cause and the cure of each. Changes nothing.

``elasticctl doctor`` shows it; it needs no daemon, and disturbs none.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd import archive
from elasticd.checkpoints.store import LocalStore
from elasticd.counting import counted
from elasticd.errors import DamageError, ElasticdError, OperationError, StateError
from elasticd.pasting import of_home, pasted, quoted
from elasticd.settings import config
from elasticd.settings.config import split_address
from elasticd.settings.diskroom import takes_no_more
from elasticd.settings.localhomes import begun_anew, is_local
from elasticd.settings.ownhome import account_name
from elasticd.settings.places import FILE_NAME
from elasticd.shell.network import ownaddresses
from elasticd.shell.network.binding import bound, refuse_shared
from elasticd.shell.storage import diskend, papers
from elasticd.shell.storage.durable import unwritable
from elasticd.shell.storage.journal import CUT_SUFFIX, Inspection, inspect, put_aside, salvage
from elasticd.shell.storage.records import JOURNAL_NAME, ONLY_NODE, UNREADABLE, read
from elasticd.shell.storage.starting import belonging, hindrances
from elasticd.types import NodeId

_UNREADABLE = (
    "Look at the permissions, and at the disk: 'diskutil verifyVolume' on macOS, 'dmesg' on Linux"
)

LARGE_JOURNAL_BYTES = 64 * 1024 * 1024
"""Of so much it is said; there is no limit."""


@dataclass(frozen=True, slots=True)
class HomeFinding:
    """One thing that is wrong with a home, or worth knowing.

    Attributes:
        path: where it is.
        cause: what is wrong, or what has happened.
        cure: what to do.
        wrong: whether something has to be done.
    """

    path: Path
    cause: str
    cure: str
    wrong: bool = True


def examine(home: Path, *, running: bool, start: str, me: int | None = None) -> list[HomeFinding]:
    """What is found in ``home``. ``running``: its daemon is, so that nothing is written there.
    ``start``: the command that starts it. ``me``: who looks; None: the account of this process."""
    if (foreign := _foreign(home, os.geteuid() if me is None else me)) is not None:
        return [foreign]
    checks = [
        _start,
        _authority,
        _networks,
        _hooks,
        _journal,
        _kept,
        _archives,
        _checkpoints,
        _jobs,
    ]
    found = [] if running else [*_refused(home, start), *_address(home, start)]
    for check in checks:
        try:
            found += check(home)
        except OSError as error:
            path = Path(error.filename) if error.filename else home
            found.append(HomeFinding(path, f"can't be read: {error.strerror}", _UNREADABLE))
        except StateError as error:
            found.append(HomeFinding(home, f"can't be read: {error}", _UNREADABLE))
    return found


def _foreign(home: Path, me: int) -> HomeFinding | None:
    """Another account sees names at most; what it can't see is not wrong."""
    owner = home.stat().st_uid
    if me in (0, owner):
        return None
    account = account_name(owner)
    command = f"{pasted('sudo -u', account)} {of_home('doctor', home)}"
    cause = f"belongs to the account {account}, for which alone the files in it are"
    return HomeFinding(home, cause, f"Ask as that account: {quoted(command)}")


def _refused(home: Path, start: str) -> Iterator[HomeFinding]:
    """Whether the disk refuses, and whether a daemon ended of it."""
    error, ended = unwritable(home), diskend.read(home)
    if error is not None:
        again = f"then start the daemon: {quoted(start)}"
        cure = f"Make room on that disk, or mend the permissions; {again}"
        if takes_no_more(home):
            cure = f"Remove many small files from that disk; {again}"
        yield HomeFinding(home, f"can't be written: {error.strerror}", cure)
    if ended is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ended.time))
        if error is None:
            now, cure = "It can be written again", f"Start the daemon again: {quoted(start)}"
        else:
            now, cure = "It still can't be written", "Do what is said above"
        cause = f"the daemon doesn't run: it ended at {when}, as its disk refused: {ended.error}"
        yield HomeFinding(home, f"{cause}. {now}", cure)


def _address(home: Path, start: str) -> Iterator[HomeFinding]:
    """Whether its daemon can listen."""
    try:
        settings = config.load(home)
        for each in asyncio.run(bound(settings.listen)):
            each.close()
        refuse_shared(*split_address(settings.listen))
    except ElasticdError:
        return  # said elsewhere
    except OSError as error:
        cause = f"its daemon can't listen on {settings.listen}: {error.strerror}"
        other = f"{quoted(of_home('configure --listen HOST:PORT', home))}, then {quoted(start)}"
        cure = (
            "End the program that listens there, or give it another address of this machine's: "
            + (begun_anew(home) if is_local(home) else other)
        )
        yield HomeFinding(home / FILE_NAME, cause, cure)


def _networks(home: Path) -> Iterator[HomeFinding]:
    """Which ones its daemon listens on, if on all."""
    try:
        settings = config.load(home)
    except ElasticdError:
        return  # said elsewhere
    if not ownaddresses.listens_everywhere(settings):
        return
    at = ", ".join(ownaddresses.found(settings).addresses)
    yield HomeFinding(
        home / FILE_NAME,
        f"listen = {settings.listen!r}: the daemon listens on all networks of this machine, and"
        f" takes members of its cluster only. The others are told {at}, and rings may use each of"
        " these, unencrypted",
        "Nothing has to be done. To keep to one network:"
        f" {quoted(of_home('configure --listen HOST:PORT', home))}",
        wrong=False,
    )


def _hooks(home: Path) -> Iterator[HomeFinding]:
    """Commands of ``[notify]`` that can't be run. What they are is not shown."""
    try:
        notify = config.load(home).notify
    except ElasticdError:
        return  # said elsewhere
    for name in notify.told:
        hook = getattr(notify, name)
        if isinstance(hook, tuple) and not (
            os.path.isfile(hook[0]) and os.access(hook[0], os.X_OK)
        ):
            yield HomeFinding(
                home / FILE_NAME,
                f"[notify] {name}: its program isn't there, or can't be run",
                "Name one that is there and is executable, and try it:"
                f" {quoted(of_home(f'notify --test --event {name}', home))}",
            )


def _start(home: Path) -> Iterator[HomeFinding]:
    for found in hindrances(home, me=home.stat().st_uid):
        yield HomeFinding(found.path, found.cause, found.cure)


def _authority(home: Path) -> Iterator[HomeFinding]:
    """What is needed to let others in; the daemon runs without."""
    try:
        if not papers.makes_members(home) or belonging(home, None) is None:
            return
    except ElasticdError:
        return  # said already
    # Loaded only here: other commands do without its cryptography.
    from elasticd.trust import authority

    folder = papers.folder_of(home)
    key = folder / papers.AUTHORITY_KEY
    cure = "Put the copy there that you have kept. Without it nobody can join; the cluster goes on"
    try:
        if not authority.fits((folder / papers.AUTHORITY).read_bytes(), key.read_bytes()):
            yield HomeFinding(key, "is not the key of the cluster's authority", cure)
    except DamageError as error:
        yield HomeFinding(key, f"damaged: {error}", cure)
    try:
        papers.read_tokens(home)
    except OperationError as error:
        cause, _, cure = str(error).partition("; ")
        yield HomeFinding(folder / papers.TOKENS, cause, cure.capitalize())


def _journal(home: Path) -> Iterator[HomeFinding]:
    path = home / JOURNAL_NAME
    found = inspect(path)
    reset = quoted(of_home("reset", home))
    if found.harm:
        yield HomeFinding(
            path,
            f"{found.harm}: the disk lost acknowledged data. {_left(found)}",
            f"Stop the daemon if it runs, then {reset} and start it. The other nodes tell it all"
            f" jobs again. {ONLY_NODE}",
        )
        return
    for item in found.records:
        try:
            read(item)
        except UNREADABLE as error:
            yield HomeFinding(
                path,
                f"holds a record that this version can't read: {error}",
                f"Start the version of elasticd that wrote it. If none did, {reset}. {ONLY_NODE}",
            )
            return

    if found.sound_bytes >= LARGE_JOURNAL_BYTES:
        yield _large(home, found)


def _large(home: Path, found: Inspection) -> HomeFinding:
    jobs = counted(len(_jobs_in(found.records)), "job")
    forget = quoted(of_home("forget JOB", home))
    return HomeFinding(
        home / JOURNAL_NAME,
        f"the records of {jobs} have {found.sound_bytes >> 20} MiB. Every node has them, reads them"
        " when it starts, and keeps them in memory",
        f"Forget jobs of which nobody needs the result: {forget}. With 'results = false' in [keep]"
        f" of {FILE_NAME} that is done by itself of jobs that are past what is kept",
        wrong=False,
    )


def _jobs_in(items: Iterable[Any]) -> set[str]:
    """The jobs of which there is a readable record."""
    jobs = set()
    for item in items:
        try:
            kind, record = read(item)
        except UNREADABLE:
            continue
        if kind == "job":
            jobs.add(str(getattr(record, "id", "")))
    return jobs


def _left(found: Inspection) -> str:
    records = salvage(found.data)
    jobs = _jobs_in(records)
    return f"Readable: {counted(len(records), 'record')}, with {counted(len(jobs), 'job')}"


def _kept(home: Path) -> Iterator[HomeFinding]:
    """What was put aside of the journal, and of what makes the node a member."""
    path = home / f"{JOURNAL_NAME}{CUT_SUFFIX}"
    if path.exists():
        yield HomeFinding(
            path,
            f"the {path.stat().st_size} bytes of the last write that a crash interrupted; nobody"
            " was told that it was made",
            "Nothing has to be done",
            wrong=False,
        )
    for path in put_aside(home / JOURNAL_NAME):
        keep = quoted(of_home("reset --keep-jobs", home))
        cure = f"Remove it when nobody needs it any more; until then {keep} finds its jobs"
        yield HomeFinding(path, "the journal as it was before a reset", cure, wrong=False)
    for path in sorted(home.glob(f"{papers.ASIDE}*")):
        cause = "the damaged certificate and key, as they were when the node joined again"
        yield HomeFinding(path, cause, "Remove it when nobody needs it any more", wrong=False)


def _archives(home: Path) -> Iterator[HomeFinding]:
    folder = home / "archives"
    for path in sorted(folder.glob("*.tar")) if folder.is_dir() else ():
        if archive.digest(path.read_bytes()) != path.stem:
            yield HomeFinding(
                path,
                "a job's folder, damaged: its bytes are not those that were sent",
                "Remove the file. A running daemon fetches it from another node when it needs it",
            )


def _checkpoints(home: Path) -> Iterator[HomeFinding]:
    """By names and sizes; nothing is read as a whole."""
    cure = (
        "A running daemon fetches it from another node that has it: 'elasticctl checkpoints verify"
    )
    root = home / "checkpoints"
    if not root.is_dir():
        return
    try:
        node = NodeId(config.load(home).node_id)
    except ElasticdError:
        return  # said already
    store = LocalStore(root, node)
    for job in store.jobs():
        for problem in store.problems(job):
            if problem.shard is None:
                cause, shows = "a checkpoint whose manifest can't be read", "shows it"
            else:
                cause, shows = f"a shard that {problem.reason}", "shows whether one has"
            yield HomeFinding(problem.path, cause, f"{cure} {job}' {shows}")


def _jobs(home: Path) -> Iterator[HomeFinding]:
    folder = home / "jobs"
    for path in sorted(folder.glob("*.refused")) if folder.is_dir() else ():
        reason = path.read_text(errors="replace").strip()
        cure = "Mend the job, or remove it"
        yield HomeFinding(path, f"a job was refused: {reason}", cure, wrong=False)
