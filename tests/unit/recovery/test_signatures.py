"""Ends of processes and what they are taken for."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from elasticd.recovery.signatures import (
    SIGBUS,
    SIGNATURES,
    LastMemory,
    cause_of_exit,
    last_words,
    of_text,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("status", "tail", "fault"),
    [
        (1, "RuntimeError: [metal::malloc] Attempting to allocate 9 bytes which is", "oom"),
        (1, "RuntimeError: [metal::malloc] Resource limit (499000) exceeded.", "oom"),
        (1, "RuntimeError: [malloc] Unable to allocate 123 bytes.", "oom"),
        (
            1,
            "RuntimeError: [METAL] Command buffer execution failed: Insufficient Memory "
            "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
            "oom",
        ),
        (-6, "terminate called\n  what():  std::bad_alloc", "oom"),
        (1, "RuntimeError: CUDA error: out of memory", "oom"),
        (1, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate", "oom"),
        (1, "Traceback\nMemoryError", "oom"),
        (-6, "terminate called\n[METAL] Command buffer execution failed: Caused GPU Hang", "gpu"),
        (1, "RuntimeError: [ring] connection to a peer was lost", "link_lost"),
        (1, "RuntimeError: [jaccl] Changing queue pair to RTR failed", "link_lost"),
        (1, "ValueError: shapes (3,) and (4,)", "worker_exit"),
        (-9, "", "worker_exit"),
        (-11, "step 3", "worker_exit"),
        (0, "MemoryError was handled", "worker_exit"),
    ],
)
def test_last_words(status: int, tail: str, fault: str) -> None:
    found = cause_of_exit(status, tail)
    assert found.fault == fault
    assert str(abs(status)) in found.text


# As macOS words them: MTLCommandBufferError's descriptions, seen in public issues of MLX (#3267),
# llama.cpp (#8886) and Flutter (#155538, #146011).
METAL_SAYS = (
    "Internal Error (0000000e:Internal Error)",
    "Discarded (victim of GPU error/recovery)"
    " (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
    "Ignored (for causing prior/excessive GPU errors)"
    " (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
    "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)",
    "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
    "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
    "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)",
)


# MLX, backend/metal/device.cpp, event.cpp and resident.cpp; with the compiler's own words as seen
# in issues of omlx (#1335, #2983).
MLX_SAYS = (
    "[metal::Device] Unable to load kernel carg_block_sort_uint32_uint32_bn128_tn4\nUnable to reach"
    " MTLCompilerService. The process is unavailable because the compiler is no longer active.",
    "[metal::Device] Unable to build metal library from source\nCompiler encountered"
    " XPC_ERROR_CONNECTION_INVALID (is the OS shutting down?)",
    "Failed to load the default metallib. library not found library not found",
    "[metal::CommandEncoder] Failed to make new command queue.",
    "[Event::Event] Failed to create Metal shared event.",
    "[metal::Device] Unable to construct residency set.",
)


@pytest.mark.parametrize("said", MLX_SAYS)
def test_what_mlx_says_of_metals_compiler_and_libraries_speaks_of_the_machine(said: str) -> None:
    assert cause_of_exit(1, f"Traceback\nRuntimeError: {said}\n").fault == "gpu"


@pytest.mark.parametrize(
    "said",
    [
        "[metal::Device] Unable to build metal library from source\nerror: use of undeclared 'x'",
        "[metal::Device] Unable to load kernel custom_kernel_mine\nThreadgroup memory is too large",
    ],
)
def test_a_kernel_of_the_scripts_own_is_its_own_fault(said: str) -> None:
    assert cause_of_exit(1, f"Traceback\nRuntimeError: {said}\n").fault == "worker_exit"


BY_MLX = "RuntimeError: [METAL] Command buffer execution failed:"
BY_METAL = "Execution of the command buffer was aborted due to an error during execution."


@pytest.mark.parametrize(
    "line",
    [
        *(f"{BY_MLX} {said}" for said in METAL_SAYS),
        *(f"{BY_METAL} {said}" for said in METAL_SAYS if "kIOGPU" in said),
    ],
)
def test_what_metal_says_speaks_of_the_machine(line: str) -> None:
    found = cause_of_exit(1, f"Traceback\n{line}")
    assert (found.fault, found.confidence) == ("gpu", "certain") and line in found.text


def test_a_mac_without_a_gpu_is_no_failure_of_the_script() -> None:
    """It is told before the script begins, by what first asks MLX for memory."""
    said = "RuntimeError: [metal::load_device] No Metal device available. This typically occurs in"
    found = cause_of_exit(1, f"Traceback\n{said} headless, sandboxed, or virtualized sessions.")
    assert (found.fault, found.confidence) == ("gpu", "certain") and said in found.text


@pytest.mark.parametrize("status", [-9, -4, -8], ids=["SIGKILL", "SIGILL", "SIGFPE"])
def test_a_killed_process_needs_a_sign_of_short_memory(status: int) -> None:
    roomy = LastMemory(available_bytes=8 * GIB, total_bytes=16 * GIB)
    assert cause_of_exit(status, "", roomy).fault == "worker_exit"
    tight = LastMemory(available_bytes=GIB // 4, total_bytes=16 * GIB)
    found = cause_of_exit(status, "", tight)
    assert (found.fault, found.confidence) == ("oom", "possible")
    assert "256 of the machine's 16384 MiB" in found.text


def test_macos_says_itself_that_memory_is_short() -> None:
    said = "macOS reports memory pressure 4 of 4"
    memory = LastMemory(pressure=said)
    found = cause_of_exit(-9, "", memory)
    assert (found.fault, found.confidence) == ("oom", "possible") and said in found.text
    assert cause_of_exit(1, "", memory).fault == "worker_exit"


@pytest.mark.parametrize("status", [-11, 139, -5, -6, -7, -10])
def test_a_segmentation_fault_or_a_trap_at_the_limit(status: int) -> None:
    memory = LastMemory(virtual_bytes=GIB, address_space_limit_bytes=GIB + 100)
    found = cause_of_exit(status, "", memory)
    assert (found.fault, found.confidence) == ("oom", "likely")
    assert "1024 of 1024 MiB of address space" in found.text
    far = LastMemory(virtual_bytes=GIB, address_space_limit_bytes=4 * GIB)
    assert cause_of_exit(status, "", far).fault == "worker_exit"


def test_the_kernels_own_word_is_certain() -> None:
    memory = LastMemory(group_kills=1, group_limit_bytes=GIB, group_used_bytes=GIB)
    found = cause_of_exit(-9, "", memory)
    assert (found.fault, found.confidence) == ("oom", "certain")
    assert cause_of_exit(-15, "", memory).fault == "worker_exit"


def test_the_newest_line_counts() -> None:
    text = "MemoryError\nlater\n[ring] connection to a peer was lost\nend"
    assert of_text(text) == ("link_lost", "[ring] connection to a peer was lost")
    assert of_text("nothing here") is None


def test_every_signature_is_in_the_table() -> None:
    table = (Path(__file__).parents[3] / "docs" / "faults.md").read_text().lower()
    for signature in SIGNATURES:
        assert f"`{signature.text}`".replace("*", "…") in table, signature.text


def test_every_signal_that_may_mean_want_of_memory_is_in_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "faults.md").read_text()
    told = {
        (f"SIG{name}", sure)
        for seen, sure in re.findall(r"^\| (SIG.*) \| oom \| (likely|possible) \|$", page, re.M)
        for name in re.findall(r"SIG([A-Z]+)", seen)
    }
    tight = LastMemory(available_bytes=1, total_bytes=GIB)
    ends = {number: cause_of_exit(-number, "", tight) for number in signal.Signals}
    assert told == {
        ("SIGBUS" if number in SIGBUS else number.name, end.confidence)
        for number, end in ends.items()
        if end.fault == "oom"
    }


def test_of_a_traceback_what_was_raised_is_said_whatever_stands_below() -> None:
    above = 'Traceback …\n  File "a.py", line 1, in <module>\n    f()\n    ^^^\n'
    again = f"{above}KeyError: 1\n\nDuring handling of the above exception:\n\n{above}"
    for text, said in (
        ("", ""),
        ("one\n two \n\n", "two"),
        (f"{above}ValueError: no\n", "ValueError: no"),
        (f"{above}ValueError: bad row:\n    5\n  why\n", "ValueError: bad row: … why"),
        (f"{again}ValueError: no\nsee the docs\n", "ValueError: no … see the docs"),
        (above, "^^^"),
    ):
        assert last_words(text) == said
