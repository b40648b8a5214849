"""One trainer process, driven over its socket by a stand-in for the daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticd.checkpoints.codec import read_tensors
from elasticd.core.words.processes import CANNOT_BEGIN, OURS, UNCOUNTED
from elasticd.ipc.child import CHILD_VARIABLE
from elasticd.ipc.frames import FrameSocket
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Tag, first_stamp, next_stamp

pytestmark = pytest.mark.process

WAIT_SECONDS = 60
JOB, LINEAGE = JobId("digits-1"), Lineage("line")
STEPS, GRAINS = 6, 4
SPEC: dict[str, Any] = {
    "job": {"name": "digits", "entrypoint": "train.py", "args": ["--flag"]},
    "batch": {"global": 8, "micro": 2},
    "train": {"steps": STEPS, "seed": 3},
    "checkpoint": {"every_steps": 2},
}
SCRIPT = """
import sys
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

assert sys.argv[1:] == ["--flag"], sys.argv
model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
data = [(mx.random.normal((3,)), i % 2) for i in range(20)]
loss = lambda model, batch: nn.losses.cross_entropy(model(batch[0]), batch[1]).mean()
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss, data=data)
notes = {"bodies": 0}
run.track("notes", notes)
for step in run:
    notes["bodies"] += 1
    if step.number == 3:
        open("../../gate").read()  # until the test opens the other end
    run.log(twice=2 * step.number)
    print("step", step.number, flush=True)
print("digest", run.digest(), notes["bodies"], flush=True)
"""


ASKS = (
    SCRIPT[: SCRIPT.index("notes =")]
    + f"""
steps = iter(run)
for _ in range({STEPS}):
    print("step", next(steps).number)
