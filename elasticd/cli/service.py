"""The daemon as a service of the operating system: launchd on macOS, systemd elsewhere."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Protocol

import typer

from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.logend import LOG_LINES, printed_lines, with_log
from elasticd.cli.options import Common, Follow, Home, Json, common
from elasticd.cli.screen import print_json, say, warn
from elasticd.client import restarting
from elasticd.client.processes import find_daemon
from elasticd.errors import NoDaemonError, OperationError, UsageError
from elasticd.launchd.service import LaunchdService, present
from elasticd.settings.places import default_home
from elasticd.supervision.service import ServiceStatus, SystemdService, invoking_user

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)

READY_SECONDS = 60.0
"""What a daemon gets to answer after its start."""

User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        show_default=False,
        help="The account that the daemon runs as. Default: yours.",
    ),
]
AsAgent = Annotated[
    bool,
    typer.Option(
        "--agent", help="On a Mac: for you alone, without sudo, only while you are logged in."
    ),
]
TheAgent = Annotated[
    bool, typer.Option("--agent", help="On a Mac: the one of --agent, if both are there.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be written and run; change nothing.")
]


class Service(Protocol):
    """What both service managers offer; see there."""

    @property
    def home(self) -> Path: ...
    def installed_home(self) -> Path | None: ...
    def installed(self) -> bytes | None: ...
    def put_back(self, before: bytes | None) -> str: ...
    def install(self, dry_run: bool = False) -> str: ...
    def uninstall(self, dry_run: bool = False) -> str: ...
    def start(self, dry_run: bool = False) -> str: ...
    def restart(self, dry_run: bool = False) -> str: ...
    def stop(self, dry_run: bool = False) -> str: ...
    def status(self) -> ServiceStatus: ...
    def log_command(self, follow: bool = False) -> list[str]: ...


def service(home: Path | None, user: str | None, platform: str = sys.platform) -> Service:
    """The service of one home on this machine.

    Args:
        home: the daemon's state folder; None: the default of the account that it runs as.
        user: that account; None: whoever called, also through sudo.

    Raises:
        UsageError: there is no such user.
    """
    account = user or invoking_user()
    if user is not None:
        _require_account(user)
    folder = home or _home_of(account)
    if platform == "darwin":
        return LaunchdService.for_this_machine(folder, user=account)
    # Without root, systemd can still run it as a service of the caller's own.
    own = user is None and os.geteuid() != 0
    return SystemdService.for_this_machine(folder, user=None if own else account)


def own_agent(home: Path | None, platform: str, *, root: bool) -> LaunchdService:
    """A service of whoever calls, for as long as that person is logged in.

    Raises:
        UsageError: there is none such here, or the caller is root.
    """
    if platform != "darwin":
        raise UsageError(
            "--agent is for macOS: here 'elasticctl service install' without sudo makes a service"
            " of your own account"
        )
    if root:
        raise UsageError(
            "--agent makes a service of one person: run it without sudo, as who is logged in"
        )
    account = invoking_user()
    return LaunchdService.for_this_machine(home or _home_of(account), user=account, agent=True)


def to_install(home: Path | None, user: str | None, agent: bool) -> Service:
    """The service that is to be installed.

    Raises:
        UsageError: there is no such user, or an agent can't be had.
    """
    if not agent:
        return service(home, user)
    if user is not None:
        raise UsageError("--agent makes a service that runs as you: leave --user out")
    return own_agent(home, sys.platform, root=os.geteuid() == 0)


def installed(home: Path | None, user: str | None, platform: str = sys.platform) -> Service:
    """The service that is installed: on a Mac the daemon, or the agent of one person. Where no
    home is named it is of the one that it was installed for.

    Raises:
        UsageError: there is no such user, or a Mac has both.
    """
    found = _there(home, user, platform)
    its = found.installed_home() if home is None else None
    return found if its in (None, found.home) else _there(its, user, platform)


def _there(home: Path | None, user: str | None, platform: str) -> Service:
    found = service(home, user, platform)
    if not isinstance(found, LaunchdService):
        return found
    account = user or invoking_user()
    return present(found, LaunchdService.for_this_machine(found.home, user=account, agent=True))


def to_uninstall(home: Path | None, user: str | None, agent: bool) -> Service:
    """The service that is to go: with both there the daemon, unless the agent is named.

    Raises:
        UsageError: there is no such user, or no agent can be had.
    """
    if agent:
        return to_install(home, user, agent)
    found = service(home, user)
    if isinstance(found, LaunchdService) and found.path.exists():
        return found
    return installed(home, user)


def require_same(found: Service, home: Path | None) -> None:
    """Raises UsageError: the service of this machine is of another home than the one that was
    named."""
    other = found.installed_home()
    if home is not None and other is not None and other.resolve() != home.resolve():
        raise UsageError(
            f"the service of this machine is of {other}, not of {home.absolute()}: name that home"
        )


def _require_account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"there is no user {name!r} on this machine") from None


def _home_of(account: str) -> Path:
    record = _require_account(account)
    environment = dict(os.environ)
    if record.pw_uid != os.geteuid():
        environment.pop("XDG_STATE_HOME", None)
        environment["HOME"] = record.pw_dir
    return default_home(environment)


def install_and_wait(found: Service, ready: Callable[[Path], object]) -> str:
    """Install it, and wait until its daemon answers; else what was there before is put back, also
    where somebody interrupts it.

    Args:
        ready: returns when the daemon of a home answers; raises OperationError if it doesn't.

    Raises:
        OperationError: it can't be installed, or doesn't come up.
        KeyboardInterrupt: a signal has ended it; another one does not keep the old service away.
    """
    before = found.installed()
    with Interrupts().in_force():
        try:
            done = found.install()
            _await(found, ready)
        except BaseException as error:
            if found.installed() == before:
                raise
            back = _put_back(found, before)
            if isinstance(error, OperationError):
                raise OperationError(f"{error}\n{back}") from None
            warn(back)
            raise
    return done


def _put_back(found: Service, before: bytes | None) -> str:
    try:
        return found.put_back(before)
    except (OperationError, OSError) as again:
        return f"what was installed before can't be put back: {again}"


def start_and_wait(found: Service, ready: Callable[[Path], object]) -> str:
    """Start it, and wait until its daemon answers.

    Raises:
        OperationError: it can't be started, or doesn't come up; it is tried again and again then.
    """
    done = found.start()
    _await(found, ready)
    return done


def restart_and_wait(found: Service, ready: Callable[[Path], object]) -> str:
    """Have it end and start it again, and wait until its daemon answers.

    Raises:
        OperationError: it can't be, or doesn't come up; it is tried again and again then.
    """
    done = found.restart()
    _await(found, ready)
    return done


def _await(found: Service, ready: Callable[[Path], object]) -> None:
    try:
        ready(found.home)
    except OperationError as error:
        raise with_log(error, found.log_command()) from None


def begin_anew(home: Path, user: str | None = None) -> None:
    """Have the daemon of that home begin anew, whoever has started it.

    Raises:
        NoDaemonError: none answers there; nothing has changed.
        OperationError: it goes on as it is, and why; or it doesn't end, or doesn't come back, with
            the end of its log.
    """
    try:
        restarting.restart(home, warn)
    except restarting.NotBackError as error:
        found = installed(home, user)
        its = found.installed_home()
        if its is not None and its.resolve() == home.resolve():
            raise with_log(error, found.log_command()) from None
        log = home / LOG_FILE
        if not log.exists():  # it prints to somebody's terminal
            raise
        raise with_log(error, ["tail", "-n", str(LOG_LINES), str(log)]) from None


def _answers(home: Path) -> None:
    """Raises OperationError: no daemon of that home does."""
    restarting.await_status(home, READY_SECONDS)


# --- the commands ---------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def group(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Run the daemon as a service of launchd or systemd."""
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


