"""What this machine computes with, in words for people.

A Mac's ``platform.processor()`` is "arm", whatever it is. ``sysctl -n machdep.cpu.brand_string``
says "Apple M3 Max", and the GPU's driver how many cores that has (``ioreg``, key gpu-core-count):
the same chip is sold with several numbers of them.
"""

from __future__ import annotations

import platform
import plistlib
import sys
from xml.parsers.expat import ExpatError

from elasticd import systemtools
from elasticd.systemtools import Ask

BRAND = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")
GPU = ("/usr/sbin/ioreg", "-a", "-r", "-d", "1", "-c", "AGXAccelerator")
"""-a: as a property list, of a list of dictionaries; nothing where there is no such GPU."""
_CORES = "gpu-core-count"


def chip(system: str = sys.platform, ask: Ask = systemtools.printed) -> str:
    """Of this machine. May block for a moment on a Mac."""
    known = platform.processor() or platform.machine()
    if system != "darwin":
        return known
    brand = ask(BRAND) or known
    cores = _gpu_cores(ask(GPU))
    return f"{brand}, {cores} GPU cores" if cores else brand


def _gpu_cores(printed: str) -> int:
    """0: not known."""
    try:
        found = plistlib.loads(printed.encode())
        counts = [each.get(_CORES) for each in found]
    except (ValueError, TypeError, AttributeError, ExpatError):
        return 0
    return sum(count for count in counts if isinstance(count, int))
