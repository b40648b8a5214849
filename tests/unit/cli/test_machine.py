"""What the doctor finds of a machine, by the names under which docs/operating.md has it: each has a
case in which something is wrong, and is said with the cure."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
import pytest

from elasticd import __version__
from elasticd.build import build
from elasticd.cli import health
from elasticd.cli.daemons import name as name_process
from elasticd.cli.health import _looked_at
from elasticd.cli.mac.probes import PROBES
from elasticd.cli.machine import ALONE, HERE, PROBED, Machine, facts, gpu
from elasticd.preflight.finding import failed, passed
from elasticd.preflight.nodes import CheckResult
from elasticd.preflight.power import FIREWALL, THERMAL
from elasticd.preflight.seen import REPORT_NAME, NodeFacts
from elasticd.settings.places import DAEMON_FILE, FILE_NAME
from elasticd.shell.chaos.firewall import PacketFilter
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.server import ROSTER_NAME
from elasticd.shell.children.temporary import TemporaryFolders
from elasticd.shell.control.ownfacts import PMSET, OwnFacts
from elasticd.shell.storage import papers
from elasticd.supervision.roster import ChildEntry, ChildRoster
from tests.members import member
from tests.unit.cli.test_health import Ctl, damage, lived
from tests.unit.client.fake_daemon import FakeDaemon
from tests.unit.shell.chaos.test_cuts import FakePf

SAYS = (Path(__file__).parents[3] / "docs/operating.md").read_text()
FULL = Path("/dev" if sys.platform == "darwin" else "/proc")
"""Of a file system that never has room."""
MAC = {
    PMSET: " sleep  0\n autorestart  1",
    (FIREWALL, "--getglobalstate"): "Firewall is disabled. (State = 0)",
    THERMAL: "com.apple.system.thermalpressurelevel 0",
}


def well(own: OwnFacts) -> NodeFacts:
    """Of any machine, with room, memory and power that suffice, whatever this one has."""
    plenty = 64 << 30
    return replace(
        facts(own), free_bytes=plenty, memory_bytes=plenty, memory_low="", memory_warned="",
        battery=None, plugged=True,
    )  # fmt: skip


def mac(said: dict[tuple[str, ...], str] | None = None) -> Machine:
    """One where all is well, but for what its tools say here."""
    answers = MAC | (said or {})

    def ask(command: Sequence[str]) -> str:
        return answers.get(tuple(command), "")

    gpu = passed("Apple M3 Max")
    return Machine("darwin", ask, lambda: gpu, Path("/nowhere"), facts=well)


@dataclass(frozen=True, slots=True)
class Told:
    """However it is found."""

    cause: str
    cure: str
    wrong: bool


def of_checks(found: Sequence[CheckResult]) -> list[Told]:
    odd = [each for each in found if each.verdict != "pass"]
    return [Told(f"{each.check}: {each.value}", each.cure, each.verdict == "fail") for each in odd]


def of_home(home: Path, machine: Machine, *, running: bool = False) -> list[Told]:
    found = machine.of_home(home, "elasticctl local up", running=running)
    return [Told(each.cause, each.cure, each.wrong) for each in found]


def of_doctor(home: Path) -> list[Told]:
    return [Told(each.cause, each.cure, each.wrong) for each in _looked_at([home])[0][1]]


def damaged(home: Path) -> list[Told]:
    damage(lived(home))
    return of_doctor(home)


def open_to_all(home: Path) -> list[Told]:
    lived(home)
    home.chmod(0o777)
    return of_doctor(home)


def taken(home: Path) -> list[Told]:
    lived(home)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        (home / FILE_NAME).write_text(f'node_id = "n"\nlisten = "127.0.0.1:{port}"\n')
        return of_doctor(home)


def before_its_certificate(home: Path) -> list[Told]:
    lived(home)
    papers.write(home, member("n"))
    os.utime(home / "journal", (0, 0))
    return of_home(home, Machine(now=lambda: 1e9))


def after_its_certificate(home: Path) -> list[Told]:
    lived(home)
    papers.write(home, member("n"))
    return of_home(home, Machine(now=lambda: datetime(2999, 1, 1, tzinfo=UTC).timestamp()))


def before_its_journal(home: Path) -> list[Told]:
    journal = lived(home)
    ahead = time.time() + 3600
    os.utime(journal, (ahead, ahead))
    return of_home(home, Machine())


def ahead_of_others(home: Path) -> list[Told]:
    lived(home)
    check = CheckResult("clock", "n", "fail", "90.0 s ahead of the others", "Let it set its clock")
    other = replace(check, where="m")
    told = {"time": time.time() - 60, "checks": [asdict(check), asdict(other)]}
    (home / REPORT_NAME).write_text(json.dumps(told))
    assert of_home(home, Machine(now=lambda: time.time() + 86400), running=True) == [], "too old"
    return of_home(home, Machine(), running=True)


def older_daemon(home: Path) -> list[Told]:
    lived(home)
    name_process(home / DAEMON_FILE, psutil.Process())
    # A daemon of before the build was told says the version alone.
    # In containers processes of several hosts may have the same pid.
    other = {"id": "m", "pid": os.getpid(), "version": "0.0.2"}
    for version in (build(), __version__, "0.0.1"):
        nodes = [other, {"id": "n", "pid": os.getpid(), "version": version}]
        with FakeDaemon(home, {"status": {"nodes": nodes, "loop": {"node": "n"}}}):
            found = of_doctor(home)
        assert bool(found) == (version != build())
    return found


def full(_: Path) -> list[Told]:
    machine = replace(mac(), facts=lambda own: replace(well(own), free_bytes=facts(own).free_bytes))
    return of_checks(machine.checked(FULL))


def no_gpu(home: Path) -> list[Told]:
    machine = replace(mac(), gpu=lambda: failed("no Metal", "Use a Mac with Apple silicon"))
    return of_checks(machine.checked(home))


def dangling_link(home: Path) -> list[Told]:
    links = home / "tmp"
    gone, kept = (home / ("x" * 90) / name for name in ("gone", "kept"))
    links.mkdir()
    folders = TemporaryFolders(ChildFiles(home), "linux", "", links, None)
    for each in (gone, kept):
        each.mkdir(parents=True)
        folders.made(each / "rank")
    shutil.rmtree(gone)
    (links / "elasticd-other").symlink_to("/nowhere")
    before = sorted(links.iterdir())
    found = of_checks(replace(mac(), links=links).checked(home))
    assert sorted(links.iterdir()) == before
    (told,) = found
    command = told.cure.partition(": ")[2].strip("'")
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert len(list(links.iterdir())) == 2 and kept.is_dir(), "the cure takes away what it shall"
    return found


def living_child(home: Path) -> list[Told]:
    lived(home)
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        born = psutil.Process(child.pid).create_time()
        ChildRoster(home / ROSTER_NAME).add(ChildEntry(child.pid, born, "trainer"))
        found, with_daemon = of_doctor(home), of_home(home, Machine(), running=True)
        assert child.poll() is None and with_daemon == []
        child.kill()
    assert of_home(home, Machine()) == []
    assert f"trainer {child.pid}" in found[0].cause
    return found


def open_cut(home: Path) -> list[Told]:
    lived(home)
    pf = FakePf(home)
    packets = pf.filter()
    cut = packets.open(home, 600)
    machine = Machine(cuts=PacketFilter(str(pf.program), root=True))
    try:
        packets.drop(cut, [])
        found = of_home(home, machine)
    finally:
        packets.close(cut)
    assert of_home(home, machine) == [] and cut in found[0].cause
    return found


CASES: list[tuple[str, Callable[[Path], list[Told]], str, str]] = [
    ("home", damaged, "damaged at byte 0", "elasticctl reset"),
    ("permissions", open_to_all, "by every account of this machine", "Do what is named"),
    ("disk", full, "disk: 0.0 GiB free", "elasticctl disk"),
    ("ports", taken, "can't listen on 127.0.0.1", "configure --listen"),
    ("clock", before_its_certificate, "from 2020-01-01 on", "set its clock"),
    ("clock", after_its_certificate, "clock says 2999-01-01", "set its clock"),
    ("clock", before_its_journal, "was written 3600 s from now", "set its clock"),
    ("clock", ahead_of_others, "90.0 s ahead of the others", "set its clock"),
    (
        "sleep",
        lambda home: of_checks(mac({PMSET: " sleep  1"}).checked(home)),
        "sleep: sleep 1",
        "sudo pmset -a sleep 0",
    ),
    (
        "firewall",
        lambda home: of_checks(
            mac({(FIREWALL, "--getglobalstate"): "It is on. (State = 1)"}).checked(home)
        ),
        "firewall: It is on",
        "--unblockapp",
    ),
    (
        "energy",
        lambda home: of_checks(mac({PMSET: f"{MAC[PMSET]}\n lowpowermode 1"}).checked(home)),
        "energy: Low Power Mode is on",
        "sudo pmset -a lowpowermode 0",
    ),
    (
        "heat",
        lambda home: of_checks(mac({THERMAL: "level 2"}).checked(home)),
        "heat: heavy",
        "Give it air",
    ),
    ("versions", older_daemon, "of elasticd 0.0.1, and", "service restart"),
    ("gpu", no_gpu, "gpu: no Metal", "Apple silicon"),
    ("leftovers", dangling_link, "1 link to folders that are gone", "rm"),
    ("leftovers", living_child, "processes that it has started do", "takes them over"),
    ("leftovers", open_cut, "chaos' is still in force", "elasticctl local up"),
]


def test_every_name_of_the_docs_has_such_a_case() -> None:
    part = SAYS.partition("## When something is wrong with a node")[2].partition("\n## ")[0]
    assert {case[0] for case in CASES} == set(re.findall(r"^\| `([a-z]+)` \|", part, re.MULTILINE))


@pytest.mark.process
@pytest.mark.parametrize(("name", "case", "cause", "cure"), CASES)
def test_what_is_wrong_is_said_with_the_cure(
    tmp_path: Path, name: str, case: Callable[[Path], list[Told]], cause: str, cure: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    (found,) = case(home)
    assert cause in found.cause and cure in found.cure
    assert found.wrong == (name not in NOTED and case not in (before_its_journal, dangling_link))


NOTED = ("sleep", "energy", "firewall", "heat", "versions")


@pytest.mark.parametrize("system", ["darwin", "linux"])
def test_where_all_is_well_nothing_is_said(home: Path, system: str) -> None:
    lived(home)
    papers.write(home, member("n"))
    machine = replace(mac(), system=system)
    found = machine.checked(home)
    assert of_checks(found) == [] and of_home(home, machine) == []
    assert [each.check for each in found] == [*ALONE, *(["gpu"] if system == "darwin" else [])]
    for name in ("not/there", "x" * 300):  # a name so long is refused, as a closed folder is
        assert machine.checked(home / name) == found


def test_what_a_probe_tries_out_is_not_said_twice(home: Path) -> None:
    home.mkdir()
    assert {*PROBED.values()} <= {each.name for each in PROBES}
    found = mac().checked(home, ["system", "sleep", "firewall"])
    assert {each.check for each in found} == {*ALONE} - {*PROBED}


@pytest.mark.process
def test_the_gpu_is_looked_at_in_a_process_of_its_own() -> None:
    assert gpu().verdict == "pass", gpu()


def test_the_doctor_tells_of_the_machine(
    ctl: Ctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(home)
    machine = mac({PMSET: " sleep  1"})
    monkeypatch.setattr(health, "Machine", partial(replace, machine))
    code, out, _ = ctl("doctor", "--home", home)
    assert (code, out) == (
        0,
        f"{home}: nothing is wrong\n{HERE}: nothing is wrong\nnote  {HERE}: sleep\n"
        "       sleep 1.\n       On it: sudo pmset -a sleep 0.\n",
    )
    code, out, _ = ctl("doctor", "--home", home, "--json")
    told = {each["check"]: each for each in json.loads(out)["machine"]}
    assert told["sleep"]["verdict"] == "warn" and told["disk"]["value"].endswith(" free")
    monkeypatch.setattr(health, "Machine", lambda: replace(machine, gpu=lambda: failed("x", "y")))
    code, out, _ = ctl("doctor", "--home", home)
    assert code == 1 and f"WRONG  {HERE}: gpu\n" in out and f"{HERE}: nothing" not in out
