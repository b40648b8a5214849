"""Telling systemd how the daemon itself is (sd_notify(3)). Elsewhere every call does nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLES = ("WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends datagrams to the service manager; never blocks and never fails its caller.

    Attributes:
        watchdog_seconds: how often the manager wants to hear :meth:`watchdog`, at the latest; 0: it
            doesn't. Call it twice as often.
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self.watchdog_seconds = watchdog_seconds
        # A leading @ stands for Linux's abstract names, which begin with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Notifier:
        """What the manager asked this process for; a watchdog meant for another pid is ignored."""
        environment = os.environ if environment is None else environment
        usec, pid = (environment.get(name, "") for name in WATCHDOG_VARIABLES)
        ours = pid in ("", str(os.getpid()))
        seconds = int(usec) / 1e6 if usec.isdecimal() and ours else 0.0
        return cls(environment.get(SOCKET_VARIABLE, ""), seconds)

    def ready(self, status: str = "") -> bool:
        """READY=1: the daemon serves. Whether somebody was told."""
        return self._send("READY=1", status)

    def watchdog(self) -> bool:
        """WATCHDOG=1: the daemon's loop turns."""
        return self._send("WATCHDOG=1")

    def stopping(self, status: str = "") -> bool:
        """STOPPING=1: a deliberate stop has begun."""
        return self._send("STOPPING=1", status)

    def _send(self, state: str, status: str = "") -> bool:
        if not self._address:
            return False
        line = status.replace("\n", " ")
        text = f"{state}\nSTATUS={line}" if line else state
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except (OSError, ValueError):
            return False
        return True
