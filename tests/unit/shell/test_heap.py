"""Large blocks go back to the system."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from elasticd.shell.heap import LARGE_BYTES, give_back_large_blocks

FREED_AND_TAKEN = """
import ctypes
import sys
from elasticd.shell.heap import LARGE_BYTES, give_back_large_blocks

class Found(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Found
if sys.argv[1] == "set":
    assert give_back_large_blocks()
large = bytes(26 << 20)  # a journal of years
del large
before = libc.mallinfo2().hblkhd
kept = [bytes(2 * LARGE_BYTES) for _ in range(8)]
print((libc.mallinfo2().hblkhd - before) // LARGE_BYTES)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not glibc 2.33 or newer")
@pytest.mark.parametrize(("how", "mapped"), [("set", True), ("as it is", False)])
def test_what_is_large_is_mapped_by_itself_whatever_was_freed(how: str, mapped: bool) -> None:
    command = [sys.executable, "-c", FREED_AND_TAKEN, how]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (int(said) >= 16) == mapped


def test_a_c_library_without_that_setting_is_left_alone() -> None:
    assert not give_back_large_blocks(SimpleNamespace(free=None))
    asked = list[tuple[int, int]]()

    def refuses(*given: int) -> int:
        asked.append((given[0], given[1]))
        return 0

    assert not give_back_large_blocks(SimpleNamespace(mallopt=refuses))
    assert asked == [(-3, LARGE_BYTES)]
