"""An ssh that runs commands on this machine, each host with a home folder of its own."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = r"""#!/bin/sh
while true; do
  case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac
done
host=$1
shift
echo "$host $*" >> '{folder}/said'
case $host in
  refuses) echo "$host: Permission denied (publickey)." >&2; exit 255 ;;
  hangs*)
    sleep 1000 &
    echo $! $$ >> '{folder}/hang'
    wait ;;
  wrong) echo '{{"node": "wrong"}}'; exit 0 ;;
  lacks) set -- no-such-program ;;
esac
export HOME='{folder}'/$host ELASTICD_HOME='{folder}'/$host/state
mkdir -p "$ELASTICD_HOME"
chmod 700 "$HOME" "$ELASTICD_HOME"
cd "$HOME" || exit 254
[ -e "$ELASTICD_HOME/elasticd.toml" ] || echo "node_id = '$host'" > "$ELASTICD_HOME/elasticd.toml"
echo "Welcome to $host"
exec /bin/sh -c "$*"
"""


@dataclass(frozen=True)
class FakeSsh:
    """Hosts called ``refuses``, ``hangs…``, ``wrong`` and ``lacks`` are as their names say."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> FakeSsh:
        """In ``folder``, which is new."""
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "ssh"
        program.write_text(_SCRIPT.format(folder=folder))
        program.chmod(0o755)
        return cls(folder)

    @property
    def path(self) -> str:
        """Of the environment."""
        own = Path(sys.executable).parent
        return os.pathsep.join([str(self.folder / "bin"), str(own), os.environ["PATH"]])

    def home(self, host: str) -> Path:
        """That of its daemon, if nothing else is said."""
        return self.folder / host / "state"

    @property
    def said(self) -> list[str]:
        """Each host with what was to be run there."""
        path = self.folder / "said"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def hanging(self) -> list[int]:
        """The processes of hosts that hang."""
        path = self.folder / "hang"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []
