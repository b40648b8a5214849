"""``elasticctl report`` against a fake daemon: what is asked, where the file goes, what it says."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.report import write_page
from elasticd.core.jobs.status import job_settings
from elasticd.core.words.records import JobRecord
from elasticd.errors import UsageError
from elasticd.settings.job import JobSpec
from elasticd.types import JobId
from tests.integration.otheraccount import need_root
from tests.nofile import SORTS, no_file

from .test_commands import PROGRAM, Ctl, Daemon
from .test_report_pages import COURSE

JOB = "byte-lm-1-k3f9"
HEAD = {"node": "node-0", "main": "node-0", "copy": False, "bytes": 9, "files": 1}


@pytest.fixture
def answers(status: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    log = tmp_path / "taken.csv"
    log.write_text("1,0.5\n2,0.25\n")
    settings = {"job": {"name": "byte-lm", "env": ["TOKEN"]}}
    row = {"step": 120, "lineage": "ab", "bytes": 2048, "shards": 1, "replicas": 2,
           "consistent": True, "created": 5.0, "holders": ["node-0"], "digest": "ab12"}  # fmt: skip
    return {
        "status": {**status, "jobs": [{**status["jobs"][0], "settings": settings}]},
        "events": [*COURSE, {"end": True}],
        "checkpoints": {"job": JOB, "checkpoints": [row], "silent": {"node-1": "it is away"}},
        "outputs": [
            HEAD,
            {"name": "losses.csv", "bytes": 14, "path": str(log)},
            {"name": "gone.csv", "bytes": 14, "path": None},
            {"end": True},
        ],
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_file_is_named_after_the_job(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    fake = daemon(home, answers)
    assert ctl("report", "byte", "--home", home) == (0, f"{here / JOB}.html\n", "")
    text = (here / f"{JOB}.html").read_text()
    assert "losses.csv: second column" in text and "it is away" in text and "signal 9" in text
    assert "&quot;TOKEN&quot;" in text or '"TOKEN"' in text
    asked = {request["do"]: request for request in fake.requests}
    assert asked["status"] == {"do": "status", "job": "byte", "parts": True, "settings": True}
    assert {asked[do]["job"] for do in ("events", "checkpoints", "outputs")} == {JOB}
    assert os.listdir(here) == [f"{JOB}.html"]


def test_root_reads_no_file_of_another_account_than_the_daemons(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    need_root()
    daemon(home, answers).pose()
    assert ctl("report", "byte", "--home", home)[0] == 0
    text = (here / f"{JOB}.html").read_text()
    assert "losses.csv: second column" not in text and "names this file of another" in text


def test_what_daemons_kept_of_the_loss_and_of_steps(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    rank = {"rank": 0, "node": "node-0", "seconds": {"compute": 0.1234, "waiting": 0.25}}
    kept = {"losses": [[1, 4.0], [5, 2.5], ["x", 1], [7]], "ranks": [rank, 7]}
    daemon(home, answers | {"losses": kept})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    text = (here / f"{JOB}.md").read_text()
    assert "as the daemon kept it" in text and "from 4 (step 1) to 2.5 (step 5)" in text
    assert "What a step was made of" in text and "0.1234" in text and "0.3734" in text


def test_what_the_script_told_is_there_though_no_curve_can_be_drawn(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    nan, late = float("nan"), {"step": 9, "value": 0.75}
    job = answers["status"]["jobs"][0]
    last = {"final": late, "a\nb": late, "none": {"step": 9, "value": nan}, "drawn": late}
    status = {**answers["status"], "jobs": [{**job, "values": last}]}
    curves = {"final": [[9, 0.75]], "none": [[8, nan], [9, nan]], "drawn": [[8, 0.5], [9, 0.75]]}
    daemon(home, answers | {"status": status, "losses": {"losses": [], "values": curves}})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    text = (here / f"{JOB}.md").read_text()
    assert "drawn: from 0.5 (step 8) to 0.75" in text and "| drawn |" not in text
    assert "| final | 0.75 | 9 |" in text and "| none | nan | 9 |" in text
    assert "| a\\\\nb | 0.75 | 9 |" in text


def test_markdown_and_json(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    daemon(home, answers)
    code, out, _ = ctl("report", JOB, "--markdown", "--json", "--home", home)
    assert (code, json.loads(out)) == (0, {"file": f"{here / JOB}.md"})
    assert (here / f"{JOB}.md").read_text().startswith(f"# Job {JOB}\n")


@pytest.mark.parametrize("given", [[], ["--out", "x.html"], ["--out", "."]])
def test_no_file_is_overwritten_unasked(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path, given: list[str]
) -> None:
    there = here / ("x.html" if "x.html" in given else f"{JOB}.html")
    there.write_text("mine")
    daemon(home, answers)
    code, _, err = ctl("report", JOB, *given, "--home", home)
    assert code == 2 and f"{there}: is there already" in err and there.read_text() == "mine"
    code, out, _ = ctl("report", JOB, *given, "--overwrite", "--home", home)
    assert (code, out) == (0, f"{there}\n") and "<!DOCTYPE html>" in there.read_text()
    assert os.listdir(here) == [there.name]


def test_a_link_to_nowhere_is_somebodys_too(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    (here / "x.html").symlink_to("nowhere")
    fake = daemon(home, answers)
    assert ctl("report", JOB, "--out", "x.html", "--home", home)[0] == 2
    assert fake.requests == []


def test_a_file_that_comes_meanwhile_stays(here: Path) -> None:
    """Between the last look and the writing."""
    there = here / "x.html"
    there.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        write_page(there, b"ours", overwrite=False)
    assert there.read_text() == "mine" and os.listdir(here) == ["x.html"]
    write_page(there, b"ours", overwrite=True)
    assert there.read_text() == "ours" and os.listdir(here) == ["x.html"]


@pytest.mark.parametrize("sort", SORTS)
def test_what_is_no_file_is_not_replaced(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path, sort: str
) -> None:
    fake = daemon(home, answers)
    with no_file(here / "x.html", sort) as unchanged:
        code, out, err = ctl("report", JOB, "--out", "x.html", "--overwrite", "--home", home)
        assert (code, out, fake.requests) == (2, "", []) and SORTS[sort] in err
        with pytest.raises(UsageError, match=SORTS[sort]):  # it has come meanwhile
            write_page(here / "x.html", b"ours", overwrite=True)
        assert err.count("\n") == 1 and unchanged()


def test_a_link_to_a_file_stays_one(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    there = tmp_path / "elsewhere" / "old.html"
    there.write_text("old")
    (here / "x.html").symlink_to(there)
    write_page(here / "x.html", b"ours", overwrite=True)
    assert (here / "x.html").is_symlink() and there.read_text() == "ours"
    assert os.listdir(here) == ["x.html"] and os.listdir(there.parent) == ["old.html"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that takes no files")
def test_the_file_that_was_named_is_what_can_not_be_written() -> None:
    with pytest.raises(OSError) as raised:
        write_page(Path("/proc/self/x.html"), b"ours", overwrite=False)
    assert raised.value.filename == "/proc/self/x.html"


def test_a_folder_that_is_missing_is_named(ctl: Ctl, home: Path, here: Path) -> None:
    code, out, err = ctl("report", JOB, "--out", "no/x.html", "--home", home)
    assert (code, out) == (2, "") and f"{here / 'no'}: there is no such folder" in err


@pytest.mark.parametrize("lost", ["checkpoints", "outputs"])
def test_what_can_not_be_had_is_named(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path, lost: str
) -> None:
    daemon(home, {**answers, lost: {"error": "no node has them", "code": 1}})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    assert "no node has them" in (here / f"{JOB}.md").read_text()


def test_large_outputs_are_not_brought_for_a_curve(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    daemon(home, {**answers, "outputs": [{**HEAD, "bytes": 1 << 40}, {"name": "never"}]})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    assert f"these are {1 << 40} bytes" in (here / f"{JOB}.md").read_text()


RECIPE = {
    "kind": "mlx-lm",
    "config": {"model": "/m", "iters": 9, "lora_parameters": {"rank": 4, "scale": 8.0}},
}


@pytest.mark.parametrize("name", ["../x", "a/b", ""])
def test_an_id_that_names_a_path_is_refused(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path, name: str
) -> None:
    daemon(home, {**answers, "status": {"nodes": [], "jobs": [{"id": name}]}})
    code, out, err = ctl("report", "x", "--home", home)
    assert code == 1 and not out and err.count("\n") == 1 and not os.listdir(here)


def test_no_value_of_a_variable_is_told() -> None:
    said = {
        "job": {"name": "j", "entrypoint": "x.py", "env": {"TOKEN": "sesame", "A": "b"}},
        "batch": {"global": 8, "micro": 8},
        "train": {"steps": 1},
    }
    spec = JobSpec.from_dict(said)
    record = JobRecord(JobId("j"), 1, spec.to_dict(), "digest", "queued")
    told = job_settings(record)
    assert told["job"]["env"] == ["A", "TOKEN"] and "sesame" not in repr(told)
    assert told["train"] == spec.to_dict()["train"] and "pass_env" not in told["job"]
    passed = job_settings(replace(record, passed=("HF_TOKEN",)))
    assert passed["job"]["pass_env"] == ["HF_TOKEN"]


def test_a_recipe_is_told_instead_of_a_script(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    spec = JobSpec.from_dict({"job": {"name": "j"}, "recipe": RECIPE}).to_dict()
    spec["job"]["entrypoint"] = "stands for it"
    recipe = json.dumps(spec.pop("recipe"))
    record = JobRecord(JobId("j"), 1, spec, "digest", "queued", recipe=recipe)
    told = job_settings(record)
    assert "entrypoint" not in told["job"] and told["recipe"]["config"]["model"] == "/m"
    assert "recipe" not in job_settings(replace(record, recipe="{"))
    job = {**answers["status"]["jobs"][0], "settings": told}
    daemon(home, {**answers, "status": {**answers["status"], "jobs": [job]}})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    (written,) = here.iterdir()
    text = written.read_text()
    assert "[recipe.config]" in text and 'model = "/m"' in text and "stands for it" not in text
    assert "[recipe.config.lora_parameters]" in text and "rank = 4" in text


@pytest.mark.process
def test_report_as_a_process(
    home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    daemon(home, answers)

    def run(*given: str) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, "report", JOB, "--home", str(home), *given]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    done = run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"file": f"{here / JOB}.html"}
    wrong = run()
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1 and "is there already" in wrong.stderr
    assert run("--nope").returncode == 2 and sys.executable in PROGRAM


SETTINGS: Mapping[str, Any] = {
    "job": {"name": "mine", "mode": "plain"},
    "world": {"min": 2, "reduction": "fast"},
    "batch": {"global": 1, "micro": 1},
    "train": {"steps": 2**53},
    "checkpoint": {"every_steps": 60, "replicas": 2},
    "recovery": {"spare": "script", "verify_every": 0},
    "plain": {"restarts": 8},
}
"""Of a plain job, as a daemon tells them: what its job.toml may say, and what it can't."""


