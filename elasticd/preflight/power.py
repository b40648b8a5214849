"""What ``pmset -g``, ``fdesetup``, ``notifyutil`` and macOS's firewall say, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from elasticd.pasting import pasted, word
from elasticd.preflight.finding import ProbeFinding, passed, warned

_SLEEP, _RESTART, _NAP = ("sleep", "0"), ("autorestart", "1"), ("powernap", "0")
"""As pmset should tell them. A laptop that is closed wakes up for seconds about every half hour,
unless the last is 0: its daemon joins the job, and is gone again."""
_NEVER = ("SleepDisabled", "1")
"""Of ``sudo pmset disablesleep 1``: it never sleeps, whatever else is said."""
LOW_POWER = ("lowpowermode", "powermode")
"""Each says by 1 that Low Power Mode is on: a Mac that knows High Power, too, has the second."""
FIREWALL = "/usr/libexec/ApplicationFirewall/socketfilterfw"


THERMAL = ("/usr/bin/notifyutil", "-g", "com.apple.system.thermalpressurelevel")
NOMINAL = "nominal"
_HEAT = (NOMINAL, "moderate", "heavy", "trapping", "sleeping")
"""By macOS's number."""

FILEVAULT = ("/usr/bin/fdesetup", "status")
SERVICES = ("/bin/launchctl", "print-disabled", "system")
"""Neither takes root."""
_REMOTE_LOGIN = re.compile(r'"com\.openssh\.sshd" => enabled')
_SSH_UNLOCKS = 26
"""The macOS from which on it does (apple_ssh_and_filevault(7))."""
Locked = Literal["", "ssh", "screen"]
"""What FileVault asks for the password after a restart; empty: nothing, or nobody can say. Until
then neither the disk nor a service is there."""
_LOCKED: Mapping[str, str] = {
    "ssh": "FileVault is on, and ssh unlocks it after a restart",
    "screen": "FileVault is on: after a restart it waits for a password",
}
_UNLOCK = (
    "Remote Login (System Settings > General > Sharing) lets ssh with the account's password unlock"
    " it after a restart, from macOS 26 on. Before one of your own say 'sudo fdesetup authrestart'"
)


def locked_by(vault: str, services: str, release: str) -> Locked:
    """By what :data:`FILEVAULT` and :data:`SERVICES` print, and macOS's version."""
    if "filevault is on" not in vault.lower():
        return ""
    major = release.partition(".")[0]
    knows = major.isdecimal() and int(major) >= _SSH_UNLOCKS
    return "ssh" if knows and _REMOTE_LOGIN.search(services) else "screen"


def heat_of(printed: str) -> str:
    """The level that ``notifyutil`` prints behind the name, as a word; empty: it tells none."""
    number = (printed.split() or [""])[-1]
    return _HEAT[int(number)] if number.isdecimal() and int(number) < len(_HEAT) else ""


def settings_of(printed: str) -> Mapping[str, str]:
    """The lines of ``pmset -g``: a name, a value, sometimes a remark in parentheses."""
    words = (line.split() for line in printed.splitlines())
    return {each[0]: each[1] for each in words if len(each) >= 2}


def stays_awake(
    found: Mapping[str, str], where: str = "", *, portable: bool, locked: str = ""
) -> ProbeFinding:
    """Whether a Mac's settings let it fall asleep, or stay off after a power cut or any other
    restart. ``portable``: it has a battery. ``locked``: as :func:`locked_by` tells. ``where`` the
    cure begins with."""
    wanted = (_SLEEP, _RESTART, _NAP) if portable else (_SLEEP, _RESTART)
    if found.get(_NEVER[0]) == _NEVER[1]:
        wanted = (_RESTART, _NEVER)
    told = [f"{name} {found[name]}" for name, _ in wanted if name in found]
    value = ", ".join([*told, *([_LOCKED[locked]] if locked in _LOCKED else [])])
    wrong = [each for each in wanted if found.get(each[0], each[1]) != each[1]]
    cures = []
    if wrong:
        asked = "".join(f" {word(name)} {word(value)}" for name, value in wrong)
        cures += ["sudo pmset -a" + asked]
    if _NAP in wrong:
        cures += ["Drain a laptop before you close it"]
    if locked == "screen":
        cures += [_UNLOCK]
    if not cures:
        return passed(value or "pmset tells neither sleep nor autorestart")
    return warned(value, where + ". ".join(cures))


def low_power(found: Mapping[str, str]) -> str:
    """The setting that has a Mac compute slowly now; empty: none does."""
    return next((name for name in LOW_POWER if found.get(name) == "1"), "")


def firewall_is_off(said: str) -> bool:
    """By the first line of ``socketfilterfw --getglobalstate``."""
    return "disabled" in said.lower() or "state = 0" in said.lower()


def let_in(program: str, said: str) -> str:
    """How a program is let through macOS's firewall, which said that of itself, as a cure. State 2:
    it lets nothing in but what macOS needs, whatever was allowed."""
    add, unblock = (pasted(f"sudo {FIREWALL} --{do}", program) for do in ("add", "unblockapp"))
    cure = f"let Python in: {add} && {unblock}"
    if "state = 2" in said.lower():
        return f"It blocks all incoming connections: sudo {FIREWALL} --setblockall off. Then {cure}"
    return f"If peers can't connect to this Mac, {cure}"
