"""How a trainer and a reducer are started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from elasticd.core.jobs.status import with_recipe
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.settings.job import JobSettings, JobSpec
from elasticd.shell.children import environment
from elasticd.shell.children.files import ChildFiles, made
from elasticd.shell.children.launch import Launch
from elasticd.shell.children.otherpython import other_python
from elasticd.shell.children.ownvariables import own_variables
from elasticd.shell.children.temporary import TemporaryFolders
from elasticd.types import CACHE_VARIABLE


def trainer(
    effect: e.StartTrainer,
    record: JobRecord,
    files: ChildFiles,
    nonce: str,
    daemons: environment.Variables = os.environ,
) -> Launch:
    """``daemons``: the daemon's own variables.

    Raises:
        OperationError: it has no output folder, or the daemon no cache, or not a variable that the
            job wants of it.
    """
    spec = JobSpec.from_dict(record.spec)
    folder, output = files.work_folder(effect.job), files.output_folder(effect.job)
    python = other_python(spec)
    early = effect.spare and spec.recovery.spare == "interpreter"
    settings = {
        "job": effect.job,
        "spec": _told(record),
        "folder": str(folder),
        "clones": str(files.clones_folder(effect.job)),
        "output_dir": str(made(output, files.home)),
        "spare": "interpreter" if early else "script",
    }
    return Launch(
        "trainer",
        [python or sys.executable, "-m", "elasticd.train"],
        folder,
        files.trainer_log(effect.job, effect.spare),
        variables(spec.job, record.passed, files, daemons, TemporaryFolders(files).of_child(nonce)),
        settings,
        effect.job,
        effect.spare,
        nonce,
        python,
    )


def variables(
    job: JobSettings,
    passed: Sequence[str],
    files: ChildFiles,
    daemons: environment.Variables,
    temporary: str,
) -> dict[str, str]:
    """Those of what runs a job's script; ``temporary``: its TMPDIR. Raises as :func:`trainer`."""
    named = own_variables(files.home) if passed else {}
    known = {**daemons, **{name: named[name] for name in passed if name in named}}
    return {
        CACHE_VARIABLE: str(files.cache_folder().absolute()),
        **environment.of_trainer(known, temporary, job, passed),
    }


def _told(record: JobRecord) -> dict[str, Any]:
    """The settings as a trainer of this version is told them, with the recipe."""
    try:
        return with_recipe(record.spec, record)
    except ValueError as error:
        raise OperationError(f"the job's recipe can't be read: {error}") from None


def reducer(files: ChildFiles, nonce: str, daemons: environment.Variables = os.environ) -> Launch:
    """Raises OperationError: the daemon has no cache."""
    command = [sys.executable, "-m", "elasticd.reducer"]
    own = environment.of_child(daemons, TemporaryFolders(files).of_child(nonce))
    return Launch("reducer", command, files.home, files.reducer_log(), own, nonce=nonce)
