"""The daemon as a launchd service: its file, and the launchctl calls.

Two kinds. A LaunchDaemon belongs to the Mac: it runs from boot, takes root to install, and needs no
permission for the local network. A LaunchAgent is for one person's use: it takes no root, and runs
only while that person is logged in at the screen. A Mac has one of both.

The verbs are those of launchctl 2 (``bootstrap``, ``enable``, ``kickstart``, ``bootout``); the file
is one that plain ``launchctl load`` accepts too: mode 0644, a daemon's owned by root:wheel.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.errors import OperationError, UsageError
from elasticd.launchd.launchctl import (
    ALREADY_LOADED,
    IN_PROGRESS,
    LEAVING,
    NO_SUCH_DOMAIN,
    NO_SUCH_SERVICE,
    RUNS_ALREADY,
    Launchctl,
    SystemLaunchctl,
    lines_of,
    said,
    state_of,
)
from elasticd.launchd.otherdisk import MOUNTED_LATE, is_apart, log_aside, require_mounted
from elasticd.launchd.plist import LABEL, STOP_SECONDS, DaemonPlist, home_in, lasting
from elasticd.launchd.protected import VOLUMES, below, doubts, require_open
from elasticd.pasting import of_home, pasted, quoted
from elasticd.supervision.givenhome import make_home
from elasticd.supervision.program import own_program
from elasticd.supervision.service import (
    NOTHING_TO_DO,
    STARTED,
    Result,
    ServiceStatus,
    run_command,
)

DAEMON_FOLDER = Path("/Library/LaunchDaemons")
AGENTS = "Library/LaunchAgents"
"""Of somebody's home."""
DOMAIN = "system"
MAX_TRIES = 60
TRY_SECONDS = 0.5
"""``bootout`` returns before the service has ended: at most 30 s of asking again, beside the time
that the service has to end."""
REFUSED_TRIES = 30
"""So often 5 is taken for what is left of a ``bootout``, or for a moment's; then it is meant."""
LINT_SECONDS = 10.0
HOMEBREW = "homebrew.mxcl.elasticd.plist"
"""What ``brew services start elasticd`` writes (Homebrew's service.rb, default_plist_name)."""
ONE_OF_BOTH = "{} is there, and a Mac runs one service of elasticd: take it away first: {}"
AGENT_LIMITS = """
It runs only while {user} is logged in at this Mac's screen: not from boot on, and not after a
log-out. Then the others go on without this Mac.
macOS may keep it from other Macs, and not ask you first: allow Python in System Settings > Privacy
& Security > Local Network, if it is in that list. That may not help.
A service of the whole Mac has neither limit: 'elasticctl service uninstall', then
{whole}."""

APART = """
The home is on another disk than macOS: a service of either kind starts once that is mounted. It
logs into {log}."""
UNSTARTED = """
{what}: launchd can't start it until that disk is mounted. A checkout on the Mac's own disk, below
/Users/Shared say, is started without it."""
NO_AGENT = (
    "{folder}, the folder of your account, is on another disk, and launchd takes no agent from"
    " there: install a service of the whole Mac: {whole}"
)


def plutil(path: Path) -> Result:
    """What macOS's own parser says of a property list."""
    return run_command(["/usr/bin/plutil", "-lint", str(path)], LINT_SECONDS)


def keep_own(path: Path) -> None:
    """Mode 0644; an agent's file stays its person's."""
    path.chmod(0o644)


def give_to_root(path: Path) -> None:
    """Owner root:wheel and mode 0644: launchd refuses a file that others could write.

    Raises:
        OSError: the caller is not root.
    """
    os.chown(path, 0, 0)
    path.chmod(0o644)


@dataclass(frozen=True, slots=True)
class Agent:
    """Whose agent a service is.

    Attributes:
        user: the account.
        uid: its number, which names its domain of launchd's.
    """

    user: str
    uid: int

    @property
    def domain(self) -> str:
        return f"gui/{self.uid}"


