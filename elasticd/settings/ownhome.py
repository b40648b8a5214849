"""Whether a home is out of other accounts' reach."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from shlex import quote

from elasticd.errors import UsageError


def refuse_open(home: Path, me: int | None = None) -> None:
    """Whoever owns a folder, or may write there, could replace the control socket, drop a job, or
    lay a link by which we write elsewhere.

    Args:
        me: whose the home is to be; None: the account of this process.

    Raises:
        UsageError: another account than that or root could do so.
    """
    me = os.geteuid() if me is None else me
    found = home.stat()
    if found.st_uid not in (0, me):
        raise UsageError(
            f"{home} belongs to another account of this machine ({account_name(found.st_uid)}),"
            " which could command the daemon so: ask as that account, name another home, or"
            f" 'chown -R {account_name(me)} {quote(str(home))}' if what is in it is to be trusted"
        )
    if found.st_mode & stat.S_IWOTH:
        raise UsageError(
            f"{home} can be written by every account of this machine, which could command the"
            f" daemon so: chmod 700 {quote(str(home))}"
        )


def account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
