"""elasticctl configure: elasticd.toml by flags, and by questions at a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from elasticd.cli.daemons import name as name_process
from elasticd.errors import UsageError
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import DAEMON_FILE, FILE_NAME, LOCAL_LOCK_NAME
from elasticd.shell.storage import founding, settingsfile
from elasticd.types import NodeId

Ctl = Callable[..., tuple[int, str, str]]


def settings(home: Path) -> NodeConfig:
    return config.load(home)


def test_flags_make_a_file_with_comments(ctl: Ctl, home: Path) -> None:
    code, out, err = ctl(
        "configure", "--home", home, "--node-id", "mac-1", "--advertise", "10.0.0.1:7070",
        "--advertise", "h:7", "--peer", "10.0.0.2:7070", "--set", "keep.days=9",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert 'node_id = "mac-1"' in out and "keep.days = 9" in out
    found = settings(home)
    assert (found.node_id, found.peers, found.keep.days) == ("mac-1", ("10.0.0.2:7070",), 9)
    assert found.advertise == ("10.0.0.1:7070", "h:7")
    text = (home / FILE_NAME).read_text()
    assert "# quota_bytes = 0\n" in text and "# This node's name in the cluster.\n" in text
    assert (home / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_roles_are_given_one_behind_the_other(ctl: Ctl, home: Path) -> None:
    assert ctl("configure", "--home", home, "--roles", "store,witness")[0] == 0
    assert (settings(home).roles, settings(home).role) == (("store", "witness"), "store")
    assert ctl("configure", "--home", home, "--default", "roles")[0] == 0
    assert settings(home).role == "train"


def test_what_somebody_wrote_stays(ctl: Ctl, home: Path) -> None:
    home.mkdir()
    before = "# mine\nnode_id = 'mac-1' # its label\n\n[keep]\ndays = 3 # short\nbytes = 5\n"
    (home / FILE_NAME).write_text(before)
    arguments = ("--set", "keep.days=4", "--default", "keep.bytes")
    assert ctl("configure", "--home", home, *arguments)[0] == 0
    assert (home / FILE_NAME).read_text() == before.replace("3", "4").replace("bytes = 5\n", "")
    code, out, _ = ctl("configure", "--home", home, "--set", "keep.days=4")
    assert code == 0 and "nothing has changed" in out


def test_what_may_be_a_secret_is_not_shown(ctl: Ctl, home: Path) -> None:
    url = "https://hooks.example/SECRET"
    for words in ((), ("--json",)):
        setting = f"notify.parked={url}{len(words)}"
        _, out, err = ctl("configure", "--home", home, "--set", setting, *words)
        assert "notify.parked" in out and "SECRET" not in out + err
    assert settings(home).notify.parked == f"{url}1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--node-id", "a/b"), "--node-id: must be"),
        (("--peer", "a:1", "--peer", "x"), '--peer: [1] must be "host:port"'),
        (("--set", "keep.dayz=3"), 'did you mean "keep.days"?'),
        (("--set", "keep=3"), '"keep" is no key'),
        (("--set", "keep.days.x=3"), "--set keep.days.x=3: "),
        (("--set", "quota_bytes=-1"), "--set quota_bytes=-1: must be at least 0"),
        (("--set", "quota_bytes"), "must be table.key=value"),
        (("--set", "notify.parked=SECRET"), "--set notify.parked=…: must be a command"),
        (("--set", "notify.parked=[SECRET"), "--set notify.parked=…"),
        (("--default", "lisen"), 'did you mean "listen"?'),
        (("--advertise", "0.0.0.0:7070"), "others can't connect to 0.0.0.0:7070"),
        (("--partition", "both"), '--partition: must be "available" or "strict"'),
        (("--roles", "idle"), '--roles: [0] must be "train", "store" or "witness"'),
        (("--roles", "store,store"), '--roles: must have each role once, not "store" twice'),
        (("--set", "roles=[]"), 'must have one of "train", "store", "witness" at least'),
        ((), "say what to change"),
    ],
)
def test_bad_input_changes_nothing(
    ctl: Ctl, home: Path, arguments: tuple[str, ...], said: str
) -> None:
    also = ("--set", "keep.days=1") if arguments else ()
    code, _, err = ctl("configure", "--home", home, *also, *arguments)
    assert code == 2 and said in err and err.count("\n") == 1, err
    assert "SECRET" not in err
    assert not home.exists()


def test_a_wrong_file_is_named_and_stays(ctl: Ctl, home: Path) -> None:
    home.mkdir()
    (home / FILE_NAME).write_text("\nlisten = 5\n")
    code, _, err = ctl("configure", "--home", home, "--set", "keep.days=1")
    assert code == 2 and f"{home / FILE_NAME}:2" in err and "listen" in err
    assert (home / FILE_NAME).read_text() == "\nlisten = 5\n"


def test_a_member_keeps_its_name(ctl: Ctl, home: Path) -> None:
    home.mkdir(mode=0o700)
    founding.found(home, NodeId("mac-1"))
    code, _, err = ctl("configure", "--home", home, "--node-id", "mac-2")
    assert code == 2 and "'mac-1'" in err and not (home / FILE_NAME).exists()
    assert ctl("configure", "--home", home, "--node-id", "mac-1")[0] == 0


def test_what_a_running_daemon_takes_later_is_said(ctl: Ctl, home: Path) -> None:
    home.mkdir(mode=0o700)
    name_process(home / DAEMON_FILE, psutil.Process())
    arguments = ("configure", "--home", home, "--listen", "h:1", "--set", "keep.days=9")
    code, out, err = ctl(*arguments)
    assert code == 0 and "keep.days = 9" in out
    assert err.startswith("listen: holds when its daemon is started again") and str(home) in err
    code, out, _ = ctl("configure", "--home", home, "--json", "--partition", "strict")
    told = json.loads(out)
    assert (code, told["changed"], told["restart"]) == (0, {"partition": "strict"}, ["partition"])


def test_of_a_local_clusters_node_the_commands_that_are_named_fit(ctl: Ctl, home: Path) -> None:
    node = home / "node-0"
    node.mkdir(parents=True)
    (home / LOCAL_LOCK_NAME).touch()
    code, _, err = ctl("configure", "--home", home, "--set", "keep.days=9")
    assert code == 2 and f"a node's own home is {node}" in err
    name_process(node / DAEMON_FILE, psutil.Process())
    code, _, err = ctl("configure", "--home", node, "--partition", "strict")
    assert code == 0 and f"'elasticctl service restart --home {node}'" in err
    assert f"'elasticctl local up --partition strict --home {home}'" in err
    founding.found(node, NodeId("node-0"))
    _, _, err = ctl("configure", "--home", node, "--node-id", "x")
    assert "a local cluster's node stays in it" in err


def at_a_terminal(home: Path, *answers: bytes) -> tuple[int, str]:
    """The command's exit code, and all that is on its screen. Each answer is typed when it is asked
    for."""
    pid, screen = pty.fork()
    if not pid:
        program = "from elasticd.cli import main; import sys; sys.exit(main())"
        command = [sys.executable, "-c", program, "configure", "--home", str(home)]
        os.execv(sys.executable, command)
    shown, left = b"", list(answers)
    with contextlib.suppress(OSError):  # Linux: its end
        while piece := os.read(screen, 4096):
            shown += piece
            if shown.endswith(b"]: ") and left:
                os.write(screen, left.pop(0))
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.process
def test_questions(home: Path) -> None:
    said = ("mac 1", "mac-1", "", "both", "strict", "", "-3", "1_000", "9", "")
    code, shown = at_a_terminal(home, *(f"{each}\n".encode() for each in said))
    assert code == 0, shown
    found = settings(home)
    assert (found.node_id, found.partition, found.quota_bytes) == ("mac-1", "strict", 1000)
    assert found.keep.days == 9 and found.listen == NodeConfig().listen
    assert "node_id [" in shown and "must be" in shown
    again, shown = at_a_terminal(home, *[b"\n"] * 7)
    assert again == 0 and "nothing has changed" in shown and settings(home) == found


@pytest.mark.process
def test_who_breaks_off_changes_nothing(home: Path) -> None:
    """Ctrl-D. (A Ctrl-C that comes just between a prompt and Python's wait for a key is only seen
    with the next key, so it is not tried here.)"""
    code, shown = at_a_terminal(home, b"mac-1\n", b"\n", b"\x04")
    assert code == 2, shown
    assert not home.exists() and "Traceback" not in shown


def test_settings_that_are_no_file_stay_what_they_are(home: Path) -> None:
    """A link to a device, say, which masks them."""
    home.mkdir()
    os.mkfifo(home / "pipe")
    (home / FILE_NAME).symlink_to("pipe")
    with pytest.raises(UsageError, match=f"{FILE_NAME}: is a pipe"):
        settingsfile.change(home, {"listen": "127.0.0.1:7070"})
    assert (home / "pipe").is_fifo() and (home / FILE_NAME).is_symlink()
