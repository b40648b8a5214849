"""The same script, by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.recovery.exactness import NO_REPEAT
from elasticd.train.outputs.tensorboard import NAME
from tests.tfevents import scalars

pytestmark = pytest.mark.process

JOB = """
[job]
name = "alone"
entrypoint = "train.py"
[batch]
global = 6
micro = 2
[train]
steps = 3
seed = 1
"""
SCRIPT = """
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

mx.random.seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1))
def loss(model, batch):
    return model(batch[0]).square().mean()
data = [(mx.array([1.0, i]),) for i in range(10)]
run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=data)
for step in run:
    print(step.number, run.rank, run.world_size, run.is_main)
(run.output_dir / "digest").write_text(run.digest())
"""


def python(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "train.py"), *args],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_script_runs_alone_and_repeats(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB)
    digests = set()
    for _ in range(2):
        done = python(tmp_path)
        assert (done.stdout, done.stderr) == ("1 0 1 True\n2 0 1 True\n3 0 1 True\n", "")
        digests.add((tmp_path / "output" / "digest").read_text())
    assert len(digests) == 1


PLAIN = '[job]\nname = "plain"\nmode = "plain"\nentrypoint = "train.py"\n'


@pytest.mark.parametrize(
    ("job", "environment"),
    [(PLAIN, {}), (PLAIN, {"ELASTICD_RESTARTS": "0"}), ("", {"ELASTICD_RESTARTS": "0"})],
    ids=["alone", "on a node", "on a node that has no job.toml beside it"],
)
@pytest.mark.parametrize("loop", ["run", "run.steps()"])
def test_a_plain_job_has_no_run(
    job: str, environment: dict[str, str], loop: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("for step in run:", f"for step in {loop}:"))
    if job:
        (tmp_path / "job.toml").write_text(job)
    done = python(tmp_path, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("elasticd.errors.UsageError: ")
    assert 'this job is mode = "plain"' in last
    assert 'elasticd.Run needs mode = "elastic" with [batch] and [train]' in last


def test_the_helpers_of_plain_scripts_work_beside_a_plain_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import elasticd, mlx.core as mx, mlx.nn as nn\n"
        "open('kept', 'w').write('1')\n"
        "elasticd.plain.keep('kept')\n"
        "elasticd.check_weights(nn.Linear(1, 1))\n"
        "print(elasticd.average_gradients({'w': mx.array(2.0)})['w'].item())\n"
    )
    (tmp_path / "job.toml").write_text(PLAIN)
    done = python(tmp_path)
    assert (done.stdout, done.stderr) == ("2.0\n", "")


LIKE_A_TRAINER = """
import os, sys
import elasticd

print(os.environ["GREETING"], sys.argv[1:], os.environ["PYTHONHASHSEED"], [*{"a", "b", "c", "d"}])
if "twice" in sys.argv:
    import mlx.nn as nn, mlx.optimizers as optim
    for _ in range(2):
        elasticd.Run(model=nn.Linear(1, 1), optimizer=optim.SGD(0.1), data=[1.0])
