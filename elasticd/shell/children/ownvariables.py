"""HOME/secrets.env: variables of this node that jobs may ask for by name (``job.pass_env``).

A service has a clean environment, and its plist or unit can be read by every account: secrets have
no place in it. The file is read anew for each trainer.
"""

from __future__ import annotations

import re
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.pasting import pasted

FILE_NAME = "secrets.env"
MOST_BYTES = 1 << 20
_LINE = re.compile(r"\s*(?P<name>[^=\s#][^=\s]*)\s*=(?P<value>.*)")


def own_variables(home: Path) -> dict[str, str]:
    """Those of the file; none if there is no file.

    Raises:
        OperationError: it can't be read, or others could, or a line is none. No value is named.
    """
    path = home / FILE_NAME
    try:
        with path.open("rb") as file:
            if path.stat().st_mode & 0o077:
                raise OperationError(
                    f"{path}: other accounts may look into it: {pasted('chmod 600', path)}"
                )
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OperationError(f"{path}: can't be read: {error.strerror}") from None
    if len(data) > MOST_BYTES or b"\0" in data:
        raise OperationError(f"{path}: has more than {MOST_BYTES} bytes, or a zero in it")
    return _parsed(data.decode("utf-8", "surrogateescape"), path)


def _parsed(text: str, path: Path) -> dict[str, str]:
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        said = _LINE.fullmatch(line)
        if said is None:
            raise OperationError(f"{path}:{number}: must be NAME=value")
        found[said["name"]] = said["value"].strip()
    return found
