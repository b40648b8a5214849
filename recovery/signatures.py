"""What the end of a process says about its cause: status, last words and memory to one finding.

Only what is known is said: an end that fits no signature stays ``worker_exit``. The table in
docs/faults.md is :data:`SIGNATURES` with its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elasticd.types import Confidence, Sign

SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTRAP = 6, (7, 10), 8, 4, 9, 11, 5
FATAL_SIGNALS = (SIGILL, SIGTRAP, SIGABRT, SIGFPE, *SIGBUS, SIGSEGV)
"""Signals by which a process ends through its own doing; SIGBUS is 7 on Linux and 10 on macOS. With
SIGTRAP what a compiler makes of a failed check ends on Apple silicon, where an Intel processor has
SIGILL: macOS's libraries check their own heap and queues so."""
_OF_NO_MEMORY = (SIGSEGV, SIGTRAP, SIGABRT, *SIGBUS)

_LAST_LINES = 60
_TIGHT = 0.9
"""Above this share of a limit, memory was short."""
_LOW_AVAILABLE = 0.05


Told = Sign | Literal["gpu"]
"""What a text or an end speaks of. ``gpu``: the machine's GPU, its driver or macOS have given up
what was computed, which is no fault of the script's; it is told as a ``worker_exit``, since daemons
of before don't know it."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A text that a process prints at, or shortly before, its end."""

    text: str
    """Looked for in lower case; ``*`` stands for anything inside one line."""
    fault: Told
    where: str
    """What prints it."""


SIGNATURES = (
    Signature("[metal::malloc] attempting to allocate", "oom", "MLX, Metal allocator"),
    Signature("[metal::malloc] resource limit", "oom", "MLX, Metal allocator"),
    Signature("[malloc] unable to allocate", "oom", "MLX, any allocator"),
    Signature("[malloc_or_wait] unable to allocate", "oom", "MLX, allocator of older releases"),
    Signature("command buffer execution failed: insufficient memory", "oom", "MLX, Metal queue"),
    Signature("kiogpucommandbuffercallbackerroroutofmemory", "oom", "macOS, Metal driver"),
    Signature("cudaerrormemoryallocation", "oom", "CUDA runtime"),
    Signature("cuda_error_out_of_memory", "oom", "CUDA driver"),
    Signature("cuda*out of memory", "oom", "MLX or the CUDA runtime"),
    Signature("cublas_status_alloc_failed", "oom", "cuBLAS"),
    Signature("std::bad_alloc", "oom", "C++ runtime"),
    Signature("memoryerror", "oom", "Python"),
    Signature("cannot allocate memory", "oom", "C library, errno ENOMEM"),
    Signature("can't start new thread", "oom", "Python, when a thread's stack has no room"),
    Signature("resource temporarily unavailable: thread", "oom", "C++ runtime"),
    Signature("[metal] command buffer execution failed", "gpu", "MLX, Metal queue"),
    Signature("kiogpucommandbuffercallbackerror", "gpu", "macOS, Metal driver"),
    Signature("[metal::load_device]", "gpu", "MLX, where Metal lists no GPU"),
    Signature("[metal::device] unable to construct residency set", "gpu", "MLX, Metal device"),
    Signature(
        "failed to load the default metallib",
        "gpu",
        "MLX, where its own library of kernels is not to be had",
    ),
    Signature("] failed to make new command queue", "gpu", "MLX, Metal queue"),
    Signature("[event::event] failed to create metal shared event", "gpu", "MLX, Metal event"),
    Signature("[event::wait] timed out", "gpu", "MLX, Metal event"),
    Signature(
        "mtlcompilerservice", "gpu", "macOS, Metal's compiler, which is a process of its own"
    ),
    Signature(
        "xpc_error_connection", "gpu", "the same, where MLX says that it can't build a library"
    ),
    Signature("[ring] connection to a peer was lost", "link_lost", "MLX, ring"),
    Signature("[ring]*couldn't connect", "link_lost", "MLX, ring"),
    Signature("[ring]*couldn't bind", "link_lost", "MLX, ring"),
    Signature("[jaccl]", "link_lost", "MLX, Thunderbolt RDMA"),
    Signature("ibv_", "link_lost", "RDMA verbs"),
)


