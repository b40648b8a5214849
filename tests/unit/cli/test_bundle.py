"""What ``elasticctl doctor --bundle`` packs, and what stays."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli import health
from elasticd.cli.bundle import MOST_LOG_BYTES, write_bundle
from elasticd.cli.keeper import KEEPER_LOG
from elasticd.cli.mac import choosing
from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.running import TrialResult
from elasticd.errors import OperationError
from elasticd.preflight.finding import ProbeFinding, failed, passed
from elasticd.shell.storage.health import examine
from elasticd.supervision.logs import RotatedLog
from tests.integration.otheraccount import need_root
from tests.noroom import no_room
from tests.unit.cli.test_machine import mac

Ctl = Callable[..., tuple[int, str, str]]

SECRETS = ("opens-the-page-3xk", "wandb-9f8e7d6c", "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49", "a" * 40)


def packed(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as file:
        found = {}
        for each in file:
            content = file.extractfile(each)
            assert content is not None
            found[each.name] = content.read()
        return found


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """A home with secrets, and logs that have them."""
    home = tmp_path / "home"
    (home / "cluster").mkdir(parents=True)
    home.chmod(0o700)
    (home / "dashboard.token").write_text(SECRETS[0])
    (home / "secrets.env").write_text(f"# mine\nWANDB={SECRETS[1]}\nSHORT=a\n")
    (home / "cluster" / "node.key").write_text(
        f"-----BEGIN PRIVATE KEY-----\n{SECRETS[2]}\n-----END PRIVATE KEY-----\n"
    )
    (home / "cluster" / "member.json").write_text(json.dumps({"name": "n", "secret": SECRETS[3]}))
    (home / "elasticd.toml").write_text('node_id = "n"\n')
    (home / "logs" / "a-1").mkdir(parents=True)
    (home / "logs" / "a-1" / "rank.log").write_text("printed by a script")
    failed = 'timestamp=T event=event kind=job_failed reason="failed: printed by a script"'
    log = "first\n" + "x" * MOST_LOG_BYTES + f"\n{failed}\na daemon said {' and '.join(SECRETS)}\n"
    (home / "daemon.log").write_text(log)
    return home


def test_a_bundle_has_logs_and_versions_and_no_secret(
    ctl: Ctl, lived: Path, tmp_path: Path
) -> None:
    path = tmp_path / "found.tar.gz"
    _, out, _ = ctl("doctor", "--home", lived, "--bundle", path)
    assert f"{path}: look into it" in out
    assert path.stat().st_mode & 0o777 == 0o600
    found = packed(path)
    assert set(found) == {"doctor.json", "versions.json", "home-0/files.txt", "home-0/daemon.log"}
    everything = b"".join(found.values())
    assert not [each for each in SECRETS if each.encode() in everything]
    assert b"printed by a script" not in everything
    log = found["home-0/daemon.log"]
    assert b"first" not in log and log.endswith(b"and [secret]\n")
    assert json.loads(found["versions.json"])["mlx"] != "-"
    assert json.loads(found["doctor.json"])["homes"][0]["home"] == str(lived)
    assert b"logs/ " in found["home-0/files.txt"]


@pytest.mark.parametrize("make", [os.symlink, os.link, lambda path, link: os.mkfifo(link)])
def test_root_packs_no_file_to_which_a_link_leads(
    lived: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    need_root()
    (tmp_path / "of-root").write_text("not for others\n")
    (lived / "daemon.log").unlink()
    make(tmp_path / "of-root", lived / "daemon.log")
    path = tmp_path / "found.tar.gz"
    write_bundle(path, [lived], {})
    assert "home-0/daemon.log" not in packed(path)


def test_nothing_is_written_over(ctl: Ctl, lived: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.tar.gz"
    path.write_text("mine")
    code, _, err = ctl("doctor", "--home", lived, "--bundle", path)
    assert code == 2 and "is there already" in err and path.read_text() == "mine"
    code, _, err = ctl("doctor", "--home", lived, "--bundle", tmp_path / "gone" / "b.tar.gz")
    assert code == 2 and "there is no folder" in err


@pytest.mark.parametrize(
    "secret", ['zq"QUOTED\\SEC', "pass-wört-é", "it's-\"both", "tab\tbed-secret"]
)
def test_a_secret_is_blotted_out_however_it_is_written(secret: str, tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text(f"KEY={secret}\n")
    written = [secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)]
    written += [json.dumps(each) for each in written]
    (tmp_path / "daemon.log").write_text("".join(f"said {each} here\n" for each in written))
    write_bundle(tmp_path / "b.tar.gz", [tmp_path], {"said": secret})
    found = packed(tmp_path / "b.tar.gz")
    lines = found["home-0/daemon.log"].decode().splitlines()
    shown = [line.translate({ord("\\"): None}).replace("'", '"') for line in lines]
    assert {line.replace('"', "") for line in shown} == {"said [secret] here"}
    assert json.loads(found["doctor.json"]) == {"said": "[secret]"}


def test_a_bundle_has_both_parts_of_what_a_keeper_said(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / KEEPER_LOG, 8, keep=1)
    (tmp_path / "node-0").mkdir()
    for said in ("older, and longer\n", "newer\n"):
        with log.path.open("a") as file:
            file.write(said)
        log.rotate()
    write_bundle(tmp_path / "b.tar.gz", [tmp_path / "node-0"], {})
    found = packed(tmp_path / "b.tar.gz")
    assert found["home-0/keeper.log"] == b"newer\n"
    assert b"longer" in found["home-0/keeper.log.1"]


def test_a_full_disk_leaves_no_part_of_a_bundle(tmp_path: Path) -> None:
    with no_room(64), pytest.raises(OperationError, match=r"b\.tar\.gz: "):
        write_bundle(tmp_path / "b.tar.gz", [], {"said": "x"})
    assert list(tmp_path.iterdir()) == []
    write_bundle(tmp_path / "b.tar.gz", [], {"said": "x"})
    assert [each.name for each in tmp_path.iterdir()] == ["b.tar.gz"]


def test_a_bundle_without_a_name_is_refused(ctl: Ctl, tmp_path: Path) -> None:
    code, _, err = ctl("doctor", "--home", tmp_path, "--bundle", "")
    assert code == 2 and "--bundle: names no file" in err
    code, _, err = ctl("doctor", "--mac", "--only", "", "--home", tmp_path)
    assert code == 2 and "--only '': there is no such probe; there are " in err


@pytest.mark.parametrize(("mode", "wrong"), [(0o755, 0), (0o644, 1), (None, 1)])
def test_a_notify_command_that_cannot_run_is_found(
    mode: int | None, wrong: int, tmp_path: Path
) -> None:
    home, program = tmp_path / "home", tmp_path / "tell-pass-w0rd"
    home.mkdir(0o700)
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    (home / "elasticd.toml").write_text(
        f'node_id = "n"\n[notify]\njob_failed = ["{program}"]\nparked = "https://a.invalid/"\n'
    )
    found = [f for f in examine(home, running=True, start="x") if "[notify]" in f.cause]
    assert len(found) == wrong
    for each in found:
        assert each.wrong and "job_failed" in each.cause and "notify --test" in each.cure
        assert "w0rd" not in f"{each.cause}{each.cure}"


def fakes(monkeypatch: pytest.MonkeyPatch, **findings: ProbeFinding) -> None:
    """Probes that find this, without a process."""
    probes = tuple(MacProbe(name, "tried", lambda folder: passed(""), 1.0, "") for name in findings)
    monkeypatch.setattr(choosing, "PROBES", probes)
    monkeypatch.setattr(
        health, "run_probe", lambda probe, disk: TrialResult(probe, findings[probe.name])
    )


def test_the_first_day_on_a_mac_ends_in_a_table_and_a_bundle(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes(monkeypatch, flush=passed("idle 17 ms"), ring=failed("rank 1 hangs", "See the firewall"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(health, "Machine", mac)
    code, out, _ = ctl("doctor", "--mac", "--home", tmp_path / "none")
    (bundle,) = tmp_path.glob("elasticd-doctor-*.tar.gz")
    assert code == 1 and out == (
        "this machine: nothing is wrong\npass  flush: tried\nfail  ring: tried\n\n"
        "PROBE  RESULT  VALUE\nflush  pass    idle 17 ms\nring   fail    rank 1 hangs\n\n"
        f"fail  ring: See the firewall.\n{bundle.name}: look into it, and send it with your"
        " question\n"
    )
    told = json.loads(packed(bundle)["doctor.json"])
    assert told["wrong"] == 1 and told["probes"][1]["cure"] == "See the firewall"


def test_what_probes_printed_is_packed_without_secrets(
    ctl: Ctl, lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes(monkeypatch, flush=passed("17 ms"), ring=failed("status 1", "Send the bundle"))
    said = {"flush": "", "ring": f"Traceback: libmlx\nsaid {SECRETS[1]}\n"}
    monkeypatch.setattr(
        health,
        "run_probe",
        lambda probe, disk: TrialResult(probe, passed("here"), said[probe.name]),
    )
    path = tmp_path / "b.tar.gz"
    ctl("doctor", "--mac", "--home", lived, "--bundle", path)
    found = packed(path)
    assert found["probes/ring.txt"] == b"Traceback: libmlx\nsaid [secret]\n"
    assert "probes/flush.txt" not in found


def test_one_probe_alone(ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(monkeypatch, flush=passed("idle 17 ms"), ring=failed("rank 1 hangs", "See"))
    home, path = tmp_path / "none", tmp_path / "b.tar.gz"
    here = ("--home", home, "--bundle", path)
    code, out, _ = ctl("doctor", "--mac", "--only", "flush", "--json", *here)
    told = json.loads(out)
    assert code == 0 and [each["name"] for each in told["probes"]] == ["flush"]
    assert told["bundle"] == str(path)
    code, _, err = ctl("doctor", "--mac", "--only", "flsh", "--home", home)
    assert code == 2 and "--only flsh: there is no such probe; there are flush, ring" in err
    code, _, err = ctl("doctor", "--only", "flush", "--home", home)
    assert code == 2 and "say --mac" in err