@dataclass(frozen=True, slots=True)
class LaunchdService:
    """The service of one home. Every method returns what it did, or with ``dry_run`` would do.

    Attributes:
        folder: where its file lies.
        agent: whose it is; None: it is a daemon of the whole Mac.
        lint: a second parser, which has to take the file before it is put in place.
        rivals: files of other services of elasticd, and what takes each away.

    Raises (every method): OperationError: launchctl said no, or a file can't be written, which
    takes root for a daemon.
    """

    plist: DaemonPlist
    launchctl: Launchctl = field(default_factory=SystemLaunchctl)
    folder: Path = DAEMON_FOLDER
    give: Callable[[Path], None] = give_to_root
    pause: Callable[[float], None] = time.sleep
    agent: Agent | None = None
    lint: Callable[[Path], Result] = plutil
    rivals: tuple[tuple[Path, str], ...] = ()

    @classmethod
    def for_this_machine(cls, home: Path, *, user: str, agent: bool = False) -> LaunchdService:
        """A service that runs as ``user``; ``agent``: only while that account is logged in.

        Raises:
            UsageError: there is no such user.
        """
        try:
            record = pwd.getpwnam(user)
        except KeyError:
            raise UsageError(f"there is no user {user!r} on this machine") from None
        user_home = Path(record.pw_dir)
        path = os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        lang = os.environ.get("LANG", "en_US.UTF-8")
        runs_as = None if agent else user
        python = lasting(sys.executable)
        home = home.absolute()
        aside = log_aside(home, user_home, record.pw_uid)
        plist = DaemonPlist(home, runs_as, user_home, path, python, lang, aside)
        agents = user_home / AGENTS
        brewed = (
            (agents / HOMEBREW, "brew services stop elasticd"),
            (DAEMON_FOLDER / HOMEBREW, "sudo brew services stop elasticd"),
        )
        if agent:
            daemon = DAEMON_FOLDER / f"{LABEL}.plist"
            rivals = ((daemon, "sudo elasticctl service uninstall"), *brewed)
            whose = Agent(user, record.pw_uid)
            return cls(plist, folder=agents, give=keep_own, agent=whose, rivals=rivals)
        rivals = ((agents / f"{LABEL}.plist", "elasticctl service uninstall --agent"), *brewed)
        return cls(plist, rivals=rivals)

    @property
    def domain(self) -> str:
        return DOMAIN if self.agent is None else self.agent.domain

    @property
    def target(self) -> str:
        return f"{self.domain}/{LABEL}"

    @property
    def home(self) -> Path:
        """Of its daemon."""
        return self.plist.home

    @property
    def path(self) -> Path:
        return self.folder / f"{LABEL}.plist"

    def there(self) -> Path | None:
        """The file of the service of elasticd's that is installed, of whatever kind, if one is."""
        every = (self.path, *(rival for rival, _ in self.rivals))
        return next((path for path in every if path.exists()), None)

    def installed_home(self) -> Path | None:
        """Of which home the service is that is installed; None: of none, or nobody can say."""
        data = self.installed()
        return None if data is None else home_in(data)

    def installed(self) -> bytes | None:
        """The file that is installed; None: none is, or it can't be read."""
        try:
            return self.path.read_bytes()
        except OSError:
            return None

    def put_back(self, before: bytes | None) -> str:
        """Undo an :meth:`install`: ``before`` is what was installed then, if anything was."""
        self._bootout()
        if before is None:
            self.path.unlink(missing_ok=True)
            return f"{self.path} was removed again"
        self._write(before)
        self._call("enable", self.target)
        self._bootstrap()
        return f"the service of before is back in {self.path}, and started"

    def install(self, dry_run: bool = False) -> str:
        """Write the file, enable the service at boot, and start it; replaces an older one. Nothing
        if that is there already, and runs.

        Raises:
            UsageError: it would lie where macOS lets no service read, or launchd takes no agent
                from, or another service of elasticd is installed.
            OperationError: the home's disk is not mounted.
        """
        _require_places(self.plist, self.agent)
        for rival, cure in self.rivals:
            if rival.exists():
                raise UsageError(ONE_OF_BOTH.format(rival, cure))
        limits = _limits(self.plist, self.agent)
        if dry_run:
            text = self.plist.data().decode()
            whose = "root:wheel" if self.agent is None else self.agent.user
            said = "".join(f"# {line}\n" for line in limits.splitlines() if line)
            calls = _would_run(self._start_calls())
            return f"# would write {self.path} ({whose}, 0644)\n{text}{calls}{said}"
        if self.installed() == self.plist.data() and self.status().running:
            return NOTHING_TO_DO.format(self.path, self.home)
        self._write(self.plist.data())
        self._bootout()
        self._call("enable", self.target)
        self._bootstrap()
        return STARTED.format(self.path, self.home) + limits

    def _write(self, data: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".partial")
        try:
            make_home(self.plist.home, self.plist.user)
            make_home(self.plist.log.parent, self.plist.user)
            if self.agent is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
            if (answer := self.lint(beside)).status:
                raise OperationError(f"plutil takes {beside} for broken: {said(answer)}")
            self.give(beside)
            beside.replace(self.path)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> OperationError:
        root = " (needs root)" if self.agent is None else ""
        return OperationError(f"{self.path}: {error.strerror}{root}")

    def uninstall(self, dry_run: bool = False) -> str:
        """Stop the service and remove its file; the home stays as it is."""
        if dry_run:
            return f"{_would_run((('bootout', self.target),))}# would remove {self.path}\n"
        loaded = self._bootout()
        if not loaded and not self.path.exists():
            return f"{self.path} is not there: nothing to do"
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        return f"removed {self.path}"

    def start(self, dry_run: bool = False) -> str:
        """Start it; does nothing if it runs."""
        if dry_run:
            return _would_run(self._start_calls())
        if not self.path.exists():
            if brewed := _brewed(self.rivals):
                raise OperationError(f"{brewed}: 'brew services start elasticd' starts it")
            raise OperationError(f"{self.path} is not there: install the service first")
        self._call("enable", self.target)
        self._bootstrap()
        return "the service is started"

    def restart(self, dry_run: bool = False) -> str:
        """End it (SIGTERM, after :data:`STOP_SECONDS` SIGKILL) and start it again. ``kickstart -k``
        alone kills at once. One that is not loaded is started."""
        if dry_run:
            return _would_run((("kill", "SIGTERM", self.target), ("kickstart", "-k", self.target)))
        if not self._state():
            self.start()
            return "the service is restarted"
        before = pid = self.status().pid
        if before is not None and not self.launchctl.run("kill", "SIGTERM", self.target).status:
            for _ in range(int(STOP_SECONDS / TRY_SECONDS)):
                if (pid := self.status().pid) != before:
                    break
                self.pause(TRY_SECONDS)
        if pid is None or pid == before:  # else launchd has started it again
            self._kick("-k", before=before)
        return "the service is restarted"

    def stop(self, dry_run: bool = False) -> str:
        """Stop it until the next boot or :meth:`start`."""
        if dry_run:
            return _would_run((("bootout", self.target),))
        return "the service is stopped" if self._bootout() else "the service was not running"

    def status(self) -> ServiceStatus:
        """What launchd knows of it."""
        result = self.launchctl.run("print", self.target)
        installed = self.path.exists()
        if self._is_absent(result):
            text = "installed, not loaded" if installed else "not installed"
            if not installed and (brewed := _brewed(self.rivals)):
                text += f"; {brewed}: 'brew services info elasticd' tells of it"
            if installed and result.status in NO_SUCH_DOMAIN and self.agent is not None:
                text += f": {self.agent.user} is not logged in at this Mac's screen"
            return ServiceStatus(installed, running=False, pid=None, text=text)
        if result.status:
            raise OperationError(f"launchctl print {self.target}: {said(result)}")
        found = lines_of(result)
        pid, state = found.get("pid", ""), found.get("state", "unknown")
        text = f"{state}, last exit code: {found.get('last exit code', 'unknown')}"
        if self.agent is not None:
            text += f"; an agent: only while {self.agent.user} is logged in"
        number = int(pid) if pid.isdecimal() else None
        return ServiceStatus(installed, running=state == "running", pid=number, text=text)

    def log_command(self, follow: bool = False) -> list[str]:
        """The command that prints what the daemon logged, and with ``follow`` goes on."""
        # -F: also when the file is made or replaced meanwhile.
        return ["tail", "-n", "+1", *(["-F"] if follow else []), str(self.plist.log)]

    def _start_calls(self) -> tuple[tuple[str, ...], ...]:
        bootstrap = ("bootstrap", self.domain, str(self.path))
        return (("enable", self.target), bootstrap, ("kickstart", self.target))

    def _bootstrap(self) -> None:
        """Load the file, and start it if launchd doesn't. A service that is loaded already stays as
        it is; the end of one that is being taken away is waited for."""
        refused = 0
        for _ in range(MAX_TRIES + int(STOP_SECONDS / TRY_SECONDS)):
            result = self.launchctl.run("bootstrap", self.domain, str(self.path))
            if result.status not in (0, ALREADY_LOADED, *IN_PROGRESS):
                break
            state = self._state()
            if result.status == 0 or (state and state not in LEAVING):
                self._kick()
                return
            refused += result.status == ALREADY_LOADED and not state
            if refused > REFUSED_TRIES:
                break
            self.pause(TRY_SECONDS)
        self._require_session(result)
        raise OperationError(f"launchctl bootstrap {self.domain} {self.path}: {said(result)}")

    def _kick(self, *flags: str, before: int | None = None) -> None:
        """Have it run, and no longer as the process ``before``."""
        arguments = ("kickstart", *flags, self.target)
        done = (0, RUNS_ALREADY) if before is None else (0,)
        for _ in range(REFUSED_TRIES):
            if (result := self.launchctl.run(*arguments)).status in done:
                return
            self._require_session(result)
            status = self.status()
            if status.running and status.pid != before:
                return
            if result.status not in (ALREADY_LOADED, RUNS_ALREADY):
                break
            self.pause(TRY_SECONDS)
        raise OperationError(f"launchctl {' '.join(arguments)}: {said(result)}")

    def _state(self) -> str:
        """What launchd says of it; empty: it is not loaded."""
        return state_of(self.launchctl.run("print", self.target))

    def _bootout(self) -> bool:
        """Unload it and wait until it is gone. Whether it was loaded."""
        result = self.launchctl.run("bootout", self.target)
        if self._is_absent(result):
            return False
        if result.status and result.status not in IN_PROGRESS:
            raise OperationError(f"launchctl bootout {self.target}: {said(result)}")
        for _ in range(MAX_TRIES + int(STOP_SECONDS / TRY_SECONDS)):
            if not self._state():
                return True
            self.pause(TRY_SECONDS)
        raise OperationError(f"launchctl bootout {self.target}: it has not ended")

    def _is_absent(self, result: Result) -> bool:
        """It is not loaded, or there is no session of that person's that could have loaded it."""
        absent = NO_SUCH_SERVICE if self.agent is None else (*NO_SUCH_SERVICE, *NO_SUCH_DOMAIN)
        return result.status in absent

    def _require_session(self, result: Result) -> None:
        """Raises OperationError: nobody is logged in for whom an agent could run."""
        if self.agent is None or result.status not in (*NO_SUCH_DOMAIN, ALREADY_LOADED):
            return
        # Over ssh bootstrap may say 5 of a domain that isn't there.
        unsure = result.status == ALREADY_LOADED
        if not unsure or self.launchctl.run("print", self.domain).status in NO_SUCH_DOMAIN:
            raise _no_session(self.agent, self.home, result)

    def _call(self, *arguments: str) -> None:
        result = self.launchctl.run(*arguments)
        self._require_session(result)
        if result.status:
            raise OperationError(f"launchctl {' '.join(arguments)}: {said(result)}")