"""
)


class Trainer:
    """The daemon's end of one trainer."""

    def __init__(self, process: subprocess.Popen[bytes], connection: FrameSocket) -> None:
        self.process, self.connection = process, connection
        self.seen: list[dict[str, Any]] = []

    def send(self, kind: str, fds: tuple[int, ...] = (), **fields: Any) -> None:
        self.connection.send({"t": kind, **fields}, fds)

    def wait(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of a kind with these fields; what comes before is kept in ``seen``."""
        while True:
            received = self.connection.receive()
            assert received is not None, f"the trainer has gone, no {kind}; {self.seen[-3:]}"
            message, fds = received
            message["descriptors"] = fds
            self.seen.append(message)
            if message["t"] == kind and fields.items() <= message.items():
                return message

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, out.decode()


@contextmanager
def trainer(folder: Path, script: str, spare: str = "script") -> Iterator[Trainer]:
    (folder / "sent").mkdir(exist_ok=True)
    (folder / "sent" / "train.py").write_text(textwrap.dedent(script))
    path, gate = folder / "children.sock", folder / "gate"
    path.unlink(missing_ok=True)
    if not gate.exists():
        os.mkfifo(gate)
    child = {
        "socket": str(path),
        "nonce": "abc",
        "role": "trainer",
        "grace_seconds": 120,
        "job": JOB,
        "spec": JobSpec.from_dict(SPEC).to_dict(),
        "folder": str(folder / "sent"),
        "clones": str(folder / "clones"),
        "output_dir": str(folder / "out"),
        "spare": spare,
    }
    environment = {**os.environ, CHILD_VARIABLE: json.dumps(child), "PYTHONHASHSEED": "0"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(WAIT_SECONDS)
        process = subprocess.Popen(
            [sys.executable, "-m", "elasticd.train"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        connection = None
        try:
            accepted, _ = listener.accept()
            # SO_RCVTIMEO and not settimeout: a FrameSocket makes its socket a blocking one.
            accepted.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, WAIT_SECONDS.to_bytes(8, "little") + bytes(8)
            )
            connection = FrameSocket(accepted)
            held = Trainer(process, connection)
            assert held.wait("hello")["pid"] == process.pid
            yield held
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
            if connection is not None:
                connection.close()


def world(counter: int, step: int, stamp: str, state: str, folder: Path, **more: Any) -> Any:
    share = [[[0, GRAINS]]]
    return {
        "generation": [counter, "n", "x"],
        "job": JOB,
        "rank": 0,
        "size": 1,
        "members": ["n"],
        "lineage": LINEAGE,
        "step": step,
        "stamp": stamp,
        "state": state,
        "shares_now": share,
        "shares": share,
        "reduction": "exact",
        "checkpointed": -1,
        "checkpoint_folder": str(folder / "checkpoints"),
        "writes": {"every": 2, "count": 2, "replicas": 1},
        **more,
    }


def begin(child: Trainer, folder: Path) -> None:
    """The first world, from the script's initial state, as far as the probe."""
    fingerprint = child.wait("at_run")["fingerprint"]
    assert fingerprint["model/layers.0.weight"] == "float32[8,3]"
    assert fingerprint["dataset"] == "20 samples"
    child.send("world", **world(1, 0, first_stamp(JOB, LINEAGE), "init", folder))
    probe = child.wait("probe", generation=[1, "n", "x"])
    assert probe["repeats"] and probe["gradient"] and probe["update"] and probe["layout"]


def train_alone(child: Trainer, folder: Path) -> tuple[int, str]:
    """From the beginning to the end of its script: how that ended, and what it printed."""
    begin(child, folder)
    child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
    child.wait("finished", step=STEPS)
    child.send("release")
    return child.end()


def freeze_at_three(child: Trainer, folder: Path) -> dict[str, Any]:
    """Train from the beginning until step 3, whose body waits at the gate; what is then held."""
    begin(child, folder)
    child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
    child.wait("progress", step=3)
    child.send("freeze", serial=7)
    return child.wait("holding", serial=7)


def test_a_job_from_beginning_to_end(tmp_path: Path) -> None:
    with trainer(tmp_path, SCRIPT) as child:
        held = freeze_at_three(child, tmp_path)
        (tmp_path / "gate").write_text("")
        lineage, step, stamp = held["point"]
        expected = first_stamp(JOB, LINEAGE)
        for number in range(1, step + 1):
            expected = next_stamp(expected, Tag(1, NodeId("n"), "x"), number)
        assert (lineage, stamp) == (LINEAGE, expected)
        assert held["committed"] in (step, step - 1)
        child.send("freeze", serial=8)
        assert child.wait("holding", serial=8)["point"] == held["point"]

        child.send("export", serial=9, step=step, stamp=stamp)
        exported = child.wait("exported", serial=9)
        (fd,) = exported["descriptors"]
        tensors, metadata = read_tensors([fd])
        assert os.fstat(fd).st_size == exported["bytes"]
        os.close(fd)
        said = json.loads(metadata["elasticd"])
        assert (said["step"], said["stamp"], said["samples"]) == (step, stamp, 8 * step)
        assert {"model/layers.0.weight", "optimizer/step"} <= set(tensors)
        child.send("export", serial=10, step=step, stamp="another")
        child.wait("not_exported", serial=10)

        child.send("world", **world(2, step, stamp, "keep", tmp_path))
        finished = child.wait("finished", generation=[2, "n", "x"])
        assert finished["step"] == STEPS
        shards = [message for message in child.seen if message["t"] == "shards"]
        if not shards or shards[-1]["step"] != STEPS:
            shards.append(child.wait("shards", step=STEPS))
        last = shards[-1]
        assert [shard["index"] for shard in last["shards"]] == [0, 1]
        assert 0 <= last["stall_seconds"] < WAIT_SECONDS
        assert 0 < last["write_seconds"] < WAIT_SECONDS
        name = f"{STEPS:08d}-{finished['stamp'][:12]}.partial"
        files = sorted((tmp_path / "checkpoints" / name).iterdir())
        assert [file.stat().st_size for file in files] == [s["bytes"] for s in last["shards"]]

        child.send("freeze", serial=11)
        assert child.wait("holding", serial=11)["point"] == [LINEAGE, STEPS, finished["stamp"]]
        child.send(
            "world", **world(3, STEPS, finished["stamp"], "keep", tmp_path, checkpointed=STEPS)
        )
        child.wait("finished", generation=[3, "n", "x"])
        child.send("release")
        code, out = child.end()
    assert code == 0, out
    lines = out.splitlines()
    assert lines[:-1] == [f"step {number}" for number in range(1, STEPS + 1)]
    assert lines[-1] == f"digest {last['digest']} {STEPS}"

    with trainer(tmp_path, SCRIPT, spare="interpreter") as second:
        second.wait("waiting")
        second.send("run")
        second.wait("at_run")
        stamp = finished["stamp"]
        second.send("world", **world(4, STEPS, stamp, "load", tmp_path, checkpointed=STEPS))
        fds = tuple(os.open(file, os.O_RDONLY) for file in files)
        second.send("load", fds, generation=[4, "n", "x"])
        for fd in fds:
            os.close(fd)
        assert second.wait("loaded")["stamp"] == stamp
        second.wait("finished")
        second.send("release")
        code, out = second.end()
    assert (code, out.strip()) == (0, lines[-1])


def test_a_loaded_state_goes_on_as_the_first_would_have(tmp_path: Path) -> None:
    with trainer(tmp_path, SCRIPT) as child:
        _, step, stamp = freeze_at_three(child, tmp_path)["point"]
        child.send("export", serial=2, step=step, stamp=stamp)
        (tmp_path / "gate").write_text("")  # the state is read when the loop's body is done
        (fd,) = child.wait("exported")["descriptors"]
        child.send("world", **world(2, step, stamp, "keep", tmp_path))
        child.wait("finished", step=STEPS)
        child.send("release")
        code, out = child.end()
        assert code == 0, out
    with trainer(tmp_path, SCRIPT) as second:
        second.wait("at_run")
        second.send("world", **world(2, step, stamp, "load", tmp_path))
        second.send("load", (fd,), generation=[2, "n", "x"])
        os.close(fd)
        second.wait("loaded", step=3, stamp=stamp)
        second.wait("probe")
        second.send("exact", generation=[2, "n", "x"], exact=True, reason="")
        second.wait("finished", step=STEPS)
        second.send("release")
        code, again = second.end()
    assert code == 0, again
    assert again.splitlines() == out.splitlines()[3:]


def test_a_script_that_calls_next_itself_waits_for_the_others_at_its_end(tmp_path: Path) -> None:
    with trainer(tmp_path, ASKS) as child:
        code, out = train_alone(child, tmp_path)
    assert code == 0 and "write `for step in run`" in out


def test_a_state_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    with trainer(tmp_path, SCRIPT) as child:
        begin(child, tmp_path)
        stamp = first_stamp(JOB, LINEAGE)
        child.send("export", serial=1, step=0, stamp=stamp)
        (fd,) = child.wait("exported")["descriptors"]
    with trainer(tmp_path, SCRIPT.replace("8, 2", "8, 4")) as other:
        other.wait("at_run")
        other.send("world", **world(2, 0, stamp, "load", tmp_path))
        other.send("load", (fd,), generation=[2, "n", "x"])
        os.close(fd)
        reason = other.wait("refused")["reason"]
    assert "layers.2.bias" in reason and "float32[4]" in reason and "float32[2]" in reason


def test_a_freeze_before_the_verdict_is_answered(tmp_path: Path) -> None:
    with trainer(tmp_path, SCRIPT) as child:
        begin(child, tmp_path)
        child.send("freeze", serial=1)
        assert child.wait("holding")["point"][1] == 0
        stamp = first_stamp(JOB, LINEAGE)
        child.send("world", **world(2, 0, stamp, "keep", tmp_path))
        child.wait("probe", generation=[2, "n", "x"])
        child.send("exact", generation=[2, "n", "x"], exact=False, reason="mixed chips")
        while not child.wait("progress")["committed"]:
            pass  # which one is told first is chance


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("raise ValueError('spoiled')", 1, "ValueError: spoiled"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('enough')", 1, "enough"),
        ("def f(:", 1, "SyntaxError"),
        ("import elasticd; elasticd.Run(model=1, data=[1])", 1, "model= is a int"),
        ("print('never')", 0, "never"),
        ("import atexit; atexit.register(print, 'at exit')", 0, "at exit"),
    ],
)
def test_a_script_ends_as_python_would_end_it(
    tmp_path: Path, script: str, code: int, says: str
) -> None:
    with trainer(tmp_path, script) as child:
        status, out = child.end()
    assert status == code and says in out
    assert "host.py" not in out


