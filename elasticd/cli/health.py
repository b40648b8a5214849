"""``elasticctl doctor``: what is wrong with a home. It looks at the disk and needs no daemon."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from json import loads as json_of
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from elasticd.build import build
from elasticd.cli.bundle import default_bundle, refuse_taken, write_bundle
from elasticd.cli.byhand import by_hand
from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.mac.choosing import ask_for_root, chosen, say_result, say_table
from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.running import TrialResult, run_probe
from elasticd.cli.machine import HERE, Machine
from elasticd.cli.options import Home, Json, common
from elasticd.cli.output import failure_of
from elasticd.cli.screen import print_json, say
from elasticd.client.client import Client
from elasticd.client.connection import NobodyListens
from elasticd.client.processes import find_daemon
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError, NoDaemonError
from elasticd.pasting import of_home, quoted
from elasticd.preflight.nodes import LEAST_FREE_FILES, CheckResult
from elasticd.settings.diskroom import room_of
from elasticd.settings.localhomes import begun_anew, cluster_of, homes_at, is_local
from elasticd.settings.places import DAEMON_FILE, SOCKET_NAME
from elasticd.shell.storage import diskend
from elasticd.shell.storage.health import HomeFinding, examine
from elasticd.supervision.birth import UNSEEN
from elasticd.supervision.naming import is_copied

_AT_ONCE = 64
"""So many daemons are asked at a time: as many as a local cluster may have."""

OnMac = Annotated[
    bool, typer.Option("--mac", help="Try out, too, what only this machine can prove; minutes.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PROBE", help="With --mac: this probe alone. Repeatable."),
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        metavar="FILE",
        help="Pack what is found, versions and the daemon's logs into this .tar.gz.",
    ),
]


def doctor(
    context: typer.Context,
    mac: OnMac = False,
    only: Only = None,
    bundle: Bundle = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say what is wrong with this node: its home, and this machine.

    Of the home it looks at journal, settings, disk, stored files, and what was left behind; of the
    machine at clock, memory, MLX, and on a Mac GPU, power, sleep, Low Power Mode, heat and
    firewall. It checks all that the daemon checks when it starts: settings, certificate, address.
    If that doesn't run since the disk refused, it says so, with when and where. So it does of one
    that runs and doesn't answer, of one that ended without being stopped, and whether it listens on
    all networks of this machine. A daemon that runs is asked whether macOS lets it reach its
    neighbours. It needs no daemon and changes nothing. Of a local cluster's home all nodes are
    looked at. Each finding says where, the cause and the cure.

    --mac is for the first day with a Mac: probes of its system, processes, disk and GPU, each in a
    process of its own with a deadline, and the demo at the end. One installs a service for a while,
    so sudo asks for your password, once. It ends in a table and a bundle.
    A bundle has the findings, versions, the ends of the daemon's logs and of what probes printed;
    no secrets of the home, nothing that scripts have printed, and no data. On Linux each probe runs
    its Linux side.

    Exit code: 0 if nothing is wrong, 1 if something is.

    \b
    Examples:
      elasticctl doctor
      elasticctl doctor --home /tmp/cluster/node-1 --json
      elasticctl doctor --bundle for-support.tar.gz
      elasticctl doctor --mac
      elasticctl doctor --mac --only flush --only grain
    """
    options = common(context, home, json)
    probes = chosen(only or [], mac=mac)
    if mac and bundle is None:
        bundle = default_bundle()
    if bundle is not None:
        refuse_taken(bundle)
    homes = [] if mac and not options.home.is_dir() else homes_at(options.home)
    found = _looked_at(homes)
    if not options.json:
        _say_findings(found)
    machine = _machine(options.home, homes, [each.name for each in probes])
    if not options.json:
        _say_machine(machine)
    results = _tried(probes, homes[0] if homes else None, quiet=options.json)
    told = _all_told(found, machine, results)
    if bundle is not None:
        printed = {each.probe.name: each.printed for each in results}
        write_bundle(bundle, homes, told, printed)
        told["bundle"] = str(bundle)
    if options.json:
        print_json(told)
    elif bundle is not None:
        say(f"{bundle}: look into it, and send it with your question")
    if told["wrong"]:
        raise typer.Exit(1)


def _machine(home: Path, homes: Sequence[Path], probes: Sequence[str]) -> list[CheckResult]:
    """What is found of this machine. Where no daemon runs in these homes, none can remove files."""
    found = Machine().checked(home, probes)
    if not homes or any(map(_runs, homes)) or _has_few_files_left(homes[0]):
        return found
    return [
        by_hand(each, homes, _start(homes[0]))
        if each.check == "disk" and each.verdict != "pass"
        else each
        for each in found
    ]


