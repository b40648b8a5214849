"""A cluster of real daemons for tests: ``elasticctl local`` starts and ends it, SIGKILL breaks it.

Everything that a test waits for has a hard deadline; when it passes, the error shows the last
events, what the daemons logged and what the ranks printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

import psutil

from elasticd.cli import local
from elasticd.cli.daemons import DAEMON
from elasticd.cli.submit import prepare
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.errors import ElasticdError, NoDaemonError, OperationError, ProtocolError
from elasticd.settings import config
from elasticd.settings.localhomes import node_homes
from elasticd.settings.places import FILE_NAME
from elasticd.supervision.birth import has_ended, is_same
from elasticd.supervision.roster import kill_group
from elasticd.train.steps.sampling import indices
from elasticd.types import JobId
from tests import nursery
from tests.integration import ledgers, starting
from tests.integration.alone import JOBS, copy_kernels
from tests.integration.leftovers import accepts, processes_of
from tests.integration.nameless import never_given_back

T = TypeVar("T")

ELASTICCTL = Path(sys.executable).with_name("elasticctl")
WAIT_SECONDS = 120.0
"""Generous, because machines that run tests are busy; nothing is asserted about it."""
GIVE_BACK_SECONDS = 20.0
"""After so long what a job that has ended took is given back."""
POLL_SECONDS = 0.08
"""Each look costs the daemon as much as the test: three tests at a time ask all the time."""
ENDED = ("finished", "failed", "cancelled")
GLOBAL, SAMPLES, SEED, STEPS = 16, 96, 11, 32
"""Of the jobs in jobs/."""

_SHOWN_EVENTS = 40
_SHOWN_LINES = 25


@dataclass(frozen=True)
class Seen:
    """One process that belongs or belonged to a node."""

    pid: int
    create_time: float
    role: str
    born: str

    @property
    def alive(self) -> bool:
        """Whether that very process still runs; a zombie doesn't."""
        with contextlib.suppress(psutil.Error):
            same = is_same(self.pid, self.born, self.create_time)
            return same and not has_ended(psutil.Process(self.pid))
        return False


def everything(folder: Path) -> list[Path]:
    """All that is in it now, and itself. What goes meanwhile is left out."""
    inside = (Path(at, n) for at, folders, files in os.walk(folder) for n in (*folders, *files))
    return [folder, *sorted(inside)]


