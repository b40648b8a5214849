"""How a trainer and a reducer are started."""

from __future__ import annotations

import os
import sys

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.settings.job import JobSpec
from elasticd.shell.children.files import ChildFiles, made
from elasticd.shell.children.server import Launch

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "SHELL", "SSL_CERT_FILE", "VIRTUAL_ENV")
_PASSED_ON_PREFIXES = ("MLX_", "PYTHON")


def trainer(effect: e.StartTrainer, record: JobRecord, files: ChildFiles) -> Launch:
    """Raises OperationError: it has no output folder, or the daemon no cache."""
    spec = JobSpec.from_dict(record.spec)
    folder, output = files.work_folder(effect.job), files.output_folder(effect.job)
    early = effect.spare and spec.recovery.spare == "interpreter"
    settings = {
        "job": effect.job,
        "spec": record.spec,
        "folder": str(folder),
        "clones": str(files.clones_folder(effect.job)),
        "entrypoint": spec.job.entrypoint,
        "args": list(spec.job.args),
        "output_dir": str(made(output)),
        "spare": "interpreter" if early else "script",
    }
    return Launch(
        "trainer",
        [spec.job.python or sys.executable, "-m", "elasticd.train"],
        folder,
        files.trainer_log(effect.job, effect.spare),
        {**_environment(files), **spec.job.env},
        settings,
        effect.job,
        effect.spare,
    )


def reducer(files: ChildFiles) -> Launch:
    """Raises OperationError: the daemon has no cache."""
    command = [sys.executable, "-m", "elasticd.reducer"]
    return Launch("reducer", command, files.home, files.reducer_log(), _environment(files))


def _environment(files: ChildFiles) -> dict[str, str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key in _PASSED_ON or key.startswith(_PASSED_ON_PREFIXES)
    }
    cache = str(files.cache_folder())
    return environment | {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "TMPDIR": cache}
