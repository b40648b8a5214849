"""On which line of a TOML text each key is.

``tomllib`` reports no line for a value that is well formed and wrong.
"""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str, ...]
"""The names that lead to a key; an item of an array is ``[0]``, ``[1]``, …"""


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, on which each key, table or array item of valid TOML text first appears."""
    return _Scanner(text).scan()


class _Scanner:
    """Walks over TOML text that ``tomllib`` has accepted, so it needn't notice mistakes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._line, self._counted = 1, 0

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self._peek() == "[":
                self._skip("[")
                table = self._keys(())
                self._skip("]")
            else:
                self._pair(table)
        return self.lines

    def _pair(self, table: KeyPath) -> None:
        path = self._keys(table)
        self._skip("=")
        self._value(path)

    def _keys(self, table: KeyPath) -> KeyPath:
        path = table
        while True:
            self._skip(" \t")
            line = self._line_here()
            path = (*path, self._key())
            self.lines.setdefault(path, line)
            self._skip(" \t")
            if self._peek() != ".":
                return path
            self.at += 1

    def _key(self) -> str:
        start = self.at
        if self._peek() in ("'", '"'):
            self._string()
            name = next(iter(tomllib.loads(f"{self.text[start : self.at]} = 0")))
        else:
            self.at = self._match(r"[A-Za-z0-9_-]*")
            name = self.text[start : self.at]
        return name

    def _value(self, path: KeyPath) -> None:
        self._skip(" \t")
        match self._peek():
            case "'" | '"':
                self._string()
            case "[":
                self._items("]", path)
            case "{":
                self._items("}", path)
            case _:
                self.at = self._match(r"[^,\]}\n#]*")

    def _items(self, close: str, path: KeyPath) -> None:
        self.at += 1
        count = 0
        while self._skip_blank() and self._peek() != close:
            if self._peek() == ",":
                self.at += 1
            elif close == "}":
                self._pair(path)
            else:
                item = (*path, f"[{count}]")
                self.lines.setdefault(item, self._line_here())
                self._value(item)
                count += 1
        self.at += 1

    def _string(self) -> None:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            body = r"(?:[^\\]|\\.)*?" if quote == '"' else r".*?"
            self.at = self._match(f"(?s:{quote * 3}{body}{quote * 3}{quote}{{0,2}})")
        else:
            body = r'(?:[^"\\]|\\.)*' if quote == '"' else "[^']*"
            self.at = self._match(f"{quote}{body}{quote}")

    def _skip_blank(self) -> bool:
        self.at = self._match(r"(?:\s|#[^\n]*)*")
        return self.at < len(self.text)

    def _skip(self, characters: str) -> None:
        while self._peek() and self._peek() in characters:
            self.at += 1

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _match(self, pattern: str) -> int:
        found = re.compile(pattern).match(self.text, self.at)
        return found.end() if found else self.at + 1

    def _line_here(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line
