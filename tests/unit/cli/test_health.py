"""elasticctl doctor and reset, on homes that no daemon has open."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from elasticd import archive
from elasticd.checkpoints.apart import note_of
from elasticd.cli.clusterhome import free_port
from elasticd.cli.daemons import DAEMON
from elasticd.cli.health import failures, twins, walled
from elasticd.core.words.records import JobRecord, View
from elasticd.errors import DamageError
from elasticd.launchd.plist import INCURABLE_ENDS_WELL
from elasticd.settings.places import FILE_NAME, LOCAL_LOCK_NAME, MEMBER
from elasticd.shell.daemon import main
from elasticd.shell.network.twins import CURE as TWIN_CURE
from elasticd.shell.network.wall import LASTING_SECONDS, LET_OUT, REFUSALS, Wall
from elasticd.shell.storage import founding, health, issuing, papers
from elasticd.shell.storage.health import examine
from elasticd.shell.storage.homefolders import FILES, FOLDERS
from elasticd.shell.storage.records import StableRecords
from elasticd.types import JobId, NodeId, Tag
from tests.members import member
from tests.ports import free_ports

Ctl = Callable[..., tuple[int, str, str]]


def lived(home: Path) -> Path:
    """A home with a journal of three frames and some files; the journal's path."""
    home.mkdir(parents=True, exist_ok=True)
    records = StableRecords(home)
    view = View(Tag(1, NodeId("n"), "x"), (NodeId("n"),))
    records.persist("view_attempt", view)
    records.persist("job", JobRecord(JobId("a-1"), 1, {"job": {"name": "a"}}, "0" * 64, "running"))
    records.persist("view_formed", view)
    records.close()
    for folder in ("checkpoints/a-1", "events", "work/a-1", "output/a-1", "archives"):
        (home / folder).mkdir(parents=True)
    (home / "elasticd.toml").write_text('node_id = "n"\n')
    return home / "journal"


def damage(journal: Path) -> None:
    data = bytearray(journal.read_bytes())
    data[20] ^= 1
    journal.write_bytes(data)


def examined(ctl: Ctl, home: Path) -> tuple[int, list[dict[str, Any]]]:
    code, out, _ = ctl("doctor", "--json", "--home", str(home))
    (found,) = json.loads(out)["homes"]
    return code, found["findings"]


def test_a_daemon_that_listens_everywhere_is_noted(ctl: Ctl, home: Path) -> None:
    home.mkdir(exist_ok=True)
    file = home / "elasticd.toml"
    port = free_port("0.0.0.0", 0)
    file.write_text(f'listen = "0.0.0.0:{port}"\nadvertise = ["10.0.0.1:7071", "10.1.0.1:7071"]\n')
    code, (found,) = examined(ctl, home)
    assert (code, found["path"], found["wrong"]) == (0, str(file), False)
    assert "listens on all networks" in found["cause"] and "unencrypted" in found["cause"]
    assert "are told 10.0.0.1:7071, 10.1.0.1:7071" in found["cause"]
    assert f"configure --listen HOST:PORT --home {home}" in found["cure"]
    file.write_text(f'listen = "127.0.0.1:{free_port("127.0.0.1", 0)}"\n')
    assert examined(ctl, home) == (0, [])


def test_nothing_is_wrong_with_a_sound_home_and_a_new_one(ctl: Ctl, home: Path) -> None:
    home.mkdir(exist_ok=True)
    assert examined(ctl, home) == (0, [])
    lived(home)
    before = sorted(path.name for path in home.iterdir())
    assert examined(ctl, home) == (0, [])
    assert sorted(path.name for path in home.iterdir()) == before


def test_the_doctor_names_cause_and_cure_of_a_damaged_journal(ctl: Ctl, home: Path) -> None:
    damage(lived(home))
    code, (finding,) = examined(ctl, home)
    assert code == 1
    assert finding["path"] == str(home / "journal")
    assert "damaged at byte 0" in finding["cause"] and finding["cause"].endswith(
        "2 records, with 1 job"
    )
    assert f"elasticctl reset --home {home}" in finding["cure"]
    with pytest.raises(DamageError, match="elasticctl reset --home"):
        StableRecords(home)