@dataclass(frozen=True, slots=True)
class LastMemory:
    """What was last known of the memory of a process that has ended. Zero or None: not known."""

    resident_bytes: int = 0
    virtual_bytes: int = 0
    address_space_limit_bytes: int | None = None
    """RLIMIT_AS."""
    group_limit_bytes: int | None = None
    """Of the memory cgroup that it was in."""
    group_used_bytes: int = 0
    group_kills: int = 0
    """How often the kernel killed for want of memory in that cgroup since the process started."""
    available_bytes: int = 0
    total_bytes: int = 0
    pressure: str = ""
    """What macOS said of the machine's memory when it was about to run out. How much is available
    is not known there: that may be little while nothing is short."""
    waited_seconds: float = 0.0
    """Beside its memory: for so long it had been in a call of the kernel that a disk or a file
    server is to answer."""


WAITED = "it waited for a disk or a file server"
"""What the evidence of a hang says then."""
NO_MEMORY = LastMemory()


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an end, with what speaks for it in one sentence."""

    fault: Told
    text: str
    confidence: Confidence


def of_text(text: str) -> tuple[Told, str] | None:
    """(fault, line) of the last line in which a signature is found; None if there is none."""
    for line in reversed(text.splitlines()[-_LAST_LINES:]):
        lower = line.lower()
        for signature in SIGNATURES:
            if _matches(signature.text.lower(), lower):
                return signature.fault, line.strip()
    return None


def last_words(text: str) -> str:
    """What a process said at last, on one line: its last line, and of a traceback before that what
    was raised, whose message may have more lines."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    last = lines[-1].strip()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else []
    raised = next((line for line in behind if not line[0].isspace()), last)
    return last if raised == last else f"{raised} … {last}"


def _matches(pattern: str, line: str) -> bool:
    at = 0
    for part in pattern.split("*"):
        found = line.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def cause_of_exit(status: int, tail: str, memory: LastMemory | None = None) -> Cause:
    """Why a process ended.

    Args:
        status: its exit code, or minus the signal that ended it; 128 + n counts as signal n.
        tail: the last lines that it printed.
        memory: what was known of its memory, if anything.
    """
    memory = memory or NO_MEMORY
    signal = -status if status < 0 else status - 128 if 128 < status < 160 else 0
    how = f"signal {signal}" if signal else f"exit status {status}"
    if memory.group_kills and signal == SIGKILL:
        text = f"{how}: the kernel killed for want of memory in its cgroup ({_use(memory)})"
        return Cause("oom", text, "certain")
    if status != 0 and (said := of_text(tail)) is not None:
        fault, line = said
        return Cause(fault, f"{how} after: {line[:300]}", "certain" if not signal else "likely")
    short = _shortage(memory)
    if short and signal in (*FATAL_SIGNALS, SIGKILL):
        # MLX's CPU allocator doesn't check what malloc returns: a failed allocation is a SIGSEGV.
        sure: Confidence = "likely" if signal in _OF_NO_MEMORY else "possible"
        return Cause("oom", f"{how} while memory was short: {short}", sure)
    return Cause("worker_exit", how, "certain")


def _shortage(memory: LastMemory) -> str:
    limit = memory.address_space_limit_bytes
    if limit is not None and memory.virtual_bytes >= _TIGHT * limit:
        return f"{_mib(memory.virtual_bytes)} of {_mib(limit)} MiB of address space were used"
    limit = memory.group_limit_bytes
    if limit is not None and memory.group_used_bytes >= _TIGHT * limit:
        return f"its cgroup used {_use(memory)}"
    if memory.total_bytes and memory.available_bytes <= _LOW_AVAILABLE * memory.total_bytes:
        available, total = _mib(memory.available_bytes), _mib(memory.total_bytes)
        return f"{available} of the machine's {total} MiB were left"
    return memory.pressure


def _use(memory: LastMemory) -> str:
    limit = memory.group_limit_bytes
    of = f" of {_mib(limit)}" if limit is not None else ""
    return f"{_mib(memory.group_used_bytes)}{of} MiB"


def _mib(size: int) -> int:
    return size >> 20