def _has_few_files_left(home: Path) -> bool:
    """Then no large folder is to go, but many files."""
    with contextlib.suppress(OSError):
        left = room_of(home).free_files
        return left is not None and left < LEAST_FREE_FILES
    return False


def _tried(probes: Sequence[MacProbe], disk: Path | None, *, quiet: bool) -> list[TrialResult]:
    results: list[TrialResult] = []
    if not quiet:
        ask_for_root(probes)
    for probe in probes:
        with Interrupts().in_force():
            results.append(run_probe(probe, disk))
        if not quiet:
            say_result(results[-1])
    if results and not quiet:
        say_table(results)
    return results


def _all_told(
    found: Sequence[tuple[Path, Sequence[HomeFinding]]],
    machine: Sequence[CheckResult],
    results: Sequence[TrialResult],
) -> dict[str, Any]:
    """What ``--json`` prints."""
    wrong = sum(each.wrong for _, findings in found for each in findings)
    wrong += sum(each.verdict == "fail" for each in machine)
    wrong += sum(each.finding.verdict == "fail" for each in results)
    homes = [{"home": str(folder), "findings": [_told(f) for f in each]} for folder, each in found]
    probes = {"probes": [each.plain() for each in results]} if results else {}
    checks = [asdict(each) for each in machine]
    return {"wrong": wrong, "homes": homes, "machine": checks, **probes}


def _say_findings(found: Sequence[tuple[Path, Sequence[HomeFinding]]]) -> None:
    for folder, findings in found:
        if not any(each.wrong for each in findings):
            say(f"{folder}: nothing is wrong")
        for each in findings:
            _say_one(str(each.path), each.cause, each.cure, wrong=each.wrong)


def _say_machine(found: Sequence[CheckResult]) -> None:
    if not any(each.verdict == "fail" for each in found):
        say(f"{HERE}: nothing is wrong")
    for each in found:
        if each.verdict != "pass":
            where = f"{each.where}: {each.check}"
            _say_one(where, each.value, each.cure, wrong=each.verdict == "fail")


def _say_one(where: str, cause: str, cure: str, *, wrong: bool) -> None:
    say(f"{'WRONG' if wrong else 'note'}  {where}")
    say(f"       {cause}.")
    say(f"       {cure}.")


def _looked_at(homes: Sequence[Path]) -> list[tuple[Path, list[HomeFinding]]]:
    """Daemons are asked side by side: one that hangs is waited for as long as they all are."""
    found = [_of_disk(home) for home in homes]
    told: list[Future[list[HomeFinding]]] = [Future() for _ in homes]
    waiting = deque(zip(told, homes, found, strict=True))
    for _ in range(min(_AT_ONCE, len(homes))):
        # Nobody who ends the doctor waits for these, as for those of a pool.
        threading.Thread(target=_ask_in_turn, args=(waiting,), daemon=True).start()
    return [
        (home, [*own, *more.result()]) for home, own, more in zip(homes, found, told, strict=True)
    ]


def _ask_in_turn(
    waiting: deque[tuple[Future[list[HomeFinding]], Path, list[HomeFinding]]],
) -> None:
    with contextlib.suppress(IndexError):
        while True:
            told, home, own = waiting.popleft()
            try:
                told.set_result(_of_daemon(home, any(each.wrong for each in own)))
            except Exception as error:
                told.set_exception(error)


def _of_disk(home: Path) -> list[HomeFinding]:
    running, start = _runs(home), _start(home)
    found = examine(home, running=running, start=start)
    with contextlib.suppress(OSError):  # of another account's that is said already
        found += Machine().of_home(home, start, running=running)
    return found


def _of_daemon(home: Path, ill: bool) -> list[HomeFinding]:
    """What only the daemon of that home sees, or why none is there that could be asked. ``ill``:
    something of the home is wrong."""
    if (process := find_daemon(home)) is None:
        return _died(home, ill=ill)
    try:
        status = Client(home).request(ShowStatus(ended=0))
    except NoDaemonError as error:
        return [_silent(home, process, error)]
    except ElasticdError:
        return []
    versions = of_version(home, status)
    return [*walled(home, status), *twins(home, status), *failures(home, status), *versions]


