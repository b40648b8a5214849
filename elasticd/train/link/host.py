"""The trainer process: connects to its daemon and runs the user's script as ``__main__``."""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from elasticd.core.words.processes import CANNOT_BEGIN, OURS, UNCOUNTED
from elasticd.ipc.child import DUMP_SIGNAL, DaemonLink
from elasticd.settings.job import JobSpec
from elasticd.supervision.priority import BEHIND_DAEMONS, give_way
from elasticd.train.finishing import finish_failed, finish_interpreter, flush_output
from elasticd.train.link.clones import Clone, clone_folder
from elasticd.train.link.stderrkept import STDERR
from elasticd.train.reruns import RERUNS

RECIPES, PLAIN = "elasticd.recipes.mlxlm", "elasticd.recipes.plain"


def main() -> NoReturn:
    """Run the script that the environment names, and exit with its status."""
    give_way(BEHIND_DAEMONS)
    link = DaemonLink.connect()
    faulthandler.register(DUMP_SIGNAL, all_threads=True)
    clone = _own_folder(link)  # locked while this process lives
    # Only now: MLX takes a while to load, and the daemon should know this process by then.
    from elasticd.train.link.daemonseat import DaemonSeat
    from elasticd.train.steps import randomness, relief
    from elasticd.train.steps.seat import HOST

    extra = link.settings.extra
    spec = JobSpec.from_dict(extra["spec"]).read_in(clone.folder)
    seat = DaemonSeat(link, spec, Path(extra["output_dir"]))
    seat.start()
    if extra.get("spare") == "interpreter":
        seat.await_run()
    HOST.prepare(seat)
    STDERR.keep()
    own = os.getpid()
    # Who has no part in the job keeps nobody from hearing the end of who has.
    os.register_at_fork(after_in_child=link.let_go)
    os.register_at_fork(after_in_child=seat.driver.reducer.close)

    leaving = threading.Lock()

    def leave(code: int) -> NoReturn:
        leaving.acquire()  # for good: two may come here
        if code and not RERUNS.say(STDERR.say) and HOST.uncounted():
            code = _excused(code)
        seat.close(code)
        # Not sys.exit: our threads may be inside MLX, which aborts a process that takes itself
        # down.
        os._exit(code)

    watch_reruns(seat.spec, clone.folder, leave)

    def begin() -> None:
        relief.begin()
        randomness.seed_script(seat.spec.train.seed)

    failed = _failures(lambda: HOST.looping)
    code = run_behind(begin, seat.spec, clone.folder)
    if os.getpid() != own:  # forked by the script, whose end this is not
        finish_interpreter()
        os._exit(code)
    if code and (advice := HOST.advice()):
        STDERR.say(advice)
    code = code or _guarded(lambda: _await_loop(lambda: HOST.looping))
    code = code or (1 if failed.is_set() else _guarded(HOST.conclude))
    finish_failed(lambda: leave(code)) if code else finish_interpreter()
    leave(code)


def _failures(looping: Callable[[], threading.Thread | None]) -> threading.Event:
    """Whether an error has ended the thread in which a script trains: it ends the script, too."""
    failed = threading.Event()
    told = threading.excepthook

    def ended(args: threading.ExceptHookArgs) -> None:
        told(args)
        if args.thread is looping() and not issubclass(args.exc_type, SystemExit):
            failed.set()

    threading.excepthook = ended
    return failed


def _await_loop(looping: Callable[[], threading.Thread | None]) -> None:
    """The script's threads may train when its last line is done. Pools have threads that end only
    with Python, so only those are waited for whose function is the script's."""
    for thread in threading.enumerate():
        at = looping()
        if at is threading.main_thread() or (at is not None and not at.is_alive()):
            return
        function = getattr(thread, "_target", None)
        own = {type(thread).__module__, getattr(function, "__module__", None)}
        if "__main__" in own and not (thread.daemon or thread is threading.main_thread()):
            thread.join()