def present(daemon: LaunchdService, agent: LaunchdService) -> LaunchdService:
    """Which of both is installed; the daemon if none is.

    Raises:
        UsageError: both are, which :meth:`LaunchdService.install` refuses: copied by hand, say.
    """
    if not agent.path.exists():
        return daemon
    if daemon.path.exists():
        raise UsageError(
            f"{daemon.path} and {agent.path} are both there, and a Mac runs one service of"
            " elasticd: take one away with 'sudo elasticctl service uninstall' (of the whole Mac)"
            " or 'elasticctl service uninstall --agent' (of one person)"
        )
    return agent


def _require_places(plist: DaemonPlist, agent: Agent | None) -> None:
    """Raises UsageError, OperationError: launchd, or a service, can't be where something lies."""
    require_open(plist.user_home, _places(plist))
    require_mounted(plist.home)
    if agent is not None and is_apart(folder := plist.user_home):
        raise UsageError(NO_AGENT.format(folder=folder, whole=_whole(plist.home)))


def _brewed(rivals: Sequence[tuple[Path, str]]) -> str:
    """What to say of a service that Homebrew has installed; nothing: it has none."""
    found = [rival for rival, _ in rivals if rival.name == HOMEBREW and rival.exists()]
    return f"{found[0]} is Homebrew's" if found else ""


