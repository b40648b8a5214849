"""Changing a key of elasticd.toml leaves everything else as it was written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.settings.toml_change import with_keys

WRITTEN = """\
# My first Mac.
node_id = 'mac-1'    # as on its label

peers = [            # the others
  "10.0.0.2:7070",   # mac-2
]

# What stays.
[keep]
days = 3
listen = "not this"
"""


def test_each_key_is_changed_in_its_place() -> None:
    changed = with_keys(WRITTEN, {"node_id": "mac-9", "peers": ("a:1", "b:2"), "listen": "h:1"})
    assert changed == (
        "# My first Mac.\n"
        'node_id = "mac-9"    # as on its label\n'
        "\n"
        'peers = ["a:1", "b:2"]\n'
        'listen = "h:1"\n'
        "\n"
        "# What stays.\n"
        "[keep]\n"
        "days = 3\n"
        'listen = "not this"\n'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'listen = "h:1"\n'),
        ("# nothing yet", '# nothing yet\nlisten = "h:1"\n'),
        ("# all\n\n[keep]\ndays = 1\n", '# all\n\nlisten = "h:1"\n\n[keep]\ndays = 1\n'),
        ("[keep]\n", 'listen = "h:1"\n\n[keep]\n'),
        ('listen = "x:1"', 'listen = "h:1"'),
        ('"listen" = """\nx:1""" # old\r\na = 1\r\n', '"listen" = "h:1" # old\r\na = 1\r\n'),
        ("# all\n#listen = 'x:1'\n[keep]\n", '# all\nlisten = "h:1"\n[keep]\n'),
        ("# listen = to nobody\n", '# listen = to nobody\nlisten = "h:1"\n'),
        ("# listen = 1 # why\n", '# listen = 1 # why\nlisten = "h:1"\n'),
        ("[keep]\n# listen = 1\n", 'listen = "h:1"\n\n[keep]\n# listen = 1\n'),
        ('x = """\n[no]\n# """\n', 'listen = "h:1"\nx = """\n[no]\n# """\n'),
        ("x = [\n [1],\n [2]]\n", 'x = [\n [1],\n [2]]\nlisten = "h:1"\n'),
    ],
)
def test_a_key_that_is_new_or_old(before: str, after: str) -> None:
    assert with_keys(before, {"listen": "h:1"}) == after


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("", 3, "[keep]\ndays = 3\n"),
        ("a = 1\n[keep]\njobs = 2 # two\n", 3, "a = 1\n[keep]\njobs = 2 # two\ndays = 3\n"),
        ("[keep]\n# days = 30\n# jobs = 9\n", 3, "[keep]\ndays = 3\n# jobs = 9\n"),
        ("# days = 30\n[keep]\n# days = 30", 3, "# days = 30\n[keep]\ndays = 3"),
        ("[keep]\ndays = 1 # one\n\n[t]\n", 3, "[keep]\ndays = 3 # one\n\n[t]\n"),
        ("keep.days = 1\na = 1\n", 3, "keep.days = 3\na = 1\n"),
        ("keep = { jobs = 2, days = 1 } # x\n", 3, "keep = { jobs = 2, days = 3 } # x\n"),
        ("a = 1\n[keep]\ndays = 1\njobs = 2\n", None, "a = 1\n[keep]\njobs = 2\n"),
        ("[keep]\njobs = 2\n", None, "[keep]\njobs = 2\n"),
        ("a = 1\n", None, "a = 1\n"),
    ],
)
def test_a_key_of_a_table(before: str, value: int | None, after: str) -> None:
    assert with_keys(before, {"keep.days": value}) == after


def test_a_table_is_no_key() -> None:
    with pytest.raises(ValueError, match="keep is no table"):
        with_keys("keep = 1\n", {"keep.days": 3})
    with pytest.raises(ValueError, match="listen is a table"):
        with_keys("[listen]\n", {"listen": "h:1"})


_comments = st.from_regex(r"#[ a-z\[\]\"'=#]{0,8}", fullmatch=True)
_names = st.sampled_from(["node_id", "listen", "peers", "a", "b.c", "b.d", '"q#"'])
_values = st.sampled_from(
    ['"x"', "'#'", "1", "true", "[]", '[ "a", # one\n "b" ]', '"""\n# no\n[x]\n"""', "{ x = 1 }"]
)
_pairs = st.builds(
    lambda name, value, comment: f"{name} = {value} {comment}",
    _names, _values, st.just("") | _comments,
)  # fmt: skip
_lines = st.lists(st.just("") | _comments | _pairs, max_size=6)
_tables = st.sampled_from(
    [
        "",
        "[keep]\n# days = 9\n",
        "keep.days = 2\n",
        "keep = { days = 1 } # y\n",
        "[keep]\n",
        "  [[t]]\nlisten = 1\n",
        "[keep] # x\npeers = 1\n",
    ]
)


@given(_lines, _tables, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.text(max_size=9))
def test_nothing_else_changes(
    lines: list[str], tables: str, end: str, last: bool, value: str
) -> None:
    text = "\n".join(lines) + ("\n" if last or tables else "") + tables
    text = text.replace("\n", end)
    try:
        there: dict[str, Any] = tomllib.loads(text)
    except ValueError:
        return  # a key twice
    keep = there.get("keep", {})
    if isinstance(keep, dict):
        assert tomllib.loads(with_keys(text, {"keep.days": 5})) == {
            **there,
            "keep": {**keep, "days": 5},
        }
        left = tomllib.loads(with_keys(text, {"keep.days": None})).get("keep", {})
        assert left == {name: item for name, item in keep.items() if name != "days"}
    for key in ("node_id", "listen", "peers"):
        if isinstance(there.get(key), dict):
            continue
        changed = with_keys(text, {key: value})
        assert tomllib.loads(changed) == {**there, key: value}
        # Every line that isn't the key's own is still there, in order.
        rest = iter(changed.splitlines())
        own = there.get(key)
        kept = [line for line in text.splitlines() if line.lstrip()[:1] == "#"]
        if not isinstance(own, list | str):
            assert all(any(line == each for each in rest) for line in kept)
