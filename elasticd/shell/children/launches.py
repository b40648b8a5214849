"""How a trainer and a reducer are started."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elasticd.core.jobs.status import with_recipe
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.settings.job import JobSettings, JobSpec
from elasticd.shell.children import environment
from elasticd.shell.children.files import ChildFiles, made
from elasticd.shell.children.ownvariables import own_variables
from elasticd.shell.children.server import Launch
from elasticd.types import CACHE_VARIABLE

_SOCKET_BYTES = len("/pymp-XXXXXXXX/listener-XXXXXXXX")
"""What ``multiprocessing`` adds for its sockets."""
_MOST_BYTES = {"darwin": 103}
_USUAL_MOST_BYTES = 107
"""Of a socket's path, on Linux."""


def trainer(
    effect: e.StartTrainer,
    record: JobRecord,
    files: ChildFiles,
    daemons: environment.Variables = os.environ,
) -> Launch:
    """``daemons``: the daemon's own variables.

    Raises:
        OperationError: it has no output folder, or the daemon no cache, or not a variable that the
            job wants of it.
    """
    spec = JobSpec.from_dict(record.spec)
    folder, output = files.work_folder(effect.job), files.output_folder(effect.job)
    early = effect.spare and spec.recovery.spare == "interpreter"
    settings = {
        "job": effect.job,
        "spec": _told(record),
        "folder": str(folder),
        "clones": str(files.clones_folder(effect.job)),
        "output_dir": str(made(output)),
        "spare": "interpreter" if early else "script",
    }
    return Launch(
        "trainer",
        [(not spec.plain and spec.job.python) or sys.executable, "-m", "elasticd.train"],
        folder,
        files.trainer_log(effect.job, effect.spare),
        variables(spec.job, record.passed, files, daemons),
        settings,
        effect.job,
        effect.spare,
    )


def variables(
    job: JobSettings, passed: Sequence[str], files: ChildFiles, daemons: environment.Variables
) -> dict[str, str]:
    """Those of what runs a job's script. Raises as :func:`trainer`."""
    named = own_variables(files.home) if passed else {}
    known = {**daemons, **{name: named[name] for name in passed if name in named}}
    return {
        CACHE_VARIABLE: str(files.cache_folder().absolute()),
        **environment.of_trainer(known, _temporary(files), job, passed),
    }


def _told(record: JobRecord) -> dict[str, Any]:
    """The settings as a trainer of this version is told them, with the recipe."""
    try:
        return with_recipe(record.spec, record)
    except ValueError as error:
        raise OperationError(f"the job's recipe can't be read: {error}") from None


def reducer(files: ChildFiles, daemons: environment.Variables = os.environ) -> Launch:
    """Raises OperationError: the daemon has no cache."""
    command = [sys.executable, "-m", "elasticd.reducer"]
    own = environment.of_child(daemons, _temporary(files))
    return Launch("reducer", command, files.home, files.reducer_log(), own)


def _temporary(files: ChildFiles) -> str:
    return temporary_folder(files.cache_folder(), sys.platform)


def temporary_folder(
    cache: Path, platform: str, short: Path = Path("/tmp"), own: str = os.environ.get("TMPDIR", "")
) -> str:
    """TMPDIR of a child; empty: it has none.

    On Linux it is the node's ``cache``, for MLX's compiled kernels. macOS makes one for each user.
    Python puts sockets into it: where its path is too long for that, it goes by a short link.
    """
    if platform == "darwin" and not own:
        return ""
    folder = Path(own) if platform == "darwin" else cache
    path = os.fsencode(folder.absolute())
    if len(path) + _SOCKET_BYTES <= _MOST_BYTES.get(platform, _USUAL_MOST_BYTES):
        return str(folder)
    name = f"elasticd-{os.getuid()}-{hashlib.sha256(path).hexdigest()[:12]}"
    return str(_link(short / name, folder.absolute()) or folder)


def _link(link: Path, to: Path) -> Path | None:
    """A link of our own that leads there; None: it can't be made, or another user has one."""
    try:
        with contextlib.suppress(FileExistsError):
            link.symlink_to(to)
        ours = link.lstat().st_uid == os.getuid() and link.readlink() == to
    except OSError:
        return None
    return link if ours else None
