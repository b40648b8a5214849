"""Other values for keys of a TOML text, which stays as people wrote it: comments, order, blanks."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from elasticd.settings.rules import Value


def with_keys(text: str, values: Mapping[str, Value | None]) -> str:
    """``text`` with these keys, ``table.key`` for one in a table; None: the key goes. One that is
    new takes the place of a comment that shows it (``# key = …``), or else comes behind the keys of
    its table.

    Raises:
        ValueError: it is no TOML, or a key is a table there, or a table a key.
    """
    for key, value in values.items():
        text = _with_key(text, tuple(key.split(".")), value)
    return text


def _with_key(text: str, path: tuple[str, ...], value: Value | None) -> str:
    wanted = _changed(tomllib.loads(text), path, value)
    for changed in _ways(text, path, value):
        if _is(changed, wanted):
            return changed
    raise ValueError(f"{'.'.join(path)} can't be changed there; write it by hand")


def _changed(there: Mapping[str, Any], path: tuple[str, ...], value: Value | None) -> Any:
    wanted = copy.deepcopy(dict(there))
    table: Any = wanted
    for depth, name in enumerate(path[:-1], start=1):
        table = table.setdefault(name, {}) if value is not None else table.get(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"{'.'.join(path[:depth])} is no table")
    if isinstance(table.get(path[-1]), dict):
        raise ValueError(f"{'.'.join(path)} is a table")
    if value is None:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = _plain(value)
    return wanted


def _ways(text: str, path: tuple[str, ...], value: Value | None) -> Iterator[str]:
    """Each may be another change than the one that is wanted: a line may lie in a text, say."""
    there, name = _table(tomllib.loads(text), path[:-1]), path[-1]
    if value is not None and name not in there:
        pair = tomlkit.dumps({name: _plain(value)}).rstrip("\n")
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # splitlines knows more ends than TOML
        yield from _uncommented(lines, name, pair)
        if len(path) == 1:
            yield from (_inserted(lines, at, pair) for at in (_behind_keys(lines), 0))
    yield _edited(text, path, value)


def _edited(text: str, path: tuple[str, ...], value: Value | None) -> str:
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for name in path[:-1]:
            if value is not None and name not in table:
                table[name] = tomlkit.table()
            table = table.get(name, {})
        if value is not None:
            table[path[-1]] = _plain(value)
        elif path[-1] in table:
            del table[path[-1]]
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _uncommented(lines: list[str], name: str, pair: str) -> Iterator[str]:
    for at, line in enumerate(lines):
        found = re.fullmatch(rf"#[ \t]*({re.escape(name)}[ \t]*=[^\r\n#]*)(\r?\n|)", line)
        if found and _is_toml(found[1]):  # and no prose, nor a comment behind it
            yield "".join([*lines[:at], pair, found[2], *lines[at + 1 :]])


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


def _table(there: Any, path: tuple[str, ...]) -> Mapping[str, Any]:
    for name in path:
        there = there.get(name, {})
    return there if isinstance(there, Mapping) else {}


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is(text: str, wanted: Mapping[str, object]) -> bool:
    try:
        return _without_empty(tomllib.loads(text)) == _without_empty(wanted)
    except ValueError:
        return False


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


def _without_empty(tables: Mapping[str, object]) -> dict[str, object]:
    """A table of which every key has gone may go, or stay."""
    return {name: item for name, item in tables.items() if item != {}}
