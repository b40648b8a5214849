"""The environment of a child: a short list of the daemon's own variables, and what the job wants.

Pure. A rank behaves alike on every node only if no other variable of the shell or service gets into
it that the daemon happened to be started from. Nor does a secret that this one has for itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from elasticd.errors import OperationError
from elasticd.settings.job import JobSettings

Variables = Mapping[str, str]

PASSED_ON = (
    # Who it is, and where its programs and files are.
    "PATH", "HOME", "USER", "LOGNAME", "SHELL",
    # How text and time are written; and all of LC_*.
    "LANG", "LANGUAGE", "TZ",
    # Whose certificates count in this network. A proxy's address may hold a password: not here.
    "SSL_CERT_FILE", "SSL_CERT_DIR",
    # Where Python finds modules, elasticd among them, and keeps what it compiles.
    "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX",
    "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip
"""Those of the daemon's variables that every child has. (Not DYLD_*, LD_* and MLX_*: they change
what is computed.)"""
LOCALE_PREFIX = "LC_"
OF_ITS_PYTHON = ("PYTHONHOME", "VIRTUAL_ENV")
"""Those that a child has besides, if it runs with the daemon's own interpreter."""
SEARCHED = "PYTHONPATH"
_FIXED = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}


def of_child(daemons: Variables, temporary: str, its_python: bool = True) -> dict[str, str]:
    """Of a child that no job says anything about. ``temporary``: its TMPDIR; empty: it has none."""
    names = {*PASSED_ON, *(OF_ITS_PYTHON if its_python else ())}
    found = {k: v for k, v in daemons.items() if k in names or k.startswith(LOCALE_PREFIX)}
    return found | ({"TMPDIR": temporary} if temporary else {}) | _FIXED


def of_trainer(
    daemons: Variables, temporary: str, job: JobSettings, passed: Iterable[str]
) -> dict[str, str]:
    """Of a trainer. ``passed`` names the variables of the daemon that the job wants to have, too.

    Raises:
        OperationError: the daemon has none of such a name, so the script would not be what it is
            elsewhere.
    """
    wanted = tuple(passed)
    if missing := [name for name in wanted if name not in daemons]:
        raise OperationError(
            f"this node has no variable {missing[0]}, which job.pass_env names: set it in"
            " secrets.env of the daemon's home"
        )
    found = of_child(daemons, temporary, its_python=not job.python)
    searched = [job.env.get(SEARCHED), found.get(SEARCHED)]
    found |= {**{name: daemons[name] for name in wanted}, **job.env}
    if path := os.pathsep.join(each for each in searched if each):
        # The job's folders are searched first; without the daemon's there may be no elasticd.
        found[SEARCHED] = path
    return found


def absolute_path_list(text: str) -> str:
    """A list as PYTHONPATH is one, that means the same in any working folder."""
    return os.pathsep.join(os.path.abspath(each) for each in text.split(os.pathsep))