FILES = """
import os, sys
from pathlib import Path
import mlx.nn as nn, mlx.optimizers as optim
import elasticd

log = open("train.log", "w")
print(os.getpid(), file=log, flush=True)
here = Path.cwd()
assert Path(__file__) == here / "train.py" == Path(sys.argv[0]), (__file__, sys.argv[0])
assert sys.path[0] == str(here), sys.path
cache = here / "cache"
print("cached" if cache.exists() else "first", flush=True)
cache.touch()
elasticd.Run(model=nn.Linear(1, 1), optimizer=optim.SGD(0.1), data=[1.0] * 20)
"""


def test_a_spare_leaves_the_files_of_the_living_trainer_alone(tmp_path: Path) -> None:
    with trainer(tmp_path, FILES) as living:
        living.wait("at_run")
        with trainer(tmp_path, FILES) as spare:
            spare.wait("at_run")
            clones = tmp_path / "clones"
            logs = [int((clones / name / "train.log").read_text()) for name in "01"]
            assert logs == [living.process.pid, spare.process.pid]
            living.process.kill()
            assert living.end()[1] == "first\n"
            with trainer(tmp_path, FILES, "interpreter") as third:
                third.wait("waiting")
                third.send("run")
                third.wait("at_run")
                assert (clones / "0" / "train.log").read_text() == f"{third.process.pid}\n"
                third.process.kill()
                assert third.end()[1] == "cached\n"
    assert [path.name for path in (tmp_path / "sent").iterdir()] == ["train.py"]


