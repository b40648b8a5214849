"""The kernel's dead-man: it ends the process if it isn't armed again in time.

A process may hang with the interpreter's lock held, so this is a timer with the default action,
which needs no Python. One that is stopped takes no SIGALRM before it goes on. SIGKILL ends it, but
only Linux has timers that send another signal than SIGALRM. Elsewhere a stopped process ends when
it goes on, or when the next daemon of its home or ``local down`` finds it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

STOPPED_SECONDS = 1.0
"""So much later than others a stopped process ends: SIGALRM, which says why, goes first."""

_CLOCK_MONOTONIC = 1
_SIGEVENT_BYTES = 64
_NANOSECONDS = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class _SigEvent(ctypes.Structure):
    """struct sigevent of sigevent(3type), as far as SIGEV_SIGNAL (0) needs it."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * (_SIGEVENT_BYTES - ctypes.sizeof(ctypes.c_void_p) - 8)),
    )


class DeadMan:
    """Of this process. Any thread may arm it; the first time the main thread should."""

    def __init__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a parent may have had it ignored
        self._kill = _kill_timer()

    def arm(self, seconds: float) -> None:
        """The process ends in so many seconds; 0: it does not."""
        signal.setitimer(signal.ITIMER_REAL, seconds)
        if self._kill is not None:
            libc, timer = self._kill
            later = seconds + STOPPED_SECONDS if seconds else 0.0
            whole, nanoseconds = divmod(round(later * _NANOSECONDS), _NANOSECONDS)
            spec = _TimerSpec(value=_TimeSpec(whole, nanoseconds))
            libc.timer_settime(timer, 0, ctypes.byref(spec), None)


def _kill_timer() -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    """A timer of timer_create(2) that sends SIGKILL; None where there are none."""
    if sys.platform != "linux":
        return None
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = _SigEvent(number=signal.SIGKILL)
    try:
        failed = libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
    except AttributeError:  # a C library that has it elsewhere
        return None
    return None if failed else (libc, timer)
