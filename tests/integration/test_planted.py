"""Secrets are planted in a cluster of one machine whose umask is 000. Nothing that people share has
one in it, other accounts get at nothing, ranks have what they are to have, and who submitted what
is known."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from elasticd.cli.submit import prepare
from elasticd.settings import places
from elasticd.settings.notify import NotifyRules
from elasticd.shell.children.environment import OF_ITS_PYTHON, PASSED_ON
from elasticd.shell.children.ownvariables import FILE_NAME
from tests.integration.cluster import ENDED, Cluster, everything
from tests.integration.otheraccount import NAME, as_other, need_root, tried
from tests.integration.whatisshown import shown

pytestmark = pytest.mark.process

NODES = 2
LOOSE_INSIDE = {"work", "clones", "jobs", "cache"}
"""Folders of a home in which files have the modes that the job's owner (or MLX) has given them."""
OF_THE_SHELL = "planted-in-the-shell-Ahx7"
ASKED_OF_IT = "planted-and-asked-Bk2w"
OF_THE_FILE = "planted-in-the-file-Cq9z"
UNASKED = "planted-unasked-Dd4m"
OF_THE_JOB = "planted-in-the-job-Eg8t"
REFUSED = "planted-and-refused-Fr6y"
OF_THE_HOOK = "planted-in-the-hook-Gt3v"
NUMBER = "4071358269"
PLANTED = {
    "AWS_SECRET_ACCESS_KEY": OF_THE_SHELL, "MLX_HOSTFILE": OF_THE_SHELL, "ASKED": ASKED_OF_IT,
    "PYTHONWARNINGS": "ignore", "LC_MEASUREMENT": "C", "TZ": "UTC",
}  # fmt: skip
SET_BY_US = {
    "TMPDIR",
    "PYTHONUNBUFFERED",
    "PYTHONHASHSEED",
    "ELASTICD_CACHE_DIR",
    "ELASTICD_CHILD",
    "ELASTICD_RERUNS",
}
SCRIPT = """
import json, os
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import elasticd

data = [(x, x.sum(keepdims=True)) for x in mx.random.normal((64, 4))]
run = elasticd.Run(
    model=nn.Linear(4, 1), optimizer=optim.SGD(0.01), data=data,
    loss=lambda model, x, y: nn.losses.mse_loss(model(x), y),
)
(run.output_dir / "environment.json").write_text(json.dumps(dict(os.environ)))
for step in run:
    pass
"""
JOB = """
[job]
name = "planted"
entrypoint = "train.py"
env = {{ GIVEN = "{given}", PYTHONPATH = "beside" }}
pass_env = ["FROM_FILE", "ASKED"]
[batch]
global = 8
micro = 4
[train]
steps = 12
[checkpoint]
every_steps = 4
[track]
tensorboard = true
"""
TELLER = """
import os, sys
with open(sys.argv[1], "a") as file:
    print(sys.stdin.read(), dict(os.environ), file=file)
print(sys.argv[2])
"""


