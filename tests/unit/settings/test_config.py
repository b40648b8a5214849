"""elasticd.toml and the daemon's home."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elasticd.errors import ConfigError
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.keep import KeepRules
from elasticd.settings.places import default_home


def load(home: Path, text: str) -> NodeConfig:
    (home / "elasticd.toml").write_text(text)
    return config.load(home)


def test_everything_is_optional(tmp_path: Path) -> None:
    settings = config.load(tmp_path)
    assert settings == NodeConfig() == load(tmp_path, "")
    assert settings.listen == "127.0.0.1:7070"
    assert settings.addresses == ("127.0.0.1:7070",)
    assert settings.cluster == "local"
    assert settings.partition == "available"
    assert re.fullmatch("[A-Za-z0-9_-]{1,63}", settings.node_id)


def test_all_keys_are_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        'node_id = "mac-1"\ncluster = "lab"\nlisten = "0.0.0.0:7071"\n'
        'advertise = ["10.0.0.1:7071", "mac-1.local:7071"]\npeers = ["10.0.0.2:7071"]\n'
        'dashboard_port = 8051\npartition = "available"\n'
        'failure_domain = "desk"\nroles = ["train"]\n',
    )
    assert settings == NodeConfig(
        node_id="mac-1",
        cluster="lab",
        listen="0.0.0.0:7071",
        advertise=("10.0.0.1:7071", "mac-1.local:7071"),
        peers=("10.0.0.2:7071",),
        dashboard_port=8051,
        failure_domain="desk",
        roles=("train",),
    )
    assert settings.addresses == settings.advertise


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\nnodeid = 'a'", '2: nodeid: unknown key; did you mean "node_id"?'),
        ("roles = []", '1: roles: must have one of "train", "store", "witness" at least'),
        ('roles = ["store", "store"]', '1: roles: must have each role once, not "store" twice'),
        (
            'roles = ["idle"]',
            '1: roles[0]: must be "train", "store" or "witness", not "idle"',
        ),
        ("[peers]", "1: peers: must be an array, not a table"),
        ("[nodes]", '1: nodes: unknown table; did you mean "node_id"?'),
        ("node_id = ''", "1: node_id: must be 1 to 63 letters, digits, '.', '_' and '-', not \"\""),
        ("node_id = 7", '1: node_id: must be a string, not 7; write "7"'),
        ("listen = '127.0.0.1'", '1: listen: must be "host:port", not "127.0.0.1"'),
        ("listen = '127.0.0.1:0'", '1: listen: must be "host:port", not "127.0.0.1:0"'),
        ("listen = '127.0.0.1:65536'", '1: listen: must be "host:port", not "127.0.0.1:65536"'),
        ("listen = '[::1]:7070'", '1: listen: must be "host:port", not "[::1]:7070"'),
        ("listen = 'mac-2..local:1'", '1: listen: must be "host:port", not "mac-2..local:1"'),
        ("peers = ['.:1']", '1: peers[0]: must be "host:port", not ".:1"'),
        ("advertise = ['.a:1']", '1: advertise[0]: must be "host:port", not ".a:1"'),
        (
            "dashboard_host = 'a..'",
            '1: dashboard_host: must be a host name or an address, not "a.."',
        ),
        ("peers = 'a:1'", '1: peers: must be an array, not "a:1"'),
        ("peers = [\n'a:1',\n'b']", '3: peers[1]: must be "host:port", not "b"'),
        ("[notify]\nparkt = 'x'", '2: notify.parkt: unknown key; did you mean "parked"?'),
        ("dashboard_port = 65536", "1: dashboard_port: must be at most 65535, not 65536"),
        ("dashboard_port = true", "1: dashboard_port: must be a whole number, not true"),
        (
            "partition = 'strct'",
            '1: partition: must be "available" or "strict", not "strct"; did you mean "strict"?',
        ),
        ("a = 1\na = 2\n", "2: column 6: cannot overwrite a value"),
        ("[keep]\n[keep]\n", "2: column 6: cannot declare keep twice"),
    ],
)
def test_mistakes_are_named(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert str(raised.value) == f"{tmp_path}/elasticd.toml:{error}"


@pytest.mark.parametrize("host", ["mac-2.local", "mac-2.local.", "a" * 63, f"x.{'a' * 63}.", "_a-"])
def test_a_host_is_taken_that_can_be_looked_up(host: str) -> None:
    assert config.split_address(f"{host}:1") == (host, 1)
    host.encode("idna")


@pytest.mark.parametrize(
    "host", ["mac-2..local", ".local", "local..", ".", "", "a" * 64, f"{'a' * 64}.x"]
)
def test_one_that_nobody_can_look_up_is_not(host: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        config.split_address(f"{host}:1")


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path, tmp_path / "other.toml")


def test_what_is_dumped_is_read_back(tmp_path: Path) -> None:
    settings = NodeConfig(
        node_id="n" * 63,
        listen="127.0.0.1:1",
        peers=("127.0.0.1:2", "b:3"),
        advertise=("c:4",),
        dashboard_port=0,
    )
    assert load(tmp_path, config.dump(settings)) == settings


@pytest.mark.parametrize(
    ("environment", "platform", "home"),
    [
        ({"ELASTICD_HOME": "/x", "XDG_STATE_HOME": "/s"}, "linux", "/x"),
        ({"XDG_STATE_HOME": "/s"}, "linux", "/s/elasticd"),
        ({"XDG_STATE_HOME": "relative"}, "linux", "~/.local/state/elasticd"),
        ({}, "linux", "~/.local/state/elasticd"),
        ({}, "darwin", "~/Library/Application Support/elasticd"),
        ({"ELASTICD_HOME": "/x"}, "darwin", "/x"),
    ],
)
def test_the_default_home(environment: dict[str, str], platform: str, home: str) -> None:
    assert default_home(environment, platform) == Path(home).expanduser()


@pytest.mark.parametrize(
    "value", ["'ftp://T0KEN'", "'https://u:T0KEN@h'", "['T0KEN']", "[\n'/x',\n7]", "'/bin/T0KEN'"]
)
def test_what_may_be_a_secret_is_in_no_message(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"notify\.parked(\[1\])?: must be a command") as raised:
        load(tmp_path, f"[notify]\nparked = {value}")
    assert "T0KEN" not in str(raised.value)
    assert "without user:password@" in str(raised.value)


def test_whom_it_tells(tmp_path: Path) -> None:
    text = 'job_failed = ["/bin/x", "y"]\nparked = "https://h:1/p?q"\nnode_lost = "desktop"'
    settings = load(tmp_path, f"[notify]\n{text}")
    assert settings.notify.told == ("job_failed", "parked", "node_lost")
    assert settings.notify.job_failed == ("/bin/x", "y")
    assert load(tmp_path, "node_id = 'a'\n" + config.dump(settings).partition("\n")[2]).notify == (
        settings.notify
    )


def test_what_is_kept_of_ended_jobs(tmp_path: Path) -> None:
    settings = load(tmp_path, 'node_id = "a"\n[keep]\ndays = 3\nresults = false\n')
    assert settings.keep == KeepRules(days=3, results=False)
    assert load(tmp_path, config.dump(settings)) == settings


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[keep]\ndays = -1\n", "elasticd.toml:2: keep.days: must be"),
        ("[keep]\nresults = 1\n", "elasticd.toml:2: keep.results: must be true or false"),
        ("\n[keep]\nday = 1\n", "elasticd.toml:3: keep.day: unknown key"),
        ("keep = 1\n", "elasticd.toml:1: keep: must be a table, not 1"),
    ],
)
def test_mistakes_in_keep_are_named(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(error)):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("roles", "role"),
    [
        ("", "train"),
        ('["store", "train"]', "train"),
        ('["witness", "store"]', "store"),
        ('["witness"]', "witness"),
    ],
)
def test_the_most_that_a_node_does_is_its_role(tmp_path: Path, roles: str, role: str) -> None:
    settings = load(tmp_path, f"roles = {roles}\n" if roles else "")
    assert settings.role == role
    assert bool(settings.copied_bytes) == (role != "witness")
    (tmp_path / "again").mkdir()
    again = load(tmp_path / "again", config.dump(settings))
    assert again.roles == settings.roles
    assert ("roles" in config.dump(settings)) == bool(roles)