def _excused(code: int) -> int:
    """The script has raised on what may make no sense: nothing of that body is kept, and the others
    have lived through the step. Where nobody can be told of it, it stays the script's own end."""
    told = STDERR.say(
        f"{OURS}the job had gone on without this process, so that body does not count, nor does"
        " what it raised: the script is begun anew"
    )
    return UNCOUNTED if told else code


def _own_folder(link: DaemonLink) -> Clone:
    """Clone the job's folder, and work there. Where that can't be, the daemon is told by what is
    printed and by the exit status."""
    extra = link.settings.extra
    try:
        clone = clone_folder(Path(extra["folder"]), Path(extra["clones"]))
        os.chdir(clone.folder)
    except OSError as error:
        print(f"{OURS}the job's folder can't be cloned: {error}", file=sys.stderr, flush=True)
        link.say_goodbye(CANNOT_BEGIN)
        os._exit(CANNOT_BEGIN)
    return clone


def watch_reruns(spec: JobSpec, folder: Path, leave: Callable[[int], NoReturn]) -> None:
    """End this process by ``leave`` when processes that the job's script starts run it again."""
    if spec.recipe is None and spec.plain is None:
        RERUNS.watch(folder / spec.job.entrypoint, leave)


def leave_aside(status: int) -> NoReturn:
    """End a process that runs a script and is none of the job's."""
    if status:
        RERUNS.say(STDERR.say)
    RERUNS.close()
    flush_output()
    os._exit(status)  # as a trainer does


def run_behind(begin: Callable[[], None], spec: JobSpec, folder: Path) -> int:
    """As :func:`run_job`, once that is done. What fails of it, as where Metal finds no GPU, is told
    to the daemon as an error of the script is."""
    return _guarded(begin) or run_job(spec, folder)


def run_job(spec: JobSpec, folder: Path) -> int:
    """Run a job's script, which lies in ``folder``, or what runs in place of one; the exit status.
    What it raises is printed."""
    if spec.recipe is None and spec.plain is None:
        return run_script(folder / spec.job.entrypoint, spec.job.args)
    return _guarded(lambda: _run_recipe(spec))


def run_script(script: Path, args: Sequence[str]) -> int:
    """Run ``script`` as ``python script args…`` would, and return its exit status.

    An exception that it doesn't catch is printed, and is status 1.
    """
    sys.argv = [str(script), *args]
    sys.path[0] = str(script.parent)
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    return _guarded(lambda: exec(_compiled(script), module.__dict__))


def _compiled(script: Path) -> types.CodeType:
    """Without the ``from __future__`` of this module."""
    return compile(script.read_bytes(), str(script), "exec", dont_inherit=True)


def _run_recipe(spec: JobSpec) -> None:
    """What runs in place of a script, or beside it. Both are made of what scripts import, so they
    lie above this package, and are found by name."""
    importlib.import_module(RECIPES if spec.plain is None else PLAIN).main(spec)


def _guarded(work: Callable[[], None]) -> int:
    """Do that at the top of the process, and return the exit status that it means."""
    try:
        work()
    except SystemExit as end:
        return _status(end.code)
    except BaseException as error:
        # Whatever the script raised is its end, but what its own processes have made it lack.
        if RERUNS.reason():
            return 1
        _explain(error)
        lines = traceback.format_exception(type(error), error, _below(error.__traceback__))
        STDERR.say("".join(lines).rstrip("\n"))
        return 1
    return 0


def _cure_of(error: Exception) -> str:
    from elasticd.launchd.protected import kept_out  # it loads more, and few scripts end so

    return kept_out(error)


def _explain(error: BaseException, cure_of: Callable[[Exception], str] = _cure_of) -> None:
    """Put the cure behind it where macOS has kept a file from the script, as it does in a person's
    Documents: 'Operation not permitted' names none."""
    met: BaseException | None = error
    seen = set[int]()
    while met is not None and id(met) not in seen:
        if isinstance(met, OSError) and met.filename is not None and (cure := cure_of(met)):
            error.add_note(cure)
            return
        seen.add(id(met))
        met = met.__cause__ or met.__context__


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    STDERR.say(str(code))
    return 1


def _below(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the script's."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
