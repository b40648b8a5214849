"""job.toml: what is accepted, what is refused and with which words."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ConfigError
from elasticd.settings import job
from elasticd.settings.job import JobSpec
from elasticd.settings.toml_lines import key_lines

WRONG: dict[str, Any] = tomllib.loads(
    (Path(__file__).with_name("wrong_jobs.toml")).read_text(encoding="utf-8")
)
BASE: str = WRONG["base"]


def edited(edit: dict[str, str]) -> str:
    lines = BASE.splitlines()
    for number, line in edit.items():
        lines[int(number) - 1] = line
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "out.py").symlink_to("/etc/hosts")
    return tmp_path


def load(text: str, *overrides: str) -> JobSpec:
    Path("job.toml").write_text(text, encoding="utf-8")
    return job.load(Path("job.toml"), overrides)


@pytest.mark.parametrize("name", WRONG["case"])
def test_wrong_jobs_are_refused_by_file_line_and_key(name: str, folder: Path) -> None:
    case = WRONG["case"][name]
    with pytest.raises(ConfigError) as raised:
        load(edited(case.get("edit", {})), *case.get("set", ()))
    assert str(raised.value) == case["error"]
    assert raised.value.exit_code == 2


def test_there_are_enough_wrong_jobs() -> None:
    assert len(WRONG["case"]) >= 35


def test_defaults_are_those_of_the_interface(folder: Path) -> None:
    spec = load(
        '[job]\nname = "a"\nentrypoint = "train.py"\n'
        "[batch]\nglobal = 64\nmicro = 8\n[train]\nsteps = 200\n"
    )
    assert spec.to_dict() == {
        "job": {
            "name": "a",
            "entrypoint": "train.py",
            "mode": "elastic",
            "priority": 0,
            "files": [],
            "args": [],
            "python": "",
            "env": {},
        },
        "world": {
            "min": 1,
            "max": 0,
            "backend": "ring",
            "reduction": "exact",
            "require_exact": False,
        },
        "batch": {"global": 64, "micro": 8},
        "train": {"steps": 200, "seed": 0, "init_from": ""},
        "checkpoint": {
            "every_steps": 10,
            "replicas": 2,
            "keep": 3,
            "keep_every_steps": 0,
            "keep_hours": 0.0,
            "keep_best": "",
            "best": "lowest",
            "snapshot": "auto",
        },
        "recovery": {
            "spare": "script",
            "verify_every": 50,
            "recheck_every": 0,
            "on_nan": "stop",
            "on_divergence": "restore",
            "user_code_seconds": 600.0,
            "drop_slow": False,
        },
    }


def test_all_keys_are_read(folder: Path) -> None:
    spec = load(
        BASE.replace(
            "args = []", 'args = ["-x", "1"]\nenv = {A = "b"}\npython = "/usr/bin/python3"'
        )
        .replace("every_steps = 10", 'every_steps = "auto"\nreplicas = 1\nkeep = 9')
        .replace(
            'on_nan = "stop"',
            'on_nan = "skip"\nspare = "none"\nuser_code_seconds = 1\ndrop_slow = true'
            '\non_divergence = "continue"',
        )
    )
    assert spec.job.args == ("-x", "1")
    assert spec.job.env == {"A": "b"}
    assert spec.job.python == "/usr/bin/python3"
    assert spec.checkpoint.every_steps == "auto"
    assert spec.checkpoint.interval_steps == 10
    assert (spec.checkpoint.replicas, spec.checkpoint.keep) == (1, 9)
    assert (spec.recovery.on_nan, spec.recovery.spare) == ("skip", "none")
    assert spec.recovery.user_code_seconds == 1.0
    assert spec.recovery.drop_slow is True
    assert spec.recovery.on_divergence == "continue"


def test_a_byte_order_mark_and_dos_line_ends_are_accepted(folder: Path) -> None:
    assert load("\ufeff" + BASE.replace("\n", "\r\n")) == load(BASE)


def test_set_wins_over_the_file(folder: Path) -> None:
    spec = load(BASE, "batch.global=16", "job.name=small", "world = {min = 2}", "job.env.A='b c'")
    assert spec.batch.global_ == 16
    assert spec.job.name == "small"
    assert spec.world.min == 2
    assert spec.job.env == {"A": "b c"}


def test_set_makes_tables_that_the_file_lacks(folder: Path) -> None:
    text = BASE.replace("[recovery]\n", "").replace('on_nan = "stop"\n', "")
    assert load(text, "recovery.spare=none").recovery.spare == "none"


def test_the_entrypoint_may_be_a_link_that_stays_inside(folder: Path) -> None:
    (folder / "data" / "main.py").touch()
    (folder / "start.py").symlink_to("data/main.py")
    assert load(edited({"3": 'entrypoint = "start.py"'})).job.entrypoint == "start.py"


def test_a_missing_file(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^nope\.toml: no such file$"):
        job.load(Path("nope.toml"))


def test_a_folder_for_a_file(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data: is a folder, not a TOML file$"):
        job.load(Path("data"))


def test_a_file_that_is_not_text(folder: Path) -> None:
    Path("job.toml").write_bytes(b"[job]\nname = '\xff'\n")
    with pytest.raises(ConfigError, match=r"^job\.toml:2: is not UTF-8 text$"):
        job.load(Path("job.toml"))


def test_a_file_that_is_too_big(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^job\.toml: is larger than 1048576 bytes$"):
        load("#" * (1 << 20) + "\n")


def test_a_file_that_is_nested_too_deeply(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load("a = " + "[" * 100_000)


def test_a_number_with_too_many_digits(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^job\.toml: "):
        load("a = " + "1" * 10_000)


def test_text_that_ends_too_early_names_the_last_line(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^job\.toml:2: .* \(at end of document\)$"):
        load("[job]\nname =")


def test_specs_travel_as_msgpack(folder: Path) -> None:
    spec = load(BASE, "job.args=['a']", "job.env.A=b")
    wire = msgpack.packb(spec.to_dict())
    assert JobSpec.from_dict(msgpack.unpackb(wire)) == spec
    assert JobSpec.from_dict(msgpack.unpackb(wire, use_list=False)) == spec
    assert hash(spec) == hash(JobSpec.from_dict(spec.to_dict()))


def test_a_key_that_builds_of_before_refuse_is_said_only_where_it_says_something(
    folder: Path,
) -> None:
    assert "pass_env" not in load(BASE).to_dict()["job"]
    spec = load(BASE, "job.pass_env=['HF_TOKEN']")
    assert spec.to_dict()["job"]["pass_env"] == ["HF_TOKEN"]
    assert JobSpec.from_dict(spec.to_dict()) == spec


PLAIN = '[job]\nname = "p"\nentrypoint = "train.py"\nmode = "plain"\n'


def test_a_plain_job_needs_no_batch_and_no_steps(folder: Path) -> None:
    spec = load(PLAIN + "[world]\nmin = 2\n[checkpoint]\nreplicas = 3\n[plain]\nrestarts = 2\n")
    assert spec.plain is not None
    assert (spec.plain.restarts, spec.plain.hang_seconds) == (2, 300.0)
    assert (spec.world.min, spec.world.reduction, spec.checkpoint.replicas) == (2, "fast", 3)
    assert spec.checkpoint.interval_steps == 60, "30 s"
    assert JobSpec.from_dict(spec.to_dict()) == spec
    assert "keep" not in spec.to_dict()["plain"], "a daemon of the version before knows none"
    kept = load(PLAIN + '[plain]\nkeep = ["ckpt/*.npz"]\n')
    assert JobSpec.from_dict(kept.to_dict()) == kept and "keep_last" in kept.to_dict()["plain"]
    assert load(BASE).plain is None and "plain" not in load(BASE).to_dict()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[train]\nsteps = 3", '5: train: a job of mode = "plain" has no such table'),
        ("[recovery]\n", '5: recovery: a job of mode = "plain" has no such table'),
        ("[checkpoint]\nkeep = 3", "6: checkpoint.keep: means nothing in a job of mode"),
        ("[world]\nreduction = 'fast'", "6: world.reduction: means nothing in a job of mode"),
        ("[plain]\nhang_second = 1", "6: plain.hang_second: unknown key; did you mean"),
        (
            '[plain]\nkeep = ["/tmp/x"]',
            "6: plain.keep[0]: must name files below the working folder",
        ),
        ('[plain]\nkeep = ["a", "../x"]', "6: plain.keep[1]: must name files below"),
        ('[plain]\nkeep = ["a/**"]', "6: plain.keep[0]: ** stands for folders"),
        ("[plain]\nkeep_last = 0", "6: plain.keep_last: must be at least 1"),
        ("[plain]\nhang_seconds = 0", "6: plain.hang_seconds: must be more than 0"),
    ],
)
def test_what_means_nothing_in_a_plain_job_is_refused(folder: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=r"^job\.toml:") as raised:
        load(PLAIN + text)
    assert f"job.toml:{error}" in str(raised.value)


def test_a_received_spec_is_checked_like_a_file(folder: Path) -> None:
    data = load(BASE).to_dict()
    data["batch"]["micro"] = 0
    with pytest.raises(ConfigError, match=r"^batch\.micro: must be at least 1, not 0$"):
        JobSpec.from_dict(data)
    with pytest.raises(ConfigError, match=r"^batches: unknown table; did you mean \"batch\"\?$"):
        JobSpec.from_dict({"batches": {}})


def test_every_key_has_the_line_it_was_written_on() -> None:
    text = """\