class Planted(Cluster):
    """Its shell knows secrets."""

    by_command = True

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **PLANTED}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can reach. The umask is 000 meanwhile."""
    before = os.umask(0)
    with tempfile.TemporaryDirectory(prefix="elasticd-planted-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            yield folder
        finally:
            os.umask(before)


@pytest.fixture
def cluster(open_folder: Path, kernels: Path) -> Iterator[Cluster]:
    made = Planted(open_folder, NODES, kernels)
    made.temporary.chmod(0o700)
    made.home.mkdir(mode=0o755)
    for node in made.nodes:
        path = made.home / node / FILE_NAME
        path.parent.mkdir(mode=0o755)
        path.write_text(f"FROM_FILE={OF_THE_FILE}\nNEVER={UNASKED}\n")
        path.chmod(0o600)
        hook = (sys.executable, "-c", TELLER, str(made.home / "told"), OF_THE_HOOK)
        made.configure(node, notify=NotifyRules(job_finished=hook))
        (made.home / node / places.FILE_NAME).chmod(0o600)
    with made:
        for node in made.nodes:  # laid there for the daemon, which makes its own so
            (made.home / node / "cache").chmod(0o700)
        yield made


def write_job(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def keys_of(home: Path) -> list[str]:
    """What the nodes have to keep to themselves, in pieces that are shown if any of it is."""
    found: list[str] = []
    for node in sorted(home.glob("node-*")):
        for path in (node / "cluster").glob("*.key"):
            found += [line for line in path.read_text().splitlines() if len(line) == 64]
        secret = json.loads((node / "cluster" / "member.json").read_text())["secret"]
        found.append(str(secret))
    return found


def test_secrets_stay_where_they_were_planted(cluster: Cluster, open_folder: Path) -> None:
    jobs = open_folder / "jobs"
    told: dict[str, str] = {}

    def tell(name: str, *words: str | Path) -> None:
        done = cluster.run(*words)
        told[name] = done.stdout + done.stderr

    # Refused jobs: by the command, and in the folder.
    good = write_job(jobs / "good", JOB.format(given=OF_THE_JOB))
    for number, wrong in enumerate(
        (f"job.env.A={NUMBER}", f"job.env=[{NUMBER}]", f"job.env.A=[{REFUSED}")
    ):
        tell(f"refused {number}", "submit", good, "--set", wrong)
    bad = JOB.format(given=REFUSED).replace("GIVEN", "TMPDIR")
    folder = cluster.home / "node-0" / "jobs"
    write_job(jobs / "bad", bad).parent.rename(folder / "bad")
    refusal = folder / "bad.refused"
    cluster.wait_for("a refusal", refusal.exists)
    told["refusal"] = refusal.read_text()

    # One that another account has laid there, and one by the command.
    laid = write_job(jobs / "laid", JOB.format(given=OF_THE_JOB).replace('"planted"', '"laid"'))
    other = NAME if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    os.chown(laid, pwd.getpwnam(other).pw_uid, -1)
    laid.parent.rename(folder / "laid")
    cluster.wait_for("its id", (folder / "laid.submitted").exists)
    second = (folder / "laid.submitted").read_text().strip()
    job = cluster.client.submit(*prepare(good, []))
    argv = list[str]()

    def all_processes() -> bool:
        pids = [one.pid for node in cluster.nodes for one in cluster.processes(node)]
        for pid in pids:
            with contextlib.suppress(psutil.Error):  # it has just ended
                argv.extend(psutil.Process(pid).cmdline())
        return len(pids) > NODES or cluster.status(job)["state"] in ENDED

    cluster.wait_for("ranks", all_processes)
    for each in (job, second):
        cluster.wait_end(each)
    told["argv"] = " ".join(argv)

    for name in ("status", "jobs", "nodes", "events", "disk"):
        tell(f"{name} --json", name, "--json")
    for name in ("status", "events", "logs"):
        tell(f"{name} JOB", name, job)
    tell("checkpoints", "checkpoints", "list", job)
    told |= shown(cluster, job, open_folder / "shown")
    _a_hook_learns_nothing_else(cluster, told)
    home = cluster.home / "node-0"
    tell("doctor", "doctor", "--home", home)
    tell("service", "service", "install", "--dry-run", "--home", home)
    tell("token", "cluster", "token", "--home", home)
    token = told["token"].split()[0]
    tell("join", "cluster", "join", token[:-4] + "AAAA", "--home", open_folder / "new")
    tell("list", "cluster", "list", "--home", home)
    for path in [*cluster.home.glob("*/daemon.log*"), *cluster.home.glob("*/logs/reducer.log")]:
        told[str(path)] = path.read_text()
    # Those of the homes, and what the bundle has of them.
    assert len([name for name in told if "daemon.log" in name]) == 2 * NODES
    _told_nothing(told, [*_all_planted(), *keys_of(cluster.home)])
    del told["token"]
    _told_nothing(told, [token, token[-20:-4]])

    _ranks_have_what_they_are_to_have(cluster, job)
    _who_submitted_is_known(cluster, job, second, other)
    _others_get_at_nothing(cluster)


def _all_planted() -> list[str]:
    ours = [OF_THE_SHELL, ASKED_OF_IT, OF_THE_FILE, UNASKED, OF_THE_JOB, REFUSED, NUMBER]
    return [*ours, OF_THE_HOOK]


def _a_hook_learns_nothing_else(cluster: Cluster, told: dict[str, str]) -> None:
    """What a command of [notify] is told, in its input and its environment; and a [notify] that
    is refused."""
    by_hook = cluster.home / "told"
    cluster.wait_for("it is told", lambda: len(cluster.kinds(None, "notified")) == 2)
    told["the command of [notify]"] = by_hook.read_text()
    assert "ELASTICD_TEXT" in told["the command of [notify]"]
    by_hook.unlink()
    wrong = cluster.home / "node-1" / places.FILE_NAME
    text = wrong.read_text()
    wrong.write_text(f"{text}\nparked = '{REFUSED}'\n")
    assert "[notify]" in text

    def refused() -> bool:
        nodes = json.loads(cluster.command("notify", "--json"))["nodes"]
        return bool(nodes[1]["settings_refused"])

    cluster.wait_for("the file is refused", refused)
    for name in ("notify", "status", "events"):
        done = cluster.run(name, "--json")
        told[f"{name} of a file that is refused"] = done.stdout + done.stderr
    told["notify of it"] = cluster.command("notify")
    assert "notify.parked" in told["notify of it"]
    wrong.write_text(text)
    cluster.wait_for("it is taken again", lambda: not refused())


def _told_nothing(told: dict[str, str], secrets: list[str]) -> None:
    leaks = {name: each for name, text in told.items() for each in secrets if each in text}
    assert not leaks, leaks


def _ranks_have_what_they_are_to_have(cluster: Cluster, job: str) -> None:
    daemons = {*os.environ, *PLANTED}
    expected = {name for name in (*PASSED_ON, *OF_ITS_PYTHON) if name in daemons}
    expected |= {name for name in daemons if name.startswith("LC_")}
    expected |= {"GIVEN", "PYTHONPATH", "FROM_FILE", "ASKED", *SET_BY_US}
    found = list(cluster.home.glob(f"*/output/{job}/environment.json"))
    ranks = {node for e in cluster.kinds(job, "world_formed") for node in e["members"]}
    assert ranks and ranks <= {path.relative_to(cluster.home).parts[0] for path in found}
    for path in found:
        variables = json.loads(path.read_text())
        # What Python itself sets in a C locale.
        assert variables.keys() - {"LC_CTYPE"} == expected - {"LC_CTYPE"}
        assert variables["FROM_FILE"] == OF_THE_FILE and variables["ASKED"] == ASKED_OF_IT
        assert variables["GIVEN"] == OF_THE_JOB and variables["TZ"] == "UTC"
        assert variables["PYTHONPATH"].startswith("beside")
        assert UNASKED not in path.read_text() and OF_THE_SHELL not in path.read_text()


def _who_submitted_is_known(cluster: Cluster, job: str, second: str, other: str) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    expected = {job: me, second: other}
    for node in cluster.nodes:
        listed = json.loads(cluster.command("jobs", "--json", "--home", cluster.home / node))[
            "jobs"
        ]
        assert {each["id"]: each["submitted_by"] for each in listed} == expected
        assert {each["submitted_on"] for each in listed} == {"node-0"}
    for each, account in expected.items():
        assert f"{account} on node-0" in cluster.command("status", each)
        (event,) = cluster.kinds(each, "job_submitted")
        assert event["account"] == account and account in event["reason"]


def _others_get_at_nothing(cluster: Cluster) -> None:
    """The owner has left the homes open to be looked at. Nothing in them is, whatever the umask:
    looser modes have only files of jobs as they were sent, in folders that are not."""
    left_open = [cluster.home, *(cluster.home / node for node in cluster.nodes)]
    assert list(_within_reach(cluster.home)) == left_open
    loose = {
        path.relative_to(cluster.home).parts[1]
        for path in everything(cluster.home)
        if path not in left_open and _is_loose(path)
    }
    assert loose <= LOOSE_INSIDE, loose
    if os.geteuid() == 0:
        need_root()
        pids = [one.pid for node in cluster.nodes for one in cluster.processes(node)]
        got = as_other(lambda: tried(everything(cluster.home), pids))
        assert got.pop("listed") == [str(path) for path in left_open]
        assert not any(got.values()), got


def _is_loose(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # it has another name by now
        mode = path.lstat().st_mode
        return bool(mode & 0o077) and not stat.S_ISLNK(mode)
    return False


def _within_reach(folder: Path) -> Iterator[Path]:
    """What others may look into, by the modes."""
    yield folder
    for path in sorted(folder.iterdir()):
        if not _is_loose(path):
            continue
        if path.is_dir():
            yield from _within_reach(path)
        else:
            yield path
