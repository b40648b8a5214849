"""A new elasticd.toml says of each key what it is, and sets nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.settings.commented import commented
from elasticd.settings.config import NodeConfig, described, parse, values_of
from elasticd.settings.toml import Document
from elasticd.settings.toml_change import with_keys

OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"


def read(text: str) -> NodeConfig:
    return parse(Document.parse(text, "elasticd.toml"))


def test_it_sets_nothing() -> None:
    assert read(commented()) == NodeConfig()


@pytest.mark.parametrize("key", sorted(described()))
def test_each_key_is_said(key: str) -> None:
    about = str(described()[key]["about"])
    assert about.endswith(".") and f"# {about}\n" in commented()
    name = key.rpartition(".")[2]
    row = next(line for line in OPERATING.read_text().splitlines() if line.startswith("|")
               and f"`{name}`" in line.split("|")[1])  # fmt: skip
    assert row


@pytest.mark.parametrize("key", sorted(described()))
def test_the_comment_becomes_the_key(key: str) -> None:
    default = values_of(NodeConfig())[key]
    changed = with_keys(commented(), {key: default})
    assert read(changed) == NodeConfig()
    before, after = commented().splitlines(), changed.splitlines()
    differ = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert len(differ) == 1 and differ[0][0].lstrip("# ") == differ[0][1]
