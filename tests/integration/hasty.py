"""The daemon that looks for what ``[keep]`` does not keep at once: ``hasty.py run --home HOME``.

Nothing else is different. The usual one does so after a minute, then every ten minutes.
"""

from __future__ import annotations

import sys

from elasticd.shell import daemon
from elasticd.shell.storage import tidying

if __name__ == "__main__":
    tidying.FIRST_SECONDS, tidying.ROUND_SECONDS = 0.5, 0.5
    sys.exit(daemon.main(sys.argv[1:]))
