"""The daemon that waits long for what nodes say of themselves: ``patient.py run --home HOME``.

Nothing else is different. With the usual one a job's first shares follow what is said in 2 s, which
a busy machine may not do.
"""

from __future__ import annotations

import sys

from elasticd.shell import daemon
from elasticd.shell.control import firstshares, preflightdesk

if __name__ == "__main__":
    firstshares.ANSWER_SECONDS = preflightdesk.ANSWER_SECONDS = 60.0
    sys.exit(daemon.main(sys.argv[1:]))