@pytest.mark.parametrize("what", ["removed", "emptied"])
def test_a_journal_that_is_gone_is_told(ctl: Ctl, home: Path, what: str) -> None:
    journal = lived(home)
    journal.unlink()
    if what == "emptied":
        journal.touch()
    code, (finding,) = examined(ctl, home)
    assert code == 1 and "lost acknowledged data" in finding["cause"]


def test_a_large_journal_is_noted_with_the_cure(
    ctl: Ctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = lived(home).stat().st_size
    monkeypatch.setattr(health, "LARGE_JOURNAL_BYTES", size + 1)
    assert examined(ctl, home) == (0, [])
    monkeypatch.setattr(health, "LARGE_JOURNAL_BYTES", size)
    code, (found,) = examined(ctl, home)
    assert (code, found["wrong"]) == (0, False)
    assert "the records of 1 job have 0 MiB" in found["cause"]
    assert f"forget JOB --home {home}" in found["cure"] and "results = false" in found["cure"]


def test_a_journal_that_cannot_be_read_is_told_and_reset(ctl: Ctl, home: Path) -> None:
    journal = lived(home)
    journal.unlink()
    journal.mkdir()
    code, (finding,) = examined(ctl, home)
    assert code == 1 and "can't be read: Is a directory" in finding["cause"]
    with pytest.raises(DamageError, match=r"can't be read.*elasticctl reset"):
        StableRecords(home)
    assert ctl("reset", "--yes", "--home", str(home))[0] == 0
    assert (home / "journal.lost").is_dir() and examined(ctl, home)[0] == 0


@pytest.mark.parametrize("name", [papers.NODE, papers.KEY, papers.AUTHORITY, MEMBER])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_damaged_certificate_is_told(
    ctl: Ctl, home: Path, name: str, content: bytes | None
) -> None:
    lived(home)
    for cure in ("Make its certificate anew: 'elasticctl cluster init", "Join again: 'elasticctl"):
        founding.found(home, NodeId("n"))
        if cure.startswith("Join"):
            papers.write(home, member("n"))
        path = papers.folder_of(home) / name
        path.unlink() if content is None else path.write_bytes(content)
        code, (finding,) = examined(ctl, home)
        assert code == 1 and finding["path"] == str(papers.folder_of(home))
        assert finding["cure"].startswith(cure)
        with pytest.raises(DamageError, match="damaged"):
            papers.read(home)


def no_papers(home: Path) -> Path:
    (home / FILE_NAME).write_text('node_id = "n"\npeers = ["127.0.0.1:7171"]\n')
    return home / FILE_NAME


def no_folder_of_papers(home: Path) -> Path:
    papers.folder_of(home).touch()
    return papers.folder_of(home)


def empty_settings(home: Path) -> Path:
    papers.write(home, replace(member("n"), peers=("10.0.0.1:7070",)))
    (home / FILE_NAME).write_text("")
    return home / FILE_NAME


def no_settings(home: Path) -> Path:
    empty_settings(home).unlink()
    return home / FILE_NAME


def rotten_register(home: Path) -> Path:
    founding.found(home, NodeId("n"))
    (papers.folder_of(home) / issuing.ISSUED).write_text("[")
    return papers.folder_of(home)


def open_home(home: Path) -> Path:
    home.chmod(0o777)
    return home


HARMS: list[Callable[[Path], Path]] = [
    no_papers, no_folder_of_papers, empty_settings, no_settings, rotten_register, open_home,
]  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_the_doctor_tells_of_what_the_daemon_refuses_to_start(
    ctl: Ctl, home: Path, harm: Callable[[Path], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lived(home)
    place = harm(home)
    code, (finding,) = examined(ctl, home)
    assert (code, finding["path"], finding["wrong"]) == (1, str(place), True)
    assert finding["cure"]
    assert main(["run", "--home", str(home)]) in (1, 2, 4)
    assert finding["cause"] in capfd.readouterr().err


@pytest.mark.parametrize("harm", [no_papers, empty_settings, no_settings])
def test_a_local_clusters_node_is_begun_anew_as_a_whole_and_another_by_itself(
    ctl: Ctl, home: Path, harm: Callable[[Path], Path]
) -> None:
    """A local cluster writes settings and certificates of its nodes itself."""
    for folder in (home / "node-0", home / "mac-1"):
        lived(folder)
        harm(folder)
    (home / LOCAL_LOCK_NAME).touch()
    _, (local,) = examined(ctl, home / "node-0")
    both = f"'elasticctl local down --home {home}', then 'elasticctl local up --home {home}'"
    assert local["cure"].endswith(both)
    _, (own,) = examined(ctl, home / "mac-1")
    assert "local up" not in own["cure"] and f"--home {home / 'mac-1'}'" in own["cure"]


def test_the_cure_of_settings_that_are_gone_works_as_named(ctl: Ctl, home: Path) -> None:
    lived(home)
    no_settings(home)
    _, (finding,) = examined(ctl, home)
    (address,) = (f"127.0.0.1:{port}" for port in free_ports(1))
    command = finding["cure"].split("'")[1].replace("HOST:PORT", address)
    assert ctl(*shlex.split(command)[1:])[0] == 0
    assert examined(ctl, home) == (0, [])


def test_an_address_that_another_program_has_is_told_unless_the_daemon_runs(
    ctl: Ctl, home: Path
) -> None:
    lived(home)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (home / FILE_NAME).write_text(f'node_id = "n"\nlisten = "{address}"\n')
        code, (finding,) = examined(ctl, home)
        assert code == 1 and finding["path"] == str(home / FILE_NAME)
        assert f"can't listen on {address}: Address already in use" in finding["cause"]
        assert examine(home, running=True, start="") == []
    assert examined(ctl, home) == (0, [])


def test_a_cluster_key_that_is_damaged_is_told(ctl: Ctl, home: Path) -> None:
    lived(home)
    founding.found(home, NodeId("n"))
    key = papers.folder_of(home) / papers.AUTHORITY_KEY
    key.write_bytes((papers.folder_of(home) / papers.KEY).read_bytes())
    _, (finding,) = examined(ctl, home)
    assert finding["path"] == str(key) and "not the key" in finding["cause"]
    key.write_bytes(b"")
    _, (finding,) = examined(ctl, home)
    assert "can't be read" in finding["cause"]
    founding.found(home, NodeId("n"))
    (papers.folder_of(home) / papers.TOKENS).write_text("{")
    _, (finding,) = examined(ctl, home)
    assert finding["cure"].startswith("Remove it and make new join tokens")


def test_wrong_settings_and_rotten_archives_are_found(ctl: Ctl, home: Path) -> None:
    lived(home)
    (home / "elasticd.toml").write_text("lisen = 1\n")
    sound = b"sound"
    (home / "archives" / f"{archive.digest(sound)}.tar").write_bytes(sound)
    (home / "archives" / f"{'0' * 64}.tar").write_bytes(b"rotten")
    code, findings = examined(ctl, home)
    assert code == 1
    assert ["elasticd.toml", f"{'0' * 64}.tar"] == [Path(f["path"]).name for f in findings]
    assert "lisen" in findings[0]["cause"]


def test_a_local_cluster_is_examined_and_reset_as_a_whole(ctl: Ctl, home: Path) -> None:
    for number in range(2):
        lived(home / f"node-{number}")
    damage(home / "node-1" / "journal")
    code, out, _ = ctl("doctor", "--home", str(home))
    assert code == 1 and f"{home / 'node-0'}: nothing is wrong" in out and "WRONG" in out
    assert ctl("reset", "-y", "--home", str(home / "node-1"))[0] == 0
    assert ctl("doctor", "--home", str(home))[0] == 0
    assert ctl("reset", "-y", "--home", str(home))[0] == 0


def test_a_folder_that_is_not_there_is_wrong_usage(ctl: Ctl, home: Path) -> None:
    assert ctl("doctor", "--home", str(home / "nowhere"))[0] == 2
    assert ctl("reset", "-y", "--home", str(home / "nowhere"))[0] == 2


@pytest.mark.process
@pytest.mark.parametrize(("variables", "code"), [({}, 4), ({INCURABLE_ENDS_WELL: "1"}, 0)])
def test_a_daemon_that_no_restart_cures_ends_so_that_it_is_not_started_again(
    home: Path, variables: dict[str, str], code: int
) -> None:
    damage(lived(home))
    before = (home / "journal").read_bytes()
    ended = subprocess.run(
        [*DAEMON, "run", "--home", str(home)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code
    assert f"elasticctl reset --home {home}" in ended.stderr and "Traceback" not in ended.stderr
    assert ("not started again" in ended.stderr) == bool(variables)
    assert (home / "journal").read_bytes() == before


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("link", [False, True])
def test_what_is_in_the_place_of_a_folder_is_told(
    ctl: Ctl, home: Path, tmp_path: Path, name: str, link: bool
) -> None:
    """As where a disk isn't mounted."""
    home.mkdir(exist_ok=True)
    place = home / name
    if link:
        place.symlink_to(tmp_path / "away")
    else:
        place.touch()
    code, (found,) = examined(ctl, home)
    assert (code, found["path"], found["wrong"]) == (1, str(place), True)
    assert ("Mount" if link else "aside") in found["cure"]
    if link:
        (tmp_path / "away").mkdir()
        assert examined(ctl, home) == (0, [])


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_place_of_a_file_is_told(ctl: Ctl, home: Path, name: str) -> None:
    (home / name).mkdir(parents=True)
    code, found = examined(ctl, home)
    assert code == 1
    (it,) = [each for each in found if "is a folder" in each["cause"]]
    assert (it["path"], it["wrong"]) == (str(home / name), True) and "aside" in it["cure"]


def test_another_account_is_told_whom_to_be(home: Path) -> None:
    """What it may not read is not damaged."""
    damage(lived(home))
    owner = home.stat().st_uid
    (found,) = examine(home, running=False, start="start it", me=owner + 1)
    assert found.path == home and "belongs to the account" in found.cause
    assert f"doctor --home {home}" in found.cure
    for me in (owner, 0):
        assert [f.path.name for f in examine(home, running=False, start="", me=me)] == ["journal"]


def test_what_a_daemon_says_of_a_mac_that_lets_nothing_out(home: Path) -> None:
    assert walled(home, {}) == walled(home, {"walled": []}) == []
    clock = itertools.count(0.0, LASTING_SECONDS)
    wall = Wall("darwin", lambda: [IPv4Network("10.0.0.0/24")], lambda: next(clock))
    for _ in range(REFUSALS):
        wall.met("10.0.0.2:7070", 0.001)
    (found,) = walled(home, {"walled": list(wall.told())})
    assert found.wrong and found.cause.startswith("its daemon finds no route to 10.0.0.2:7070: ")
    assert found.cause.endswith("though it is in its own network")
    assert found.cure == LET_OUT[:1].upper() + LET_OUT[1:]


def test_what_a_daemon_says_of_two_machines_that_are_one_node(home: Path) -> None:
    assert twins(home, {}) == twins(home, {"twins": []}) == []
    (found,) = twins(home, {"twins": [f"two machines are b: 10.0.0.2:1 and x. {TWIN_CURE}"]})
    assert found.wrong and (found.cause, found.cure) == (
        "two machines are b: 10.0.0.2:1 and x", TWIN_CURE,
    )  # fmt: skip


def test_what_failed_inside_a_daemon_is_noted(home: Path) -> None:
    assert failures(home, {}) == failures(home, {"loop": {"failures": 0}}) == []
    said = "following elasticd.toml failed, and is begun again: LookupError: x"
    loop = {"node": "a", "failures": 1, "last_failure": said}
    (found,) = failures(home, {"loop": loop})
    assert found.cause == f"its daemon goes on, but a: failed inside once, last: {said}"
    assert not found.wrong and f"doctor --bundle FILE --home {home}" in found.cure


def test_a_mount_point_without_its_disk_is_told(ctl: Ctl, home: Path) -> None:
    (home / "checkpoints").mkdir(parents=True)
    note_of(home / "checkpoints").write_text("one\n")
    code, (found,) = examined(ctl, home)
    assert (code, found["path"], found["wrong"]) == (1, str(home / "checkpoints"), True)
    assert "another folder than it was" in found["cause"] and "Mount" in found["cure"]
