"""The program of every node: ``elasticd run``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from structlog.typing import EventDict, WrappedLogger

from elasticd.build import build
from elasticd.errors import INCURABLE, ElasticdError
from elasticd.launchd.otherdisk import require_mounted
from elasticd.launchd.plist import INCURABLE_ENDS_WELL
from elasticd.settings import config
from elasticd.settings.ownhome import make_private
from elasticd.settings.places import FILE_NAME, default_home
from elasticd.settings.rules import one_line
from elasticd.shell.assembly.daemon import AGAIN, Daemon
from elasticd.shell.children.environment import SEARCHED, absolute_path_list
from elasticd.shell.control.server import lock_home
from elasticd.shell.heap import give_back_large_blocks
from elasticd.shell.network.ownaddresses import OwnHosts
from elasticd.shell.storage import ownlog, ownsigns
from elasticd.shell.storage.starting import refuse_hindered

_FILES = 4096

log = structlog.get_logger(__name__)


class _Printable(structlog.processors.LogfmtRenderer):
    """What a script or another node has said steers no terminal that shows the log."""

    def __call__(self, logger: WrappedLogger, name: str, event_dict: EventDict) -> str:
        return one_line(super().__call__(logger, name, event_dict))


def main(
    arguments: Sequence[str] | None = None, mounted: Callable[[Path], None] = require_mounted
) -> int:
    """``elasticd``: exit code 0 after a deliberate stop, 1 after a failure, 2 for wrong usage, 4
    where what it has stored is damaged."""
    parser = argparse.ArgumentParser(
        prog="elasticd",
        description="The elasticd daemon: one runs on every node, under launchd or systemd.",
        epilog="Example: elasticd run --home ~/.local/state/elasticd",
    )
    parser.add_argument("--version", action="version", version=build())
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="run in the foreground, for launchd and systemd",
        epilog="Example: elasticd run --home /tmp/mac-1",
    )
    run.add_argument("--home", type=Path, help="the state folder (default: the system's usual)")
    run.add_argument("--config", type=Path, help="elasticd.toml (default: the one in the home)")
    run.add_argument("--insecure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.insecure:
        text = "--insecure does nothing any more: connections are encrypted, and for members only"
        print(f"elasticd: {text}", file=sys.stderr)
    try:
        return _run(given.home or default_home(), given.config, mounted)
    except (ElasticdError, OSError) as error:
        print(f"elasticd: {error}", file=sys.stderr)
        code: int = getattr(error, "exit_code", 1)
        if code in INCURABLE and INCURABLE_ENDS_WELL in os.environ:
            then = "when that is done: elasticctl service start"
            print(
                f"elasticd: no restart cures that, so it is not started again; {then}",
                file=sys.stderr,
            )
            return 0
        return code


def _run(home: Path, file: Path | None, mounted: Callable[[Path], None]) -> int:
    began_in = _working_folder()
    home = home.absolute()
    mounted(home)  # before a new home is made in the place of a disk
    if file is not None:
        file = file.absolute()
        config.load(home, file)  # what is wrong there changes nothing
    make_private(home)
    refuse_hindered(home, file)
    settings = config.load(home, file)
    lock = lock_home(home)
    try:
        _prepare(home)
        ownsigns.lay(home)
        file, own = file or home / FILE_NAME, OwnHosts()
        found = own.fill_in(settings)  # before the loop: it may wait for a Mac's tools
        code = asyncio.run(_main(home, found, file, settings, own))
    finally:
        os.close(lock)
    if code == AGAIN:
        log.info("daemon begins anew", home=str(home))
        with contextlib.suppress(OSError):  # what it was started with may be relative to it
            os.chdir(began_in)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return code


def _working_folder() -> str:
    """Empty if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


async def _main(
    home: Path, settings: config.NodeConfig, file: Path, said: config.NodeConfig, own: OwnHosts
) -> int:
    return await Daemon(home, settings, file, said, own).run()


def _prepare(home: Path) -> None:
    if searched := os.environ.get(SEARCHED):  # children find elasticd by it, from other folders
        os.environ[SEARCHED] = absolute_path_list(searched)
    os.chdir(home)  # Unix socket paths are short; ours are relative to the home
    os.umask(0o077)
    give_back_large_blocks()
    with contextlib.suppress(OSError):  # closed, say; it is no reason not to run
        ownlog.close_to_others(home)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _Printable(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=ownlog.forgiving(sys.stderr)),
    )


if __name__ == "__main__":
    sys.exit(main())
