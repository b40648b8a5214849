"""What a machine computes with, as macOS's tools print it."""

from __future__ import annotations

import platform
import plistlib
from collections.abc import Sequence

import pytest

from elasticd.shell.assembly.chip import BRAND, GPU, chip

# As 'ioreg -a' prints it: a list of the registry's entries, nothing at all if there is none.
M3_MAX = plistlib.dumps(
    [{"IOClass": "AGXAcceleratorG15X", "gpu-core-count": 40, "x": [1]}]
).decode()


@pytest.mark.parametrize(
    ("brand", "registry", "expected"),
    [
        ("Apple M3 Max", M3_MAX, "Apple M3 Max, 40 GPU cores"),
        ("Apple M1", "", "Apple M1"),
        ("Apple M1", plistlib.dumps([{"IOClass": "AGX"}]).decode(), "Apple M1"),
        ("Apple M1", plistlib.dumps({"gpu-core-count": 8}).decode(), "Apple M1"),
        ("Apple M1", "<plist><array>", "Apple M1"),
        ("", M3_MAX, f"{platform.processor() or platform.machine()}, 40 GPU cores"),
    ],
)
def test_a_mac_is_named_as_it_is_sold(brand: str, registry: str, expected: str) -> None:
    def ask(command: Sequence[str]) -> str:
        return {BRAND: brand, GPU: registry}[tuple(command)]

    assert chip("darwin", ask) == expected


def test_elsewhere_nothing_is_asked() -> None:
    def ask(command: Sequence[str]) -> str:
        raise AssertionError(command)

    assert chip("linux", ask) == (platform.processor() or platform.machine())


def test_without_these_tools_it_is_what_python_says() -> None:
    """As on any machine that is no Mac."""
    assert chip("darwin").startswith(platform.processor() or platform.machine())
