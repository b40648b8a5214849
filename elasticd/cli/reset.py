"""``elasticctl reset``: have a node begin anew. It looks at the disk and needs no daemon."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.checkpoints.apart import SIGN, explained, is_another
from elasticd.cli.asking import Yes
from elasticd.cli.keeper import keeper_of
from elasticd.cli.options import Home, Json, common
from elasticd.cli.screen import print_json, say
from elasticd.core.recall import Record, without_promises
from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.counting import counted
from elasticd.errors import ElasticdError, OperationError, UsageError
from elasticd.pasting import of_home, quoted
from elasticd.preflight.seen import LINKS_NAME, REPORT_NAME, SPEED_NAME, SPEEDS_NAME
from elasticd.removing import remove_tree
from elasticd.settings import config
from elasticd.settings.localhomes import homes_at
from elasticd.settings.ownhome import refuse_open
from elasticd.settings.places import DAEMON_FILE, SOCKET_NAME
from elasticd.shell.children.server import ROSTER_NAME
from elasticd.shell.children.server import SOCKET_NAME as CHILDREN_SOCKET
from elasticd.shell.control.server import lock_home
from elasticd.shell.control.webdoor import LOG_FILE as PAGE_LOG
from elasticd.shell.control.webtoken import METRICS_FILE, PLACE_FILE, TOKEN_FILE
from elasticd.shell.storage import issuing, whereabouts
from elasticd.shell.storage.diskend import FILE_NAME as END_FILE
from elasticd.shell.storage.durable import no_room
from elasticd.shell.storage.journal import BEGUN_SUFFIX, begin_anew, put_aside, salvage
from elasticd.shell.storage.records import JOURNAL_NAME, UNREADABLE, plain, read
from elasticd.supervision.roster import ChildRoster
from elasticd.types import JobId

ARCHIVES = "archives"
STATE = ("events", "reached", ARCHIVES, "work", "clones", "cache")
RUNTIME = (
    DAEMON_FILE, END_FILE, ROSTER_NAME, SOCKET_NAME, CHILDREN_SOCKET, TOKEN_FILE, METRICS_FILE,
    PLACE_FILE, PAGE_LOG, REPORT_NAME, LINKS_NAME, SPEEDS_NAME, SPEED_NAME,
)  # fmt: skip


def reset(
    context: typer.Context,
    keep_jobs: Annotated[
        bool,
        typer.Option(
            "--keep-jobs",
            help="Keep what is readable of the job records, for a node that is the only one.",
        ),
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Remove all checkpoints here, too.")
    ] = False,
    yes: Yes = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Forget the cluster's state and remove runtime files, so that the node begins anew.

    The other nodes tell it all jobs again. Settings, checkpoints, the scripts' output and logs
    stay, and so do the archives of jobs that have not ended. The old journal stays beside the new
    one, in journal.lost, after a second reset in journal.lost-2. If no job is in the present one,
    --keep-jobs takes the jobs of the newest that was put aside. Of a local cluster's home all nodes
    are reset. It refuses while a daemon runs there.

    Where no other node is known, jobs that have not ended are gone then, unless --keep-jobs is
    said, now or in a second reset. It says how many there are.

    \b
    Examples:
      elasticctl reset --home /tmp/cluster/node-1
      elasticctl reset --keep-jobs --yes
    """
    options = common(context, home, json)
    homes = homes_at(options.home)
    for folder in (options.home, *homes):
        refuse_open(folder)
    if (keeper := keeper_of(options.home)) is not None:
        raise OperationError(
            f"{options.home}: a keeper starts its daemons again (process {keeper}); end it first:"
            f" {of_home('local down', options.home)}"
        )
    locks: list[int] = []
    spared = {*((ARCHIVES,) if keep_jobs else ()), *(() if checkpoints else ("checkpoints",))}
    folders = [name for name in (*STATE, "checkpoints") if name not in spared]
    try:
        for folder in homes:
            locks.append(_locked(folder))
            _refuse_unmounted(folder, folders)
        lone = not _others(homes)
        at_stake = set[JobId]() if keep_jobs else _unended(homes)
        if not yes:
            _ask(homes, at_stake if lone else set(), checkpoints=checkpoints)
        done = [_reset(folder, folders, keep_jobs=keep_jobs) for folder in homes]
    finally:
        for lock in locks:
            os.close(lock)
    if options.json:
        print_json({"nodes": done, "unended": sorted(at_stake), "lone": lone})
        return
    _say_done(options.home, done, keep_jobs=keep_jobs)
    say(f"Start the daemon again.{_what_then(options.home, at_stake, lone=lone)}")


