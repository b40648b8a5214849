"""What this node has of what a job needs, as other nodes ask for it before that runs."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.errors import OperationError
from elasticd.launchd.otherdisk import mounted_late
from elasticd.launchd.protected import kept_out
from elasticd.machinememory import machine_memory
from elasticd.outputs import shown
from elasticd.preflight.needs import JobNeeds, NeedsMet, PathFacts
from elasticd.settings.diskroom import room_of
from elasticd.settings.job import JobSettings
from elasticd.settings.recipe import HUB
from elasticd.shell.children.environment import Variables, of_trainer
from elasticd.shell.children.ownvariables import own_variables
from elasticd.shell.children.trial import tried
from elasticd.shell.clock import monotonic_seconds

PYTHON_SECONDS = 20.0
PATH_SECONDS = 20.0
"""For all paths together."""
MAX_FILES = 10_000
"""Of a folder's files so many are looked into; of a larger one those that come first by name."""
NAMED_FILES = 200
"""So many of these are told apart by name, so that one that differs is named."""
_END_BYTES = 4096

_PROBE = """
import importlib.util, json, platform, sys
from importlib import metadata
wanted, model, revision = json.loads(sys.argv[1])
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
def mlx():
    try:
        return metadata.version("mlx")
    except metadata.PackageNotFoundError:
        return ""
told = {"python": platform.python_version(), "mlx": mlx(), "folder": "", "error": "", "errno": 0}
told["missing"] = [name for name in wanted if not found(name)]
if model:
    try:
        from huggingface_hub import snapshot_download
        told["folder"] = snapshot_download(model, revision=revision or None, local_files_only=True)
    except ImportError:
        told["error"] = "huggingface_hub is not installed, so nobody knows whether it is here"
    except PermissionError as error:
        told["error"], told["errno"] = f"{error.filename}: {error.strerror}", error.errno
    except (OSError, ValueError):
        told["error"] = "it isn't in this node's cache of the hub"
print(json.dumps(told))
"""
"""Run by the job's interpreter, which may have no elasticd."""