"""
SETTINGS = JOB.replace(
    'entrypoint = "train.py"',
    'entrypoint = "train.py"\nargs = ["--size", "3"]\nenv = { GREETING = "hello" }',
)


@pytest.fixture
def like_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    (tmp_path / "train.py").write_text(LIKE_A_TRAINER)
    (tmp_path / "job.toml").write_text(SETTINGS)
    return tmp_path


def test_a_script_has_the_hashes_arguments_and_environment_of_a_trainer(
    like_a_trainer: Path,
) -> None:
    said = {python(like_a_trainer).stdout for _ in range(3)}
    (line,) = said
    assert line.startswith("hello ['--size', '3'] 0 [")
    assert line.count("hello") == 1, "begun again before it has said anything"
    assert said == {python(like_a_trainer, PYTHONHASHSEED="0").stdout}


def test_what_is_typed_for_this_run_wins(like_a_trainer: Path) -> None:
    done = python(like_a_trainer, "--size", "4", GREETING="moin")
    assert done.stdout.startswith("moin ['--size', '4'] 0 ")


def test_a_second_run_is_refused_as_in_a_world(like_a_trainer: Path) -> None:
    done = python(like_a_trainer, "twice")
    assert done.returncode == 1
    assert "a script has one elasticd.Run; this is its second" in done.stderr


@pytest.mark.parametrize(
    "before",
    [
        "import sys; sys.settrace(lambda *_: None)",
        "import sys; sys.setprofile(lambda *_: None)",
        "import threading, time; threading.Thread(target=time.sleep, args=[1]).start()",
        "def late():\n    import elasticd\nlate()",
        "open('log', 'a').write('begun')",
    ],
)
def test_a_script_that_would_notice_is_not_begun_again(tmp_path: Path, before: str) -> None:
    (tmp_path / "train.py").write_text(before + "\n" + SCRIPT)
    (tmp_path / "job.toml").write_text(JOB)
    done = python(tmp_path)
    assert done.stdout.startswith("1 0 1 True")
    assert "exact: false: PYTHONHASHSEED is not 0" in done.stderr
    (tmp_path / "job.toml").write_text(JOB + "[world]\nrequire_exact = true\n")
    done = python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")


def test_settings_above_the_import_may_be_made_twice(like_a_trainer: Path) -> None:
    above = (
        '"""Trains."""\nfrom __future__ import annotations\nimport os, sys\n'
        "sys.path.insert(0, os.path.dirname(__file__))\nos.environ['SOME'] = 'x'\nSIZE: int = 3\n"
        "try:\n    import json\nexcept ImportError:\n    json = None\n"
    )
    (like_a_trainer / "train.py").write_text(above + LIKE_A_TRAINER)
    assert python(like_a_trainer).stdout.startswith("hello ['--size', '3'] 0 [")


def test_who_chooses_hashes_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB)
    assert "PYTHONHASHSEED=0" in python(tmp_path, PYTHONHASHSEED="7").stderr


def test_a_module_is_begun_again_too(like_a_trainer: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "train"], cwd=like_a_trainer, capture_output=True, text=True
    )
    assert done.stdout.startswith("hello ['--size', '3'] 0 ["), done.stderr


UNREPEATED = SCRIPT.replace(
    "return model(batch[0]).square().mean()",
    "return model(batch[0]).square().mean() * next(factors)",
).replace("def loss", "import itertools\nfactors = itertools.count(1)\ndef loss")


def test_what_does_not_repeat_is_said_or_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNREPEATED)
    (tmp_path / "job.toml").write_text(JOB)
    done = python(tmp_path)
    why = NO_REPEAT
    assert (done.returncode, done.stderr) == (0, f"elasticd: exact: false: {why}\n")
    (tmp_path / "job.toml").write_text(JOB + "[world]\nrequire_exact = true\n")
    done = python(tmp_path)
    assert (done.returncode, done.stdout) == (1, ""), "no step was made"
    assert f"its bits can't be promised: {why}" in done.stderr


def test_a_sum_in_another_order_is_no_promise(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB + '[world]\nreduction = "fast"\n')
    assert "exact: false: reduction" in python(tmp_path).stderr


def test_the_job_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python(tmp_path)
    assert done.returncode == 1 and "job.toml: not found" in done.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "job.toml").write_text(JOB.replace("steps = 3", "steps = 1"))
    (other / "train.py").touch()
    assert python(tmp_path, ELASTICD_JOB=str(other / "job.toml")).stdout == "1 0 1 True\n"
    assert (other / "output" / "digest").exists()


def test_the_job_of_a_script_in_a_folder_of_its_own_lies_above(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "train.py").write_text(SCRIPT)
    (tmp_path / "src" / "job.toml").write_text(JOB.replace("steps = 3", "steps = 2"))
    (tmp_path / "job.toml").write_text(JOB)
    done = python(tmp_path / "src" / "deep")
    assert done.returncode == 1
    assert "deep/job.toml: not found" in done.stderr and "in a folder above" in done.stderr
    job = JOB.replace("train.py", "src/deep/train.py").replace("steps = 3", "steps = 1")
    (tmp_path / "job.toml").write_text(job)
    assert python(tmp_path / "src" / "deep").stdout == "1 0 1 True\n"
    assert (tmp_path / "output" / "digest").is_file()
    (tmp_path / "src" / "train.py").write_text(LIKE_A_TRAINER)
    settings = SETTINGS.replace("train.py", "src/train.py")
    (tmp_path / "src" / "job.toml").unlink()
    (tmp_path / "job.toml").write_text(settings)
    said = python(tmp_path / "src", PYTHONHASHSEED="").stdout
    assert said.startswith("hello ['--size', '3'] 0 ["), "begun as on a node"


def test_what_is_logged_comes_to_tensorboard(tmp_path: Path) -> None:
    """Once for each step: an earlier run's steps are told anew, as this one's."""
    body = 'run.log(twice=2.0 * step.number, name="text")\n    print(step.loss)'
    script, *_ = SCRIPT.partition("for step in run:")
    loop = f"run.log(above=1.0)\nfor step in run:\n    {body}\n"
    (tmp_path / "train.py").write_text(script + loop)
    (tmp_path / "job.toml").write_text(f"{JOB}[track]\ntensorboard = true\n")
    for _ in range(2):
        done = python(tmp_path)
        losses = [float(line.split()[0]) for line in done.stdout.splitlines()]
        found = scalars(tmp_path / "output" / NAME)
        assert found == {
            step: pytest.approx({"loss": loss, "twice": 2.0 * step, "elasticd/world_size": 1.0})
            for step, loss in enumerate(losses, 1)
        }


def test_a_node_without_the_package_for_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(f"{JOB}[track]\ntensorboard = true\n")
    lacking = tmp_path / "lacking" / "tensorboardX.py"
    lacking.parent.mkdir()
    lacking.write_text("raise ImportError('it is not here')\n")
    path = os.pathsep.join([str(lacking.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = python(tmp_path, PYTHONPATH=path)
    assert done.returncode == 1 and done.stdout == ""
    assert "pip install 'elasticd[track]'" in done.stderr


@pytest.mark.parametrize("samples", [5, 6])
def test_data_that_a_step_takes_several_times_are_told_of(tmp_path: Path, samples: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(10)", f"range({samples})"))
    (tmp_path / "job.toml").write_text(JOB)
    made = python(tmp_path)
    said = "elasticd: data= has 5 samples, and a step takes 6 ([batch] global): some are in it"
    assert made.returncode == 0, made.stderr
    assert (said in made.stderr) == (samples == 5)
