"""Probes of MLX: they pass on its CPU build, and say what is wrong where bits or errors differ."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from elasticd.cli.mac import metal

METAL_SAYS = "[metal::malloc] Attempting to allocate 99 bytes which is greater than the maximum"


def test_what_mlx_computes_here_has_the_same_bits(tmp_path: Path) -> None:
    assert metal.grain(tmp_path).verdict == "pass"
    assert metal.adamw(tmp_path).verdict == "pass"
    assert metal.embedding(tmp_path, times=3).verdict == "pass"


def test_a_gradient_that_differs_is_told(tmp_path: Path) -> None:
    found = metal.grain(tmp_path, map(str, itertools.count()).__next__)
    assert found.verdict == "fail" and "exact: no" in found.cure


def test_a_gpu_that_has_others_to_serve_is_told(tmp_path: Path) -> None:
    found = metal.grain(tmp_path, lambda: "a", lambda: 0.2)
    assert (found.verdict, "200.00 ms" in found.value) == ("warn", True)
    assert found.cure.startswith("Each step takes so much longer")
    assert metal.grain(tmp_path, lambda: "a", lambda: 0.0001).verdict == "pass"


def test_an_update_that_differs_is_told(tmp_path: Path) -> None:
    found = metal.adamw(tmp_path, map(str, itertools.count()).__next__, lambda: "0")
    assert found.verdict == "fail" and "require_exact" in found.cure
    found = metal.adamw(tmp_path, lambda: "a", lambda: "b")
    assert found.verdict == "pass" and found.value.startswith("a, on the CPU b")


def test_an_embedding_whose_sums_come_in_any_order_is_told_with_the_one_hot_form(
    tmp_path: Path,
) -> None:
    found = metal.embedding(tmp_path, map(str, itertools.cycle("aab")).__next__, 6)
    assert (found.verdict, found.value) == ("warn", "2 different results of 6")
    assert "mx.arange(words)" in found.cure


def raises(text: str) -> None:
    raise RuntimeError(text)


def test_short_memory_that_mlx_survives(tmp_path: Path) -> None:
    found = metal.shortage(tmp_path, lambda: raises(METAL_SAYS), lambda: "a", metal=True)
    assert found.verdict == "pass" and METAL_SAYS in found.value


@pytest.mark.parametrize(
    ("said", "after", "value"),
    [
        ("", "a", "more memory than there is was given"),
        ("something new", "a", "not known as short memory: something new"),
        ("ended by SIGSEGV", "a", "not known as short memory"),
        (METAL_SAYS, "b", "afterwards MLX computes something else"),
    ],
)
def test_short_memory_that_is_none_or_breaks_mlx_is_told(
    tmp_path: Path, said: str, after: str, value: str
) -> None:
    results = iter(["a", after])
    found = metal.shortage(
        tmp_path, lambda: raises(said) if said else None, lambda: next(results), metal=True
    )
    assert found.verdict == "fail" and value in found.value and found.cure


def test_without_metal_another_process_ends_of_it(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import os; os.kill(os.getpid(), 11)")
    found = metal.shortage(tmp_path, lambda: metal.starve_aside(command), lambda: "a", metal=False)
    assert found.verdict == "pass" and "in a process of its own: ended by SIGSEGV" in found.value
    command = (sys.executable, "-c", "raise SystemExit('no module')")
    found = metal.shortage(tmp_path, lambda: metal.starve_aside(command), lambda: "a", metal=False)
    assert found.verdict == "fail" and "no module" in found.value