def _say_done(home: Path, done: Sequence[dict[str, Any]], *, keep_jobs: bool) -> None:
    for each in done:
        kept = f", {counted(each['jobs'], 'job is', 'jobs are')} kept" if keep_jobs else ""
        if each["jobs_from"] not in (None, str(Path(each["home"]) / JOURNAL_NAME)):
            kept += f", as {each['jobs_from']} has them"
        aside = f"; the old journal is {each['journal']}" if each["journal"] else ""
        say(f"{each['home']}: reset{kept}{aside}")


def _what_then(home: Path, forgotten: set[JobId], *, lone: bool) -> str:
    """What is to be known before the daemon is started."""
    others = "" if lone else " The other nodes tell it the jobs."
    if not forgotten:
        return others
    back = quoted(of_home("reset --keep-jobs", home))
    if not lone:
        return f"{others} If none is left that has {_not_ended(forgotten)}, do this first: {back}"
    return (
        f" It knows no more of {_not_ended(forgotten)}, and no other node does."
        f" To have them back, do this first: {back}"
    )


def _not_ended(jobs: set[JobId]) -> str:
    return f"{counted(len(jobs), 'job')} that {'has' if len(jobs) == 1 else 'have'} not ended"


def _others(homes: Sequence[Path]) -> bool:
    """Whether other nodes are known there than these."""
    here, known = set[str](), set[str]()
    for home in homes:
        with contextlib.suppress(ElasticdError):
            settings = config.load(home)
            here |= {settings.node_id, settings.listen, *settings.advertise}
            known |= {*settings.peers}
        with contextlib.suppress(ElasticdError):
            known |= {*issuing.read(home)}
        known |= {*whereabouts.read(home, complain=False)}
        with contextlib.suppress(OSError):
            here |= {
                each.node
                for each in records_of(home / JOURNAL_NAME)
                if isinstance(each, NodeRecord) and each.forgotten
            }
    return bool(known - here)


def _locked(home: Path) -> int:
    try:
        return lock_home(home)
    except UsageError as error:
        raise OperationError(f"{error}; stop it first, nothing was changed") from None


def _refuse_unmounted(home: Path, folders: Sequence[str]) -> None:
    for path in (home / name for name in folders):
        if path.is_symlink() and not path.exists():
            raise OperationError(
                f"{path} leads to {os.readlink(path)}, which is not there: mount the disk that it"
                " is on, or remove the link; nothing was changed"
            )
        if path.is_dir() and is_another(path):
            raise OperationError(f"{path} {'. '.join(explained(path))}; nothing was changed")


def _ask(homes: Sequence[Path], at_stake: set[JobId], *, checkpoints: bool) -> None:
    if not sys.stdin.isatty():
        raise UsageError("reset asks before it forgets anything; say --yes (nothing was changed)")
    what = "the state of the cluster" + (" and ALL CHECKPOINTS" if checkpoints else "")
    for home in homes:
        say(str(home))
    if at_stake:
        say(f"No other node has {_not_ended(at_stake)}: without --keep-jobs they are forgotten.")
    if not typer.confirm(f"Forget {what} there?"):
        raise typer.Abort