def _say(done: str, options: Common, *, dry_run: bool, **more: str) -> None:
    """``more``: what --json has of it beside the words."""
    if options.json:
        print_json({"dry_run": dry_run, "text": done, **more})
    else:
        say(done.rstrip("\n"))


@app.command(short_help="Install the service, and start it.")
def install(
    context: typer.Context,
    user: User = None,
    agent: AsAgent = False,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Install the service, so that the daemon runs from boot, and start it.

    Returns when the daemon answers. If it doesn't within a minute, the end of its log is shown, and
    what was installed before is put back; so it is after Ctrl-C. Where nothing would change nothing
    is done.

    macOS needs sudo for it. So does a system service on Linux; without sudo it becomes a service
    of your own account. sudo drops ELASTICD_HOME: name the home then, as below. Which one the
    service has is said at the end.

    On a Mac --agent installs one for your own use, without sudo. It runs only while you are logged
    in at the screen: not from boot, not over ssh alone, not after a log-out. macOS may keep it from
    other Macs: allow Python in System Settings > Privacy & Security > Local Network, if it is in
    that list, which may not help. A Mac has one of both.

    \b
    Examples:
      elasticctl service install --dry-run
      sudo elasticctl service install --home "$ELASTICD_HOME"
      elasticctl service install --agent
    """
    options = common(context, home, json)
    found = to_install(options.given_home, user, agent)
    done = found.install(dry_run=True) if dry_run else install_and_wait(found, _answers)
    _say(done, options, dry_run=dry_run, home=str(found.home))


@app.command()
def uninstall(
    context: typer.Context,
    user: User = None,
    agent: TheAgent = False,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop the service and remove it; its home stays.

    \b
    Example:
      sudo elasticctl service uninstall
    """
    options = common(context, home, json)
    found = to_uninstall(options.given_home, user, agent)
    _say(found.uninstall(dry_run), options, dry_run=dry_run)


@app.command()
def start(
    context: typer.Context,
    user: User = None,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Start the installed service.

    \b
    Example:
      sudo elasticctl service start
    """
    options = common(context, home, json)
    found = installed(options.given_home, user)
    require_same(found, options.given_home)
    done = found.start(dry_run=True) if dry_run else start_and_wait(found, _answers)
    _say(done, options, dry_run=dry_run)


@app.command(short_help="Have the daemon begin anew.")
def restart(
    context: typer.Context,
    user: User = None,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Have the daemon begin anew, with the elasticd.toml that is there now. Of a wrong one it says
    why, and the daemon goes on as it is.

    Its rank leaves between two steps, and comes back; a job that has no other goes on from its
    newest checkpoint. A daemon that answers does it itself, without sudo, also where it runs in the
    foreground. One that does not is restarted by launchd or systemd. It returns when the daemon
    answers; if it doesn't within a minute, the end of its log is shown.

    \b
    Example:
      elasticctl service restart
    """
    options = common(context, home, json)
    found = installed(options.given_home, user)
    if not dry_run and find_daemon(found.home) is not None:
        with contextlib.suppress(NoDaemonError):
            begin_anew(found.home, user)
            _say("the daemon has begun anew", options, dry_run=False)
            return
    require_same(found, options.given_home)
    done = found.restart(dry_run=True) if dry_run else restart_and_wait(found, _answers)
    _say(done, options, dry_run=dry_run)


@app.command()
def stop(
    context: typer.Context,
    user: User = None,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop the service until the next start or boot.

    \b
    Example:
      sudo elasticctl service stop
    """
    options = common(context, home, json)
    found = installed(options.given_home, user)
    require_same(found, options.given_home)
    _say(found.stop(dry_run), options, dry_run=dry_run)


@app.command()
def status(
    context: typer.Context,
    user: User = None,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say whether the service is installed, and whether it runs.

    \b
    Example:
      elasticctl service status
    """
    options = common(context, home, json)
    manager = installed(options.given_home, user)
    if dry_run:
        _say("# only asks the service manager; changes nothing", options, dry_run=True)
        return
    found = manager.status()
    if options.json:
        print_json(asdict(found))
    else:
        running = f" (process {found.pid})" if found.pid else ""
        say(f"{found.text}{running}")


@app.command()
def logs(
    context: typer.Context,
    user: User = None,
    follow: Follow = False,
    dry_run: DryRun = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print what the daemon logged as a service.

    \b
    Example:
      elasticctl service logs -f
    """
    options = common(context, home, json)
    command = installed(options.given_home, user).log_command(follow)
    if dry_run:
        _say(f"# would run: {' '.join(command)}", options, dry_run=True)
        return
    for line in printed_lines(command):
        if options.json:
            print_json({"line": line})
        else:
            say(line, flush=follow)