def _places(plist: DaemonPlist) -> tuple[tuple[str, Path], ...]:
    """What the daemon has to read from its first moment on."""
    package = Path(__file__).resolve().parent
    interpreter = Path(plist.python)
    return ("the home", plist.home), ("the interpreter", interpreter), ("elasticd in", package)


def _limits(plist: DaemonPlist, agent: Agent | None) -> str:
    """What to know before a service is relied on."""
    agents = "" if agent is None else AGENT_LIMITS.format(user=agent.user, whole=_whole(plist.home))
    return agents + _away(plist) + doubts(_places(plist), own_program())


def _away(plist: DaemonPlist) -> str:
    """What to know of what is on another disk."""
    _, *started = _places(plist)
    outside = [
        f"{what} {path}"
        for what, path in started
        # An environment's interpreter is a link to one that may lie elsewhere.
        if below(path.parent.resolve(), VOLUMES) is not None
    ]
    apart = APART.format(log=plist.log) if plist.aside else ""
    unstarted = UNSTARTED.format(what=" and ".join(outside)) if outside else ""
    return f"{apart}{unstarted}\n{MOUNTED_LATE}." if apart or unstarted else ""


def _no_session(agent: Agent, home: Path, result: Result) -> OperationError:
    return OperationError(
        f"{agent.user} is not logged in at this Mac's screen, and an agent runs only then: log in"
        " there (ssh is not enough), or install a service of the whole Mac:"
        f" {_whole(home)} (launchctl: {said(result)})"
    )


def _whole(home: Path) -> str:
    """What installs a service of the whole Mac. sudo drops ELASTICD_HOME."""
    return quoted(f"sudo {of_home('service install', home)}")


def _would_run(calls: Sequence[Sequence[str]]) -> str:
    return "".join(f"# would run: {pasted('launchctl', *call)}\n" for call in calls)
