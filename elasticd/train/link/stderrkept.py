"""What a process says of how its script ends, where its daemon reads it, too.

A script may lead its stderr elsewhere, or close it. Then the reason of its end would be in no log.
"""

from __future__ import annotations

import os
import sys


class KeptStderr:
    """Stderr as it was when :meth:`keep` was called, whatever has become of it since."""

    def __init__(self) -> None:
        self._kept = -1

    def keep(self, number: int = 2) -> None:
        """Before the script begins. ``number``: the descriptor of stderr."""
        self._kept = os.dup(number)

    def say(self, text: str) -> bool:
        """Print it as Python would, and where stderr went at first, if that is elsewhere. Whether
        anybody has it."""
        said = _printed(text)
        if self._kept < 0 or (said and self._goes_there()):
            return said
        data = (text + "\n").encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._kept, data) :]
        except OSError:  # its reader gone
            return said
        return True

    def _goes_there(self) -> bool:
        """Whether what is printed to ``sys.stderr`` comes where it came at first."""
        try:
            return os.path.samestat(os.fstat(sys.stderr.fileno()), os.fstat(self._kept))
        except Exception:  # a stream of the script's own, which may lack anything
            return False


def _printed(text: str) -> bool:
    if sys.stderr is None:  # print would take stdout
        return False
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:  # closed by the script, its reader gone, or a stream of the script's own
        return False
    return True


STDERR = KeptStderr()
"""Of this process: what runs a script is called by many, and each says how it ended."""