GUARD = """
import math
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2))
data = [(mx.random.normal((3,)), i % 2) for i in range(20)]
loss = lambda model, batch: nn.losses.cross_entropy(model(batch[0]), batch[1]).mean()
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), data=data)
gradients = nn.value_and_grad(model, loss)
for step in run.steps():
    for batch in step.micro_batches():
        step.accumulate(*gradients(model, batch))
        if step.number == 3:
            open("../../gate").read()  # until the test opens the other end
    if not math.isfinite(step.loss):
        raise FloatingPointError(f"step {step.number} has diverged")
    step.apply()
    if step.number == LAST:
        raise ValueError("and this is its own fault")
"""


def test_what_a_script_raises_in_a_body_that_does_not_count_is_not_its_fault(
    tmp_path: Path,
) -> None:
    """The job has gone on without it meanwhile, so its step has no loss."""
    with trainer(tmp_path, GUARD.replace("LAST", "6")) as child:
        begin(child, tmp_path)
        child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
        with (tmp_path / "gate").open("w"):  # it opens the other end in step 3
            child.send("freeze", serial=7)
            child.wait("holding", serial=7)
            child.send("world", **world(2, 5, "another", "load", tmp_path))
        assert child.wait("bye")["status"] == UNCOUNTED
        code, out = child.end()
    assert code == UNCOUNTED and "FloatingPointError: step 3 has diverged" in out
    assert out.splitlines()[-1].startswith(f"{OURS}the job had gone on without this process")


def test_what_it_raises_in_one_that_counts_is(tmp_path: Path) -> None:
    with trainer(tmp_path, GUARD.replace("LAST", "2")) as child:
        begin(child, tmp_path)
        child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
        code, out = child.end()
    assert code == 1 and out.splitlines()[-1] == "ValueError: and this is its own fault"


def test_a_disk_that_takes_no_clone_is_not_the_scripts_fault(tmp_path: Path) -> None:
    (tmp_path / "clones").write_text("in the way")
    with trainer(tmp_path, FILES) as child:
        assert child.wait("bye")["status"] == CANNOT_BEGIN
        code, out = child.end()
    assert code == CANNOT_BEGIN
    (line,) = out.splitlines()
    assert line.startswith("elasticd: the job's folder can't be cloned: ") and "/clones" in line
