"""Probes of the system: what it is, whether it sleeps, what its own tools say."""

from __future__ import annotations

import platform
import plistlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from elasticd.counting import gibibytes
from elasticd.errors import ElasticdError, OperationError
from elasticd.launchd.plist import DaemonPlist
from elasticd.launchd.service import LaunchdService
from elasticd.machinememory import MachineMemory, machine_memory, total_bytes
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.nodes import LEAST_MLX, numbers
from elasticd.preflight.power import (
    FILEVAULT,
    FIREWALL,
    SERVICES,
    firewall_is_off,
    let_in,
    locked_by,
    settings_of,
    stays_awake,
)
from elasticd.settings.places import default_home
from elasticd.shell.assembly.chip import chip
from elasticd.shell.children.awake import Awake
from elasticd.shell.control.ownfacts import battery_now
from elasticd.supervision.program import own_program
from elasticd.supervision.service import Result, invoking_user, run_command
from elasticd.systemtools import release

LEAST_MACOS = 14
_WIRED_MACOS = 15
_TOOL_SECONDS = 10.0
_LOOKS, _LOOK_SECONDS = 50, 0.1
_MEMORY_LOOKS = 200
"""On macOS 27 it is from some call of a process on that psutil raises."""
_PAGE_BYTES = re.compile(r"page size of (\d+) bytes")
_LET_GO_NAMES = ("Pages free", "File-backed pages", "Pages purgeable")
_LET_GO = re.compile(rf"^(?:{'|'.join(_LET_GO_NAMES)}):\s+(\d+)\.$", re.MULTILINE)

Tool = Callable[[Sequence[str]], Result]


def tool(command: Sequence[str]) -> Result:
    """Run one of the system's tools; one that isn't there, or hangs, is a failure with words."""
    try:
        return run_command(command, _TOOL_SECONDS)
    except OperationError as error:
        return Result(127, str(error))


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """What a machine is."""

    system: str
    release: str
    machine: str
    chip: str
    memory_bytes: int
    python: str
    mlx: str
    metal: bool

    @property
    def line(self) -> str:
        gpu = "with Metal" if self.metal else "without Metal"
        return (
            f"{self.system} {self.release}, {self.chip}, {self.memory_bytes / (1 << 30):.0f} GiB,"
            f" Python {self.python}, mlx {self.mlx} {gpu}"
        )


def facts_here() -> SystemFacts:
    """Of this machine. May raise ImportError: MLX can't be loaded."""
    from elasticd.train.gpu import has_gpu

    darwin = sys.platform == "darwin"
    return SystemFacts(
        system="macOS" if darwin else platform.system(),
        release=release(),
        machine=platform.machine(),
        chip=chip(),
        memory_bytes=total_bytes(),
        python=platform.python_version(),
        mlx=metadata.version("mlx"),
        metal=has_gpu(),
    )


def system(
    folder: Path,
    facts: Callable[[], SystemFacts] = facts_here,
    memory: Callable[[], MachineMemory] = machine_memory,
    ask: Tool = tool,
) -> ProbeFinding:
    """Whether this machine is one that elasticd is for, and says what memory it has each time."""
    try:
        found = facts()
    except ImportError as error:
        return failed(f"MLX can't be loaded: {error}", "Install it again: pip install -U mlx")
    if numbers(found.mlx) < LEAST_MLX:
        least = ".".join(map(str, LEAST_MLX))
        return failed(found.line, f"Install MLX {least} or newer: pip install -U mlx")
    if found.system != "macOS":
        return passed(f"{found.line} (no Mac: each probe runs its Linux side)")
    if found.machine != "arm64":
        return failed(
            f"{found.line}, {found.machine}",
            "Use a Python that was built for Apple silicon: this one is for Intel, or runs under"
            " Rosetta",
        )
    if not found.metal:
        cure = "MLX finds no GPU: restart this Mac. A virtual one has none: use a real one"
        return failed(found.line, cure)
    looks = [memory().available_bytes for _ in range(_MEMORY_LOOKS)]
    known = [free for free in looks if free is not None]
    if len(known) < _MEMORY_LOOKS:
        cure = "Send this result: jobs run, and nothing is judged by what memory is free"
        told = f"asked {_MEMORY_LOOKS} times macOS says {len(known)} times how much memory is free"
        return warned(f"{found.line}; {told}", cure)
    line = f"{found.line}; {gibibytes(known[-1])} of memory are free, {_by_vm_stat(ask)}"
    version = numbers(found.release)[:1]
    if version < (LEAST_MACOS,):
        return failed(line, f"Update macOS to {LEAST_MACOS} or newer")
    if version < (_WIRED_MACOS,):
        cure = f"Update macOS to {_WIRED_MACOS} or newer: before, MLX can't keep a model resident"
        return warned(line, cure)
    return passed(line)