def _reset(home: Path, folders: Sequence[str], *, keep_jobs: bool) -> dict[str, Any]:
    """The journal first: whatever is interrupted then is done by another reset. On a full disk that
    has room once the rest is gone."""
    if (home / ROSTER_NAME).exists():
        ChildRoster(home / ROSTER_NAME).end_leftovers()
    path = home / JOURNAL_NAME
    begun = path.exists() or path.with_name(path.name + BEGUN_SUFFIX).exists()
    source, records = _kept(path) if keep_jobs else (None, [])
    needed = _needed(path)
    kept = without_promises(records, "reset by the operator")
    removed = [JOURNAL_NAME] if begun else []

    def drop() -> None:
        removed.extend(name for name in (*folders, *RUNTIME) if _remove(home / name, needed))

    aside = _begun(path, [plain(kind, record) for kind, record in kept], drop)
    drop()
    return {
        "home": str(home),
        "removed": removed,
        "jobs": sum(kind == "job" for kind, _ in kept),
        "jobs_from": str(source) if source else None,
        "journal": str(aside) if aside else None,
    }


def _begun(path: Path, records: Sequence[Any], make_room: Callable[[], None]) -> Path | None:
    """As :func:`begin_anew`."""
    before = put_aside(path)
    try:
        return begin_anew(path, records)
    except OSError as error:
        if not no_room(error):
            raise
    make_room()
    return begin_anew(path, records) or next(
        (each for each in put_aside(path) if each not in before), None
    )


def _needed(journal: Path) -> set[str]:
    """The files of archives that jobs need which have not ended. Nobody else may have them, should
    the jobs be taken back; if not, the daemon removes them after a while, as all that no job has.
    """
    with contextlib.suppress(OSError):
        return {f"{record.archive}.tar" for record in _going_on(_kept(journal)[1])}
    return set()


def _kept(journal: Path) -> tuple[Path | None, list[tuple[str, Any]]]:
    """What is readable of the journal, or where no job is in it of the newest one with a job that
    was put aside, as after a reset by mistake; and which one that is."""
    for path in (journal, *reversed(put_aside(journal))):
        records = _readable(path)
        if any(kind == "job" for kind, _ in records):
            return path, records
    return None, _readable(journal)


def _readable(journal: Path) -> list[tuple[str, Any]]:
    found = []
    for item in salvage(journal.read_bytes()) if journal.is_file() else ():
        try:
            found.append(read(item))
        except UNREADABLE:
            continue
    return found


def _unended(homes: Sequence[Path]) -> set[JobId]:
    """The jobs that have not ended, as what is readable of the journals says."""
    jobs = set[JobId]()
    for home in homes:
        with contextlib.suppress(OSError):
            jobs |= {record.id for record in _going_on(_readable(home / JOURNAL_NAME))}
    return jobs


def records_of(journal: Path) -> list[Record]:
    """What is readable of a journal, and still counts. Raises OSError: it can't be read."""
    return _merged(_readable(journal))


def _going_on(records: Sequence[tuple[str, Any]]) -> list[JobRecord]:
    return [each for each in _merged(records) if isinstance(each, JobRecord) and not each.ended]


def _merged(records: Sequence[tuple[str, Any]]) -> list[Record]:
    return [record for _, record in without_promises(records, "")]


def _remove(path: Path, needed: Container[str]) -> bool:
    """Whether something went. A folder that is on another disk stays, without what is in it but its
    sign, and so does one of archives that are ``needed``; links in it are not followed."""
    inside = list(path.iterdir()) if path.is_dir() else []
    inside = [each for each in inside if each.name != SIGN]
    kept = [each for each in inside if path.name == ARCHIVES and each.name in needed]
    if kept or (path.is_dir() and (path.is_symlink() or path.is_mount())):
        gone = [each for each in inside if each not in kept]
        for each in gone:
            remove_tree(each)
        return bool(gone)
    there = os.path.lexists(path)
    remove_tree(path)
    return there