@dataclass(frozen=True, slots=True)
class OwnNeeds:
    """Of the node with this home.

    Attributes:
        daemons: the daemon's own variables.
        kept: the cure of an error, where macOS keeps this service from what it was to read.
        late: the cure where a Mac's disk may not be mounted yet.
    """

    home: Path
    daemons: Variables
    kept: Callable[[Exception], str] = kept_out
    late: Callable[[Path], str] = mounted_late

    def read(self, needs: JobNeeds) -> NeedsMet:
        """To be called in a thread."""
        variables, lacks = self._variables(needs)
        told, error = self._asked(needs, variables)
        folder = str(told.get("folder") or needs.model)
        known = os.path.isabs(folder)
        wrong = _unfound(told) if needs.model.startswith(HUB) else None
        if wrong is None and known:
            wrong = _no_model(Path(folder))
        free = (memory := machine_memory()).available_bytes
        return NeedsMet(
            python=str(told.get("python", "")),
            mlx=str(told.get("mlx", "")),
            error=error,
            missing=tuple(map(str, told.get("missing", ()))),
            lacks=lacks,
            paths=self._looked_at(needs),
            model_error="" if wrong is None else str(wrong.strerror),
            model_cure="" if wrong is None else self.kept(wrong),
            model_bytes=needs.model_bytes or (_weights(Path(folder)) if known else 0),
            model_layers=_layers(Path(folder)) if known else 0,
            memory_bytes=memory.total_bytes,
            available_bytes=memory.total_bytes if free is None else free,
            free_bytes=room_of(self.home).free_bytes,
        )

    def _looked_at(self, needs: JobNeeds) -> tuple[PathFacts, ...]:
        until = monotonic_seconds() + PATH_SECONDS
        paths = (Path(each.path) for each in needs.paths)
        return tuple(path_facts(path, until, self.kept, self.late) for path in paths)

    def _variables(self, needs: JobNeeds) -> tuple[Mapping[str, str], str]:
        """Those of its script, and why there are not all."""
        job = JobSettings(name="preflight", python=needs.python, env=needs.env)
        lacks, named = "", dict[str, str]()
        try:
            named = own_variables(self.home) if needs.passed else {}
            known = {**self.daemons, **{n: named[n] for n in needs.passed if n in named}}
            return of_trainer(known, "", job, needs.passed), ""
        except OperationError as error:
            lacks = str(error)
        return of_trainer(self.daemons, "", job, ()), lacks

    def _asked(self, needs: JobNeeds, variables: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        """What its interpreter says, or why it says nothing."""
        name, _, revision = needs.model.removeprefix(HUB).partition("@")
        hub = name if needs.model.startswith(HUB) else ""
        said = json.dumps([needs.modules, hub, revision])
        command = [needs.python or sys.executable, "-c", _PROBE, said]
        try:
            with tempfile.TemporaryDirectory(prefix="elasticd-preflight-") as folder:
                told = json.loads(tried(command, variables, Path(folder), PYTHON_SECONDS))
        except OperationError as error:
            return {}, str(error)
        except (OSError, ValueError) as error:
            return {}, f"{command[0]} can't be asked: {error}"
        return (told, "") if isinstance(told, dict) else ({}, f"{command[0]} is no Python")


def _unfound(told: Mapping[str, Any]) -> OSError | None:
    """Why a model of the hub's isn't there, as its interpreter says; None: it is."""
    why, number = str(told.get("error", "")), told.get("errno")
    return OSError(number if type(number) is int else 0, why) if why else None


def _no_model(folder: Path) -> OSError | None:
    """Why that is no model's folder; None: it is one."""
    try:
        (folder / "config.json").read_bytes()
    except OSError as error:
        return OSError(error.errno or 0, f"{error.filename}: {error.strerror}")
    return None


def _weights(folder: Path) -> int:
    try:
        return sum(each.stat().st_size for each in folder.glob("model*.safetensors"))
    except OSError:
        return 0


def _layers(folder: Path) -> int:
    try:
        said = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return 0
    count = said.get("num_hidden_layers") if isinstance(said, dict) else 0
    return count if type(count) is int and count > 0 else 0


def path_facts(
    path: Path,
    until: float,
    kept: Callable[[Exception], str] = kept_out,
    late: Callable[[Path], str] = mounted_late,
) -> PathFacts:
    """What lies there; looked at ``until`` that moment at most."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            size, ends = _ends(path)
            return PathFacts("file", 1, size, hashlib.blake2b(ends, digest_size=16).hexdigest())
        if not stat.S_ISDIR(mode):
            return PathFacts("other")
        return _folder(path, until)
    except (FileNotFoundError, NotADirectoryError):
        return PathFacts(cure=late(path))
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
        return PathFacts(error=why, cure=kept(error))


def _folder(folder: Path, until: float) -> PathFacts:
    count = total = 0
    digest, by_file = hashlib.blake2b(digest_size=16), dict[str, str]()
    for file in _files(folder):
        if monotonic_seconds() > until:
            return PathFacts(error=f"it was not looked through within {PATH_SECONDS:g} s")
        size = file.stat().st_size
        if count < MAX_FILES:
            size, ends = _ends(file)
            name = os.fsencode(_composed(str(file.relative_to(folder))))
            digest.update(b"%d %d %s\0" % (len(name), size, name) + ends)
            if count < NAMED_FILES:
                by_file[shown(os.fsdecode(name))] = hashlib.blake2b(ends, digest_size=8).hexdigest()
        count, total = count + 1, total + size
    digest.update(b"%d %d" % (count, total))
    return PathFacts("folder", count, total, digest.hexdigest(), by_file=by_file)


def _files(folder: Path) -> Iterator[Path]:
    """In the order of their names, but none that begins with a dot: a Mac writes such."""

    def in_order(names: list[str]) -> list[str]:
        return sorted((each for each in names if not each.startswith(".")), key=_composed)

    def refuse(error: OSError) -> None:
        raise error

    for above, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = in_order(folders)
        for name in in_order(names):
            file = Path(above, name)
            if file.is_file():
                yield file


def _composed(name: str) -> str:
    """The same however letters with accents are written: a Mac's own programs write "é" as two
    letters, and copies by rsync as one."""
    return unicodedata.normalize("NFC", name)


def _ends(file: Path) -> tuple[int, bytes]:
    """Its size, and how it begins and ends."""
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        first = stream.read(_END_BYTES)
        stream.seek(max(0, size - _END_BYTES))
        return size, b"%d " % size + first + stream.read(_END_BYTES)