def _by_vm_stat(ask: Tool) -> str:
    """The same from vm_stat(1), which asks for it in another way: by a call of Mach."""
    answer = ask(["/usr/bin/vm_stat"])
    page = _PAGE_BYTES.search(answer.text)
    pages = [int(count) for count in _LET_GO.findall(answer.text)]
    if answer.status or page is None or len(pages) != len(_LET_GO_NAMES):
        return "vm_stat does not say it"
    return f"{gibibytes(sum(pages) * int(page[1]))} by vm_stat"


def sleep_settings(
    folder: Path,
    ask: Tool = tool,
    here: str = sys.platform,
    battery: Callable[[], object] = battery_now,
) -> ProbeFinding:
    """Whether this Mac falls asleep by itself, and comes back after a power cut and whatever else
    restarts it."""
    if here != "darwin":
        return passed("not asked: what runs Linux here are servers")
    answer = ask(["/usr/bin/pmset", "-g"])
    if answer.status:
        return failed(f"pmset -g: {answer.text}", "Run 'pmset -g' and see what is wrong with it")

    def said(command: Sequence[str]) -> str:
        told = ask(command)
        return "" if told.status else told.text

    locked = locked_by(said(FILEVAULT), said(SERVICES), release(here, said))
    portable = battery() is not None
    return stays_awake(settings_of(answer.text), portable=portable, locked=locked)


def assertions(
    folder: Path, ask: Tool = tool, awake: Awake | None = None, here: str = sys.platform
) -> ProbeFinding:
    """Whether a rank's power assertion is listed while it is held, and gone afterwards."""
    if here != "darwin":
        return passed("not held: what runs Linux here are servers")
    rank = subprocess.Popen(["/bin/sleep", "60"])
    held = (awake or Awake()).hold(rank.pid)
    try:
        if held is None:
            return failed("none can be held", "See that /usr/bin/caffeinate runs on this Mac")
        pid = held.holder.pid
        if not _comes(lambda: listed(ask, pid)):
            return failed(
                f"pmset -g assertions doesn't list caffeinate's process {pid}",
                "Keep this Mac awake by its settings: sudo pmset -a sleep 0",
            )
    finally:
        rank.kill()
        rank.wait()
        if held is not None:
            held.release()
    if not _comes(lambda: not listed(ask, pid)):
        cure = f"End it by hand: kill {pid}"
        return warned("the assertion is still listed though its rank has ended", cure)
    return passed("listed while its rank runs, and gone with it")


def listed(ask: Tool, pid: int) -> bool:
    """``pmset -g assertions`` has lines such as ``pid 4711(caffeinate): [0x…] …``."""
    return f"pid {pid}(" in ask(["/usr/bin/pmset", "-g", "assertions"]).text


def _comes(true: Callable[[], bool]) -> bool:
    for _ in range(_LOOKS):
        if true():
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def firewall(folder: Path, ask: Tool = tool, here: str = sys.platform) -> ProbeFinding:
    """Whether macOS's application firewall may keep peers out."""
    if here != "darwin":
        return passed("not asked on Linux")
    answer = ask([FIREWALL, "--getglobalstate"])
    said = answer.text.splitlines()[0] if answer.text else "it says nothing"
    if answer.status:
        return warned(said, "See System Settings > Network > Firewall whether it is on")
    if firewall_is_off(said):
        return passed(said)
    return warned(said, let_in(own_program(), said))


def own_plist() -> DaemonPlist:
    """What ``service install`` would write here, for the account that called."""
    return LaunchdService.for_this_machine(default_home(), user=invoking_user()).plist


def plist(
    folder: Path,
    ask: Tool = tool,
    own: Callable[[], DaemonPlist] = own_plist,
    here: str = sys.platform,
) -> ProbeFinding:
    """Whether a second parser takes the service's property list, and what it names is there."""
    try:
        wanted = own()
        data = wanted.data()
        found = plistlib.loads(data)
    except (ElasticdError, ValueError, TypeError) as error:
        return failed(str(error), "Name the account and the home: service install --user, --home")
    program = Path(found["ProgramArguments"][0])
    if not program.is_file():
        cure = "Install elasticd into an environment that stays, then install the service again"
        return failed(f"{program}: there is no such interpreter", cure)
    if here != "darwin":
        return passed("read back by plistlib; plutil is macOS's")
    path = folder / "com.elasticd.daemon.plist"
    path.write_bytes(data)
    answer = ask(["/usr/bin/plutil", "-lint", str(path)])
    if answer.status:
        cure = "Send what is said here: 'elasticctl service install' would write a broken file"
        return failed(f"plutil -lint: {answer.text}", cure)
    return passed(answer.text.rpartition(": ")[2] or "OK")