def _died(home: Path, *, ill: bool) -> list[HomeFinding]:
    """A daemon that is stopped takes along the file that names it."""
    path = home / DAEMON_FILE
    try:
        told = json_of(path.read_bytes())
        if is_copied(told, home):
            return []  # with another home, in which that daemon may run
        pid = told["pid"]
    except (OSError, ValueError, TypeError, KeyError):
        pid = None
    if diskend.read(home) is not None or not os.path.lexists(path):
        return []  # said already, or not so
    which = f"process {pid}" if isinstance(pid, int) else "its file names no process"
    cause = (
        f"no daemon runs here. The last one ({which}) was not stopped: it was killed, it crashed,"
        " or this machine went down"
    )
    first = "See to what is said above, which may keep it from starting. " if ill else ""
    cure = f"{first}Start it again: {quoted(_start(home))}. {_log(home)} says what it did last"
    if not is_local(home):
        status = quoted(of_home("service status", home))
        cure += f", and {status} whether launchd or systemd starts it by itself"
    return [HomeFinding(path, cause, cure)]


def _silent(home: Path, process: psutil.Process, error: NoDaemonError) -> HomeFinding:
    """Of a daemon that runs, and can't be asked."""
    pid = process.pid
    with contextlib.suppress(*UNSEEN):
        if process.uids().real != home.stat().st_uid:
            return HomeFinding(
                home / DAEMON_FILE,
                f"it names a process of another account ({pid}), which is not this home's daemon",
                f"Remove it once no daemon of this home runs: {quoted('rm', home / DAEMON_FILE)}",
            )
    how = "listens no more" if isinstance(error, NobodyListens) else "does not answer"
    kill = quoted(f"kill -9 {pid}")
    if is_local(home):
        again = f"{kill}, then {quoted(_start(home))}"
    else:
        restart = quoted(of_home("service restart", home))
        again = f"{restart}; of one that was started by hand {kill}, then start it again"
    cure = f"{_log(home)} says what it did last. If it stays so: {again}"
    with contextlib.suppress(*UNSEEN):
        if process.status() == psutil.STATUS_STOPPED:
            how = f"{how}: somebody has stopped it (SIGSTOP)"
            cure = f"Let it go on: {quoted(f'kill -CONT {pid}')}. {cure}"
    return HomeFinding(home / SOCKET_NAME, f"its daemon (process {pid}) is there, but {how}", cure)


def _log(home: Path) -> str:
    """Where its daemon logs, as it may stand at the beginning of a sentence."""
    return f"{home / LOG_FILE}" + ("" if is_local(home) else " or 'elasticctl service logs'")


def failures(home: Path, status: Mapping[str, Any]) -> list[HomeFinding]:
    """What failed inside its daemon that nobody has thought of; it goes on (docs/operating.md)."""
    if not (failed := failure_of(status)):
        return []
    cure = (
        "Its log says more, in lines with 'uncaught'. To report that,"
        f" {of_home('doctor --bundle FILE', home)} packs it. A daemon that is started again begins"
        " everything anew"
    )
    return [HomeFinding(home / SOCKET_NAME, f"its daemon goes on, but {failed}", cure, wrong=False)]


def of_version(home: Path, status: Mapping[str, Any]) -> list[HomeFinding]:
    """Whether its daemon is of another build than what is installed here."""
    me = (status.get("loop") or {}).get("node")
    runs = [each.get("version") for each in status.get("nodes", ()) if each.get("id") == me]
    if not runs or runs[0] in (None, build()):
        return []
    again = begun_anew(home) if is_local(home) else quoted(of_home("service restart", home))
    cure = f"Have it begin anew with the one that is installed: {again}"
    cause = f"its daemon is of elasticd {runs[0]}, and {build()} is installed"
    return [HomeFinding(home / SOCKET_NAME, cause, cure, wrong=False)]


def walled(home: Path, status: Mapping[str, Any]) -> list[HomeFinding]:
    """Where this machine itself refuses its daemon's connections (docs/protocols.md, status)."""
    found = []
    for told in status.get("walled") or ():
        address, why, cure = str(told).split(": ", 2)
        cause = f"its daemon finds no route to {address}: {why}"
        found.append(HomeFinding(home / SOCKET_NAME, cause, cure[:1].upper() + cure[1:]))
    return found


def twins(home: Path, status: Mapping[str, Any]) -> list[HomeFinding]:
    """Which nodes two machines are, as one that was set up from the other's disk."""
    told = (str(each).partition(". ") for each in status.get("twins") or ())
    return [HomeFinding(home / SOCKET_NAME, cause, cure) for cause, _, cure in told]


def _told(finding: HomeFinding) -> dict[str, Any]:
    return {
        "path": str(finding.path),
        "cause": finding.cause,
        "cure": finding.cure,
        "wrong": finding.wrong,
    }


def _start(home: Path) -> str:
    """The command that starts the daemon of this home."""
    named = cluster_of(home)
    command = "service start" if named == home else "local up"
    return of_home(command, named)


def _runs(home: Path) -> bool:
    return find_daemon(home) is not None