def test_the_report_of_a_plain_job_tells_nothing_of_steps(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], here: Path
) -> None:
    job = {**answers["status"]["jobs"][0], "mode": "plain", "step": 0, "steps": 0, "restarts": 2}
    job |= {"loss": None, "exact": None, "digest": None, "digest_step": None}
    job["settings"] = SETTINGS
    answers["status"] = {**answers["status"], "jobs": [job]}
    kept = {"losses": [[1, 0.0], [5, 0.0]], "ranks": [{"rank": 0, "seconds": {"compute": 1.0}}]}
    answers["outputs"] = [HEAD, {"end": True}]
    daemon(home, answers | {"losses": kept})
    assert ctl("report", JOB, "--markdown", "--home", home)[0] == 0
    text = (here / f"{JOB}.md").read_text()
    for told in (
        "Goodput",
        "goodput",
        "made of",
        "## Curves",
        "## Checkpoints",
        "lost steps",
        "0 of 0",
        "[batch]",
        "[train]",
        "[recovery]",
        "every_steps",
        "reduction",
    ):
        assert told not in text, told
    said = " ".join(text.split())
    assert "[world] min = 2 [checkpoint] replicas = 2 [plain] restarts = 8" in said
    assert "2 times" in text and "It had its turn for" in text and "only its script knows" in text


@pytest.mark.parametrize(
    "command",
    [
        ["report", JOB, "--out", "-"],
        ["outputs", JOB, "--out", "-"],
        ["checkpoints", "export", JOB, "--out", "-"],
        ["doctor", "--bundle", "-"],
    ],
)
def test_no_file_is_named_as_others_name_stdout(
    ctl: Ctl, home: Path, tmp_path: Path, command: list[str]
) -> None:
    with contextlib.chdir(tmp_path):
        code, _, err = ctl(*command, "--home", home)
    assert code == 2 and "nothing is written to stdout" in err
    assert not (tmp_path / "-").exists()
