"""elasticctl preflight JOB.toml: what a job.toml comes to, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import submit
from elasticd.cli.jobneeds import needs_of
from elasticd.core.words.codec import to_plain
from elasticd.preflight.needs import JobNeeds, NamedPath
from elasticd.settings.job import JobSpec
from tests.unit.cli.test_submit import BASE

Ctl = Callable[..., tuple[int, str, str]]
Daemon = Callable[..., Any]
REPORT = {"asked": "n1", "job": "lm", "time": 5.0, "wrong": 0, "checks": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("import numpy\nimport near\n")
    (folder / "near.py").write_text("import tokens\n")
    (folder / "job.toml").write_text(BASE)
    return folder


def needs(folder: Path, *settings: str) -> JobNeeds:
    return needs_of(*submit.prepare(folder / "job.toml", settings))


def test_of_a_script_modules_paths_and_places_are_named(folder: Path) -> None:
    found = needs(
        folder,
        'job.args=["--data=/data/x", "/out", "/", "a/b", "--n=3", "${ELASTICD_OUTPUT_DIR}/x"]',
        'job.env={ SECRET = "abc", WHERE = "/hidden", PYTHONPATH = "lib", LIST = "/a:/b" }',
        'job.pass_env=["TOKEN"]',
        'train.init_from="/base.safetensors"',
        "world.min=3",
    )
    assert found.modules == ("elasticd", "numpy", "tokens") and found.least == 3
    assert found.paths == (
        NamedPath("train.init_from", "/base.safetensors", read=True),
        NamedPath("job.args", "/data/x"),
        NamedPath("job.args", "/out"),
        NamedPath("job.env WHERE", "/hidden", secret=True),
    )
    assert found.env == {"PYTHONPATH": "lib"} and found.passed == ("TOKEN",)
    assert "abc" not in repr(found) and found.archive_bytes and not found.plain


def test_a_plain_script_needs_no_elasticd(folder: Path) -> None:
    plain = '[job]\nname = "old"\nentrypoint = "train.py"\nmode = "plain"\n'
    (folder / "job.toml").write_text(plain)
    found = needs(folder)
    assert found.plain and "elasticd" not in found.modules


def test_of_a_recipe_its_model_data_and_kind(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "train.jsonl").write_text("{}\n")
    (folder / "base").mkdir()
    (folder / "base" / "config.json").write_text("{}")
    (folder / "base" / "model.safetensors").write_bytes(bytes(1000))
    yaml = folder / "lora.yaml"
    yaml.write_text("model: base\nfine_tune_type: full\noptimizer: adamw\nnum_layers: 4\n")
    found = needs_of(*submit.prepare(yaml, ()))
    assert (found.model, found.model_bytes, found.tuned) == ("base", 1000, "full")
    assert (found.layers, found.moments, found.modules) == (4, 2, ("elasticd", "mlx_lm"))
    assert found.paths == ()
    yaml.write_text("model: /models/big\ndata: data\n")
    found = needs_of(*submit.prepare(yaml, ()))
    assert found.model_bytes == 0 and found.tuned == "lora"
    assert found.paths == (NamedPath("recipe.config.model", "/models/big", read=True),)


def test_the_daemon_is_asked_with_what_an_earlier_job_has_stored(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    name = needs(folder).name
    jobs = [{"id": f"{name}-{n}-aaaa", "name": name} for n in (9, 10, 8)]
    told: dict[str, list[dict[str, Any]]] = {
        f"{name}-10-aaaa": [{"kind": "job_submitted"}],
        f"{name}-9-aaaa": [{"kind": "checkpoint_committed", "bytes": n} for n in (5, 70)],
    }

    def events(request: dict[str, Any]) -> list[dict[str, Any]]:
        return [*told[request["job"]], {"end": True}]

    asked = daemon(
        home, {"status": {"jobs": jobs, "nodes": []}, "events": events, "preflight": REPORT}
    )
    code, out, _ = ctl("preflight", "job.toml", "--set", "world.min=2", "--home", home)
    assert code == 0 and "asked n1 about lm" in out
    (sent,) = [each for each in asked.requests if each["do"] == "preflight"]
    assert sent["job"]["state_bytes"] == 70 and sent["job"]["state_of"] == f"{name}-9-aaaa"
    assert sent["job"]["least"] == 2 and sent["job"].keys() == to_plain(JobNeeds("x")).keys()


def test_a_wrong_file_is_one_line_and_nobody_is_asked(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    asked = daemon(home, {"preflight": REPORT, "status": {"jobs": []}})
    for words, said in (
        (["job.toml", "--set", "world.mni=2"], "world.mni"),
        (["none.toml"], "none.toml"),
        (["job.toml", "--last"], "leave JOB.toml out"),
        (["--no-script", "--last"], "--last shows what was found, with its job: leave --no-script"),
        (["--set", "a=b", "--no-script", "--last"], "leave --set and --no-script out"),
        (["--no-script"], "--no-script is for a job's file: name that, too"),
        (["--set", "world.min=2"], "name that, too"),
    ):
        code, out, err = ctl("preflight", *words, "--home", home)
        assert (code, out) == (2, "") and said in err and err.count("\n") == 1, err
    assert asked.requests == []


def test_a_daemon_that_looks_at_no_job_is_said_to_be_of_an_earlier_version(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    old = {each: value for each, value in REPORT.items() if each != "job"}
    daemon(home, {"preflight": old, "status": {"jobs": []}})
    code, _, err = ctl("preflight", "job.toml", "--home", home)
    assert code == 1 and "looks at no job" in err


def test_its_files_are_sent_once_they_are_asked_for(
    ctl: Ctl, home: Path, daemon: Daemon, folder: Path
) -> None:
    asks = [{"doing": "taking in the files of lm", "send": True}, REPORT]
    asked = daemon(home, {"preflight": asks, "status": {"jobs": []}})
    assert ctl("preflight", "job.toml", "--home", home)[0] == 0
    spec, packed = submit.prepare(folder / "job.toml", ())
    (sent,) = [each for each in asked.requests if each["do"] == "preflight"]
    assert sent["script"]["archive_digest"] == packed.digest
    assert JobSpec.from_dict(sent["script"]["spec"]) == spec and asked.archives == [packed.data]


@pytest.mark.parametrize("plain", [False, True])
def test_no_script_is_offered_where_none_is_to_run(
    ctl: Ctl, home: Path, daemon: Daemon, folder: Path, plain: bool
) -> None:
    asked = daemon(home, {"preflight": REPORT, "status": {"jobs": []}})
    words = ["--no-script"]
    if plain:  # it makes no steps that anybody knows of
        words = []
        text = '[job]\nname = "lm"\nentrypoint = "train.py"\nmode = "plain"\n'
        (folder / "job.toml").write_text(text)
    assert ctl("preflight", "job.toml", *words, "--home", home)[0] == 0
    (sent,) = [each for each in asked.requests if each["do"] == "preflight"]
    assert sent.get("script") is None and sent["job"]["plain"] == plain