a.b . c = 1 # [x]
'q"q' = "[no]\\" # = "
[ t . "u v" ]
k = [ [1, "]"], { z = 1 }, # }
  '''
w = 3''' ]
m = \"\"\"
[fake]
x = 1 \\\"\"\" y\"\"\"\"
d = 1979-05-27 07:32:00Z
[[t.list]]
last = {a = {b = 1}}
"""
    assert key_lines(text) == {
        ("a",): 1,
        ("a", "b"): 1,
        ("a", "b", "c"): 1,
        ('q"q',): 2,
        ("t",): 3,
        ("t", "u v"): 3,
        ("t", "u v", "k"): 4,
        ("t", "u v", "k", "[0]"): 4,
        ("t", "u v", "k", "[0]", "[0]"): 4,
        ("t", "u v", "k", "[0]", "[1]"): 4,
        ("t", "u v", "k", "[1]"): 4,
        ("t", "u v", "k", "[1]", "z"): 4,
        ("t", "u v", "k", "[2]"): 5,
        ("t", "u v", "m"): 7,
        ("t", "u v", "d"): 10,
        ("t", "list"): 11,
        ("t", "list", "last"): 12,
        ("t", "list", "last", "a"): 12,
        ("t", "list", "last", "a", "b"): 12,
    }
    tomllib.loads(text)


_keys = st.text("abc_-9", min_size=1, max_size=3)
_values = st.recursive(
    st.one_of(
        st.sampled_from(["1", "-0.5", "true", "1979-05-27", "'[a]'", '"#\\""', "'''\n]\n'''"]),
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[ {', '.join(items)}\n]"),
    max_leaves=4,
)


@given(st.lists(st.tuples(_keys, st.lists(st.tuples(_keys, _values), max_size=3)), max_size=4))
def test_the_scanner_finds_exactly_the_keys_that_tomllib_does(
    tables: list[tuple[str, list[tuple[str, str]]]],
) -> None:
    text = ""
    for name, pairs in dict(tables).items():
        text += f"[{name}]\n"
        text += "".join(f"{key} = {value} # c\n" for key, value in dict(pairs).items())
    parsed = tomllib.loads(text)
    lines = key_lines(text)
    named = {path for path in lines if not path[-1].startswith("[")}
    assert named == {(name,) for name in parsed} | {
        (name, key) for name, table in parsed.items() for key in table
    }
    rows = text.splitlines()
    for path in named:
        assert path[-1] in rows[lines[path] - 1]


def test_what_a_script_begins_with_is_found_wherever_it_works(folder: Path) -> None:
    spec = load(BASE)
    assert spec.read_in(folder) is spec
    for named_so, whole in (("w.safetensors", folder / "w.safetensors"), ("/w", Path("/w"))):
        named = replace(spec, train=replace(spec.train, init_from=named_so)).read_in(folder)
        assert named.train.init_from == str(whole)