class Cluster:
    """N nodes under one home, as a context manager: up at its start, down and clean at its end."""

    by_command = False
    """Whether they are started and ended by a process, as people do: half a second of a processor
    more, for clusters whose daemons are to have more of our :attr:`environment` than a folder."""
    nurseries: ClassVar[nursery.Nurseries | None] = None
    """Where daemons and commands are forked. Without any each is a Python that starts."""

    def __init__(self, folder: Path, nodes: int, kernels: Path | None = None) -> None:
        """``kernels``: a warm cache of MLX's compiled kernels, which every node starts with."""
        self.home = folder / "home"
        self._kernels = kernels
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.size = nodes
        self.program: Sequence[str] = DAEMON
        """What :meth:`restart_daemon` starts."""
        self.seen: set[Seen] = set()
        self.client = Client(self.home)
        self._starting = False
        self._daemons: list[starting.Daemon] = []

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = self.down()
        if error is None:
            assert not left, self.report(f"left behind: {left}")

    # Commands.

    def command(self, *words: str | Path, seconds: float = WAIT_SECONDS) -> str:
        """What ``elasticctl`` prints; fails the test unless it exits with 0."""
        done = self.run(*words, seconds=seconds)
        assert done.returncode == 0, self.report(f"elasticctl {words}: {done.stderr}")
        return done.stdout

    def run(
        self, *words: str | Path, seconds: float = WAIT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """``elasticctl`` with this home, run to its end."""
        words = ("--home", self.home, *words)
        if (nurseries := self._nurseries()) is not None:
            return nurseries.run(nursery.COMMAND, words, self.environment, seconds)
        return subprocess.run(
            [ELASTICCTL, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of commands and daemons: their temporary files are in a folder of their own."""
        return {**os.environ, "TMPDIR": str(self.temporary)}

    def configure(self, node: str, **settings: Any) -> None:
        """Give ``node`` these keys of elasticd.toml, before it is started for the first time."""
        folder = self.home / node
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE_NAME).write_text(config.dump(config.NodeConfig(**settings)))

    def up(self) -> None:
        """Start the nodes that don't run; returns once all share a view."""
        if self._kernels is not None:
            for node in self.nodes:
                copy_kernels(self._kernels, self.home / node)
            self._kernels = None
        self._starting = True
        try:
            if self.by_command:
                self.command("local", "up", "-n", str(self.size))
            else:
                with self._temporary():
                    local.up(self.home, self.size, start=self._start_daemon)
        except ElasticdError as error:
            raise AssertionError(self.report(f"local up: {error}")) from error
        finally:
            self._starting = False
        self.note()

    revive = up

    def will_start(self) -> None:
        """Nodes are about to be started, so that it means nothing that none is there."""
        self._starting = True

    def down(self) -> list[str]:
        """End everything; returns what is left of it, in words."""
        self.note()
        kept = self.kept_memory()
        left = self._end()
        for daemon in self._daemons:
            daemon.wait(WAIT_SECONDS)
        for one in self.seen:  # those that are our children, as up() has started them
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)
        return left + kept + self.leftovers()

    def _end(self) -> list[str]:
        """What could not be ended, in words."""
        if self.by_command:
            ended = self.run("local", "down")
            return [f"local down: {ended.stderr}"] if ended.returncode else []
        try:
            with self._temporary():
                local.down(self.home)
        except ElasticdError as error:
            return [f"local down: {error}"]
        return []

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[None]:
        """What starts now has its temporary files where :attr:`environment` says."""
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(self.temporary)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before

    def kept_memory(self) -> list[str]:
        """Shared memory that processes hold although every job has ended. What a job that has not
        ended holds is its own, and goes with its processes."""
        try:
            jobs = self.client.request(ShowStatus())["jobs"]
        except ElasticdError:
            return []
        if any(job["state"] not in ENDED for job in jobs):
            return []
        living = [one.pid for one in sorted(self.note(), key=_pid) if one.alive]
        return never_given_back(living, GIVE_BACK_SECONDS)

    def leftovers(self) -> list[str]:
        """Processes, ports and temporary files of ours that exist now."""
        left = [f"{one.role} {one.pid}" for one in sorted(self.seen, key=_pid) if one.alive]
        left += [f"process {pid}: {what}" for pid, what in processes_of(self.home)]
        left += starting.running(self._daemons)
        left += [f"port {name}" for name in self.addresses if accepts(name)]
        left += [f"temporary file {path}" for path in everything(self.temporary)[1:]]
        return left

    @property
    def addresses(self) -> list[str]:
        """Where the daemons listen."""
        return [config.load(folder).listen for folder in node_homes(self.home)]

    def submit(self, entrypoint: str, at: str = "", **settings: object) -> str:
        """Submit a script of jobs/, to the node ``at`` if one is named; returns the job's id.

        ``train__steps=20`` is ``--set train.steps=20``.
        """
        name = entrypoint.partition(".")[0].replace("_", "-")
        words = [f"job.entrypoint={entrypoint}", f"job.name={name}"]
        words += [f"{k.replace('__', '.')}={json.dumps(v)}" for k, v in settings.items()]
        client = Client(self.home / at) if at else self.client
        return client.submit(*prepare(JOBS / "job.toml", words))

    def hurry(self, job: str) -> None:
        """Let a job keep no pace any more: what it is slow for is over."""
        (self.home / f"hurry-{job}").touch()

    def status(self, job: str) -> dict[str, Any]:
        """The job's entry of ``status --json``, from whichever daemon answers."""
        self.note()
        found: dict[str, Any] = self.client.request(ShowStatus(JobId(job)))["jobs"][0]
        return found

    def view(self) -> dict[str, Any]:
        """The view that the first daemon that answers is in."""
        found: dict[str, Any] = self.client.request(ShowStatus())["view"]
        return found

    def events(self, job: str | None = None, node: str | None = None) -> list[dict[str, Any]]:
        """The history, as ``node`` or the first daemon that answers tells it."""
        client = self.client if node is None else Client(self.home / node)
        return list(client.stream(ReadEvents(JobId(job) if job else None)))

    def kinds(self, job: str | None, kind: str, node: str | None = None) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.events(job, node) if event["kind"] == kind]

    def faults(self, job: str) -> list[dict[str, Any]]:
        """The faults that broke something; that a node of a busy machine is slow may be true."""
        return [e for e in self.kinds(job, "fault_detected") if e["fault"] != "slow"]

    def unheard(self, job: str) -> list[dict[str, Any]]:
        """Those of daemons that lived, and were silent: a busy machine may not let one run."""
        silent = " left the view: silent for "
        return [e for e in self.faults(job) if e["fault"] == "peer_lost" and silent in e["reason"]]

    def broken(self, job: str) -> list[dict[str, Any]]:
        """The other faults."""
        unheard = self.unheard(job)
        return [e for e in self.faults(job) if e not in unheard]

    def moves(self, job: str) -> int:
        """How often shares were moved, for which a world is formed anew with the same trainers."""
        return len(self.kinds(job, "shares_moved"))

    # Waiting.

    def wait_for(self, what: str, look: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
        """Poll until ``look()`` returns something true. A daemon that doesn't answer is no."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if found := look():
                    return found
            except (NoDaemonError, OperationError, ProtocolError) as error:
                hopeless = not (self._starting or self.living())
                if time.monotonic() > deadline or hopeless:
                    raise AssertionError(self.report(f"{what}: {error}")) from error
            if time.monotonic() > deadline:
                raise AssertionError(self.report(f"{what}: not within {seconds:g} s"))
            time.sleep(POLL_SECONDS)

    def wait_step(self, job: str, step: int) -> dict[str, Any]:
        """The job's status once ``step`` is committed and the world runs, or it has ended."""

        def look() -> dict[str, Any] | None:
            status = self.status(job)
            there = status["state"] == "running" and status["ranks"] and status["step"] >= step
            return status if there or status["state"] in ENDED else None

        return self.wait_for(f"step {step} of {job}", look)

    def wait_whole(self, job: str, step: int) -> dict[str, Any]:
        """As :meth:`wait_step`, with every rank's trainer alive, as far as can be seen."""

        def look() -> dict[str, Any] | None:
            status = self.status(job)
            alive = {one.pid for node in self.nodes for one in self.processes(node) if one.alive}
            whole = {rank["pid"] for rank in status["ranks"]} <= alive
            there = status["state"] == "running" and status["ranks"] and status["step"] >= step
            return status if (there and whole) or status["state"] in ENDED else None

        return self.wait_for(f"a whole world at step {step} of {job}", look)

    def wait_end(self, job: str, state: str | None = "finished") -> dict[str, Any]:
        """The job's status once it has ended, in ``state`` unless that is None."""

        def look() -> dict[str, Any] | None:
            status = self.status(job)
            return status if status["state"] in ENDED else None

        status = self.wait_for(f"end of {job}", look)
        if state is not None:
            assert status["state"] == state, self.report(f"{job} is {status['state']}", job)
        return status

    # Breaking.

    def kill_trainer(self, job: str, rank: int) -> int | None:
        """SIGKILL; the pid, or None if there is no such rank now."""
        return self._kill_rank(job, rank, "pid")

    def kill_reducer(self, job: str, rank: int) -> int | None:
        """SIGKILL; the pid, or None if that rank has no reducer now."""
        return self._kill_rank(job, rank, "reducer_pid")

    def kill_trainers(self, job: str, nodes: Collection[str] | None = None) -> list[int]:
        """SIGKILL all ranks' trainers, or those on ``nodes``, at once, if each is there; pids."""
        found = {rank["node"]: rank["pid"] for rank in self.status(job)["ranks"]}
        pids = [found.get(node, 0) for node in nodes or found]
        return self._kill(pids) if all(pids) else []

    def _kill_rank(self, job: str, rank: int, key: str) -> int | None:
        pids = [r[key] for r in self.status(job)["ranks"] if r["rank"] == rank]
        return next(iter(self._kill(pids)), None)

    def _kill(self, pids: Sequence[int]) -> list[int]:
        found = sorted({one.pid for one in self.note()}.intersection(pids))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def kill_daemon(self, node: str) -> None:
        """SIGKILL the daemon of ``node`` alone: its children are orphans now."""
        for one in self.processes(node):
            if one.role == "daemon" and one.alive:
                os.kill(one.pid, signal.SIGKILL)
                _await_gone([one])

    def restart_daemon(self, node: str) -> None:
        """SIGKILL the daemon of ``node`` and start another at once; returns when that answers."""
        self.kill_daemon(node)
        home = self.home / node
        daemon = self._start_daemon(home, self.program)
        own = Client(home)

        def answers() -> bool:
            nodes = own.request(ShowStatus())["nodes"]
            return any(one["id"] == node and one["pid"] == daemon.pid for one in nodes)

        self._starting = True
        try:
            self.wait_for(f"{node} answers", answers)
        finally:
            self._starting = False
        self.note()

    def _start_daemon(self, home: Path, program: Sequence[str]) -> starting.Daemon:
        self._daemons.append(starting.start(self._nurseries(), program, home, self.environment))
        return self._daemons[-1]

    def _nurseries(self) -> nursery.Nurseries | None:
        """If what starts there is what would start by itself."""
        there = None if self.by_command else self.nurseries
        return there if there is not None and there.can_start(self.environment) else None

    def kill_node(self, node: str) -> None:
        """SIGKILL the daemon of ``node``, then its children, which nobody can replace now."""
        self.kill_nodes([node])

    def kill_nodes(self, nodes: Sequence[str]) -> None:
        """Kill whole nodes as one: all daemons first."""
        self.note()
        for node in nodes:
            self.kill_daemon(node)
        children = [one for node in nodes for one in self.processes(node) if one.alive]
        for one in children:
            kill_group(one.pid)
        _await_gone(children)
        self.seen.update(children)

    @property
    def nodes(self) -> list[str]:
        return [f"node-{number}" for number in range(self.size)]

    def living(self) -> list[str]:
        """Nodes whose daemon runs."""
        return [n for n in self.nodes if any(p.alive for p in self.processes(n)[:1])]

    def processes(self, node: str) -> list[Seen]:
        """The daemon first, then its children, as daemon.json and children.json name them."""
        found = []
        with contextlib.suppress(OSError, ValueError):
            daemon = json.loads((self.home / node / "daemon.json").read_bytes())
            found.append(Seen(daemon["pid"], daemon["create_time"], "daemon", daemon["born"]))
        with contextlib.suppress(OSError, ValueError):
            children = json.loads((self.home / node / "children.json").read_bytes())
            found += [Seen(c["pid"], c["create_time"], c["role"], c["born"]) for c in children]
        return found

    def note(self) -> set[Seen]:
        """Remember the processes that there are; returns all that were ever seen."""
        for node in self.nodes:
            self.seen.update(self.processes(node))
        return self.seen

    # Judging.

    def check_ledger(self, job: str, steps: int, cumulative: bool) -> None:
        """Every sample of every step is in the applied reductions exactly once, on every rank.

        A rank that alone had a step may be lost before it writes a line; with ``cumulative`` those
        of later steps tell of it.
        """
        written: set[int] = set()
        for line in ledgers.lines(self.home, job):
            first = 0 if cumulative else line["step"] - 1
            positions = range(first * GLOBAL, line["step"] * GLOBAL)
            expected = [0.0] * SAMPLES
            for index in indices(positions, SAMPLES, SEED):
                expected[index] += 1.0
            assert line["used"] == expected, self.report(f"step {line['step']}: {line}", job)
            written.add(line["step"])
        wanted = {steps} if cumulative else set(range(1, steps + 1))
        assert wanted <= written <= set(range(1, steps + 1)), self.report(f"ledger: {written}", job)

    def report(self, what: str, job: str | None = None) -> str:
        """``what``, and all that helps to understand it; what tells most stands last, where it is
        seen if only the end is shown."""
        parts = [what]
        for folder in node_homes(self.home):
            files = [folder / "daemon.log", folder / "logs" / "reducer.log"]
            trainers = sorted((folder / "logs").glob("*/*.log"), key=lambda p: p.stat().st_mtime)
            for path in trainers[-2:] + files[::-1]:
                with contextlib.suppress(OSError):
                    lines = path.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
                    parts += [f"--- {path}", *lines]
        with contextlib.suppress(NoDaemonError, OperationError, ProtocolError, OSError):
            parts.append(json.dumps(self.client.request(ShowStatus())))
            events = self.events(job)[-_SHOWN_EVENTS:]
            parts += [_event_line(event) for event in events]
        return "\n".join([*parts, what])


def _event_line(event: Mapping[str, Any]) -> str:
    fields = {k: v for k, v in event.items() if k not in ("time", "kind", "reason", "job")}
    return f"{event['time']:.3f} {event['kind']}: {event['reason']} {fields}"


def _pid(one: Seen) -> int:
    return one.pid


def _await_gone(processes: Sequence[Seen]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while any(one.alive for one in processes):
        assert time.monotonic() < deadline, f"survives SIGKILL: {processes}"
        time.sleep(0.002)
