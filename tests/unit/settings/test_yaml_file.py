"""What no job can be made of is refused once, by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.errors import ConfigError
from elasticd.settings.yaml_file import DEEPEST, read

pytest.importorskip("yaml")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("x: 1\na: &a [*a]\n", 2, "holds itself"),
        ("x: 1\na: &a {b: *a}\n", 2, "holds itself"),
        ("x: 1\n? &a [*a]\n: 2\n", 2, "a key must be a word"),
        ("x: 1\na: !!timestamp x\n", 2, "'x' is no timestamp"),
        ("x: 1\na: !!bool x\n", 2, "'x' is no bool"),
        ("x: 1\na: !!int ''\n", 2, "'' is no int"),
        ("x: 1\na: !!float x\n", 2, "could not convert"),
        ("x: 1\na: !!python/object x\n", 2, "could not determine a constructor"),
        (f"x: 1\na: {'[' * DEEPEST}{']' * DEEPEST}\n", 2, f"lies in more than {DEEPEST} others"),
        (f"a: {'[' * 5000}{']' * 5000}\n", None, f"has more than {DEEPEST} tables and lists"),
    ],
)
def test_it_is_refused(tmp_path: Path, text: str, line: int | None, why: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "job.yaml")
    where = f"{tmp_path / 'job.yaml'}:" + (f"{line}:" if line else "")
    assert str(caught.value).startswith(where) and why in str(caught.value)


def test_what_is_named_twice_is_there_twice(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("a: &a [1e-5, {b: yes}]\nc: [*a, *a]\n")
    value, places = read(tmp_path / "job.yaml")
    assert value["c"] == [[1e-5, {"b": True}]] * 2
    assert places[("c",)].line == 2
