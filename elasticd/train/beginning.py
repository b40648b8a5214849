"""How a script that runs by itself begins as it would in a trainer.

A trainer has the arguments and the environment of job.toml, and Python's hashes are the same in
each: so a set of strings has the same order on all ranks. Hashes are fixed when Python starts. So
the script is started again, in the same process, from ``import elasticd``: where nothing but
imports has run, and nobody watches it (a debugger, a profiler, another thread). Elsewhere it runs
on, and :class:`elasticd.Run` says what can't be promised.
"""

from __future__ import annotations

import ast
import atexit
import os
import sys
import threading
import tomllib
from multiprocessing import parent_process
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn

from elasticd.errors import UsageError
from elasticd.settings.job import JobSpec, load
from elasticd.train.reruns import RERUNS

JOB_VARIABLE = "ELASTICD_JOB"
JOB_FILE = "job.toml"
HASH_VARIABLE = "PYTHONHASHSEED"
HASHED = (
    f"{HASH_VARIABLE} is not 0, so sets of strings may have another order than in a cluster; start "
    f"the script with {HASH_VARIABLE}=0"
)
_REPEATED = frozenset(
    (
        "Path", "str", "os.path.dirname", "os.path.abspath", "os.path.join", "os.environ.get",
        "os.environ.setdefault", "sys.path.append", "sys.path.insert", "warnings.filterwarnings",
        "warnings.simplefilter", "logging.basicConfig", "logging.getLogger",
    )
)  # fmt: skip
"""Calls that often stand above imports, and may be made twice."""
_DEBUGGERS = ("pydevd", "debugpy")


def script_path() -> Path | None:
    """The script that runs, if Python was given one."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(script).resolve() if script else None


def job_path() -> Path:
    """Where the job of the script that runs should be: beside it, or in a folder above, if that job
    is this script's."""
    if named := os.environ.get(JOB_VARIABLE):
        return Path(named)
    script = script_path()
    if script is None:
        return Path.cwd() / JOB_FILE
    beside, *above = (folder / JOB_FILE for folder in script.parents)
    if not beside.is_file():
        return next((path for path in above if _entrypoint(path) == script), beside)
    return beside


def _entrypoint(path: Path) -> Path | None:
    """The script that a job names; of a file that is wrong in other ways too."""
    try:
        named: Path = path.parent / tomllib.loads(path.read_text("utf-8-sig"))["job"]["entrypoint"]
        return named.resolve()
    except (OSError, ValueError, LookupError, TypeError):
        return None


def hashes_are_fixed() -> bool:
    """Whether Python's hashes are those of a trainer."""
    return not sys.flags.hash_randomization


def begin_alone() -> None:
    """Take the job's arguments and environment, and seed the script, before it makes its model.

    For ``import elasticd``. A job.toml that is missing or wrong is :class:`elasticd.Run`'s to tell.
    """
    path = job_path()
    try:
        spec = load(path)
    except UsageError:
        return
    if (path.resolve().parent / spec.job.entrypoint).resolve() == script_path():
        _take_settings(spec)
        watch_reruns()
    # Only now: whoever is started again need not load MLX twice.
    from elasticd.train.steps import randomness

    randomness.seed_script(spec.train.seed)


def _take_settings(spec: JobSpec) -> None:
    """What the command line and the shell say wins, as they were typed for this run."""
    args = list(spec.job.args) if len(sys.argv) == 1 else []
    environment = {**spec.job.env, **os.environ}
    if not os.environ.get(HASH_VARIABLE) and not hashes_are_fixed() and _can_restart():
        _restart(args, {**environment, HASH_VARIABLE: "0"})
    sys.argv += args
    os.environ.update(environment)


def watch_reruns() -> None:
    """End the script when it is run again by processes that it starts."""
    script = None if parent_process() is not None else script_path()
    if script is None or not RERUNS.watch(script, _leave):
        return
    before = sys.excepthook

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not RERUNS.reason():  # of which this comes
            before(kind, error, trace)

    sys.excepthook = ended
    atexit.register(_say)


def _say() -> None:
    RERUNS.say(lambda reason: print(reason, file=sys.stderr, flush=True))


def _leave(status: int) -> NoReturn:
    _say()
    os._exit(status)


def _restart(args: list[str], environment: dict[str, str]) -> None:
    """Run the script from its first line; returns if that can't be."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:], *args], environment)
    except OSError:
        return


def _can_restart() -> bool:
    """Whether nobody would notice."""
    if _is_watched() or sys.flags.interactive or sys.flags.inspect or not sys.executable:
        return False
    if threading.active_count() > 1 or parent_process() is not None:
        return False
    return _only_imports(sys._getframe(1))


def _is_watched() -> bool:
    """Whether there is a debugger, a profiler, or who else follows what Python does."""
    if sys.gettrace() or sys.getprofile() or any(name in sys.modules for name in _DEBUGGERS):
        return True
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and any(monitoring.get_tool(number) for number in range(6))


def _only_imports(frame: FrameType | None) -> bool:
    """Whether the script stands at an import, inside of no function, and has done nothing before
    that could not be done twice."""
    here, script = str(Path(__file__).parents[1]), sys.modules["__main__"].__dict__
    while frame is not None:
        name, code = frame.f_code.co_filename, frame.f_code.co_name
        if frame.f_globals is script:
            return code == "<module>" and _is_harmless(Path(name), frame.f_lineno)
        if code != "<module>" and not name.startswith(("<frozen ", here)):
            return False
        frame = frame.f_back
    return False


def _is_harmless(script: Path, line: int) -> bool:
    """Whether what stands above a line may be done twice."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return all(_may_repeat(node) for node in tree.body if node.lineno < line)


def _may_repeat(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
        return True
    if isinstance(node, (ast.If, ast.Try)):
        return all(_may_repeat(each) for each in node.body + node.orelse)
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) and all(
        ast.unparse(call) in _REPEATED for call in calls
    )
