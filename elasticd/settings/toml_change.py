"""Other values for keys of a TOML text, which stays as people wrote it: comments, order, blanks."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping

from elasticd.settings.toml_lines import key_lines

Value = str | int | tuple[str, ...]


def with_keys(text: str, values: Mapping[str, Value]) -> str:
    """``text`` with these keys outside of any table, each in its place or else before the tables.

    Raises:
        ValueError: it is no TOML, or a key is a table there.
    """
    for key, value in values.items():
        # Here JSON is TOML, but for one letter: whole numbers, strings, lists of those.
        listed = list(value) if isinstance(value, tuple) else value
        shown = json.dumps(listed, ensure_ascii=False).replace("\x7f", "\\u007f")
        text = _with_key(text, key, f"{key} = {shown}")
    return text


def _with_key(text: str, key: str, pair: str) -> str:
    there = tomllib.loads(text)
    if isinstance(there.get(key), dict):
        raise ValueError(f"{key} is a table")
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # splitlines knows more ends than TOML
    if key not in there:
        wanted = {**there, **tomllib.loads(pair)}
        for at in (_behind_keys(lines), 0):
            found = _inserted(lines, at, pair)
            if _is(found, wanted):
                return found
    first = key_lines(text)[(key,)] - 1
    end = first + 1
    while not _is("".join(lines[first:end]), {key: there[key]}):
        end += 1
    old = "".join(lines[first:end])
    return "".join([*lines[:first], pair, _comment(old, {key: there[key]}), *lines[end:]])


def _behind_keys(lines: list[str]) -> int:
    """The line, from 0, behind the last key that is in no table."""
    at = next((i for i, line in enumerate(lines) if _begins_tables(lines[:i], line)), len(lines))
    behind = at
    while behind and lines[behind - 1].strip()[:1] in ("", "#"):
        behind -= 1
    return behind or at  # nothing but comments, which may be about the whole file


def _begins_tables(before: list[str], line: str) -> bool:
    if not line.lstrip().startswith("["):
        return False
    try:
        tomllib.loads("".join(before))
    except ValueError:
        return False  # a list goes on, or a text
    return True


def _inserted(lines: list[str], at: int, pair: str) -> str:
    before = "".join(lines[:at])
    if before and not before.endswith("\n"):
        before += "\n"
    gap = "\n" if "".join(lines[at:]).startswith("[") else ""
    return f"{before}{pair}\n{gap}{''.join(lines[at:])}"


def _is(text: str, wanted: Mapping[str, object]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _comment(pair: str, wanted: Mapping[str, object]) -> str:
    """What follows the value: blanks, a comment, the line's end."""
    for at, letter in enumerate(pair):
        if letter in "#\r\n" and _is(pair[:at], wanted):
            kept = pair[:at].rstrip(" \t")
            return pair[len(kept) :]
    return ""
