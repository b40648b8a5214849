"""Frozen dataclasses to plain maps and back, derived from their fields.

What arrives from another process is only as good as this check. The rules:

- a value of another type than the field's is a :class:`ProtocolError`;
- a field that is missing takes its default; without one that is an error too. So a field that is
  added later has a default, and what an older version wrote is read;
- a field that is not known is passed over: a later version may say more. A record that is merged
  and passed on keeps it, in its field whose default is :data:`elasticd.recovery.unknown.NOTHING`;
- what is none of a closed set (a Literal) is an error, also where a later version has added it:
  nobody here knows what to do instead. Such a version says it only to those who know it
  (docs/protocols.md);
- texts, bytes, lists and maps have limits, and so have whole numbers: those of 53 bits, or those
  that the field's annotation names (:class:`elasticd.types.Within`; of texts
  :class:`elasticd.types.Printable`);
- a node's id is one that elasticd.toml could say, or empty where there is none;
- a job's id is one that a daemon could give.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar, Union, cast

from elasticd.errors import IdError, ProtocolError
from elasticd.recovery.unknown import NOTHING, Unknown, added_to
from elasticd.types import (
    OF_JOB_ID,
    OF_NODE_ID,
    JobId,
    NodeId,
    Point,
    Printable,
    Tag,
    Within,
    is_job_id,
    is_node_id,
)

Plain = Any
"""None, bool, int, float, str, bytes, list and dict: what msgpack carries."""

MAX_LENGTH = 1 << 20
"""Of a text in letters, of bytes, of a list or map in items."""
MAX_DEPTH = 32
"""Of lists and maps whose content nobody describes."""

_FEW = 64
"""So many names at most are compared with those that are known."""

_WHOLE = Within(-(1 << 53), 1 << 53)

_ATOMS = frozenset({str, int, float, bool, bytes, types.NoneType})
"""What is the same on both sides. A view has a thousand names."""
_ROWS = (Tag, Point)
"""What children give and take as a list of its fields."""

UNKNOWN = "unknown message"
"""So begins what is said of a word that nobody here knows."""

Reader = Callable[[Plain], Any]
W = TypeVar("W")
K = TypeVar("K")


def to_plain(value: Any, rows: bool = False) -> Plain:
    """Turn dataclasses and tuples, nested at will, into what msgpack carries.

    With ``rows`` a Tag or Point becomes a list, as children have it.
    """
    if type(value) in _ATOMS:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = _names(type(value))
        if rows and isinstance(value, _ROWS):
            return [to_plain(getattr(value, name), rows) for name in names]
        plain = {name: to_plain(getattr(value, name), rows) for name in names}
        if keeper := _keeper(type(value)):
            for name in _unsaid(value):
                del plain[name]
            plain |= getattr(value, keeper).fields
        return plain
    if isinstance(value, (list, tuple)):
        return [to_plain(item, rows) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item, rows) for key, item in value.items()}
    return value


def from_plain(hint: Any, plain: Plain, rows: bool = False) -> Any:
    """Build a value of the annotated type ``hint``.

    Raises:
        ProtocolError: ``plain`` does not fit the annotation, or is too long.
    """
    return _reader(hint, rows)(plain)


def _unsaid(value: Any) -> list[str]:
    kind: type = type(value)
    return [name for name, usual in added_to(kind).items() if getattr(value, name) == usual]


def beyond(value: Any) -> tuple[tuple[str, Plain], ...]:
    """What builds that lack all that was added have in their field for what they don't know."""
    kind: type = type(value)
    said = {n: to_plain(getattr(value, n)) for n in added_to(kind).keys() - _unsaid(value)}
    unknown: Unknown = value.unknown
    return unknown.over(Unknown.of(said)).fields


class Wording(Generic[W]):
    """How the words of one conversation are written: frozen dataclasses, told apart by the key
    ``t`` or another, or by their fields alone.

    A word's name there is its ``kind``, else its class's name. A ``terse`` conversation doesn't say
    a None that is a field's default.
    """

    def __init__(self, rows: bool = False, key: str = "t", terse: bool = False) -> None:
        self.key = key
        self._rows, self._terse = rows, terse

    def encode(self, word: W) -> dict[str, Plain]:
        """The map that msgpack carries."""
        plain = to_plain(word, self._rows)
        if self._terse:
            unsaid = _nones(cast(type, type(word)))
            plain = {k: v for k, v in plain.items() if v is not None or k not in unsaid}
        return {self.key: _kind(type(word)), **plain} if self.key else cast(dict[str, Plain], plain)


class Words(Wording[W]):
    """The words of one conversation, to be read, too.

    Words may share a name whose fields can't fit the same map; without a ``key`` all do, and the
    first that fits counts.
    """

    def __init__(self, union: Any, rows: bool = False, key: str = "t", terse: bool = False) -> None:
        super().__init__(rows, key, terse)
        self.kinds: tuple[type[W], ...] = typing.get_args(union) or (union,)
        self.named: dict[str, list[type[W]]] = {}
        for each in self.kinds:
            self.named.setdefault(_kind(each) if key else "", []).append(each)

    def knows(self, plain: dict[str, Plain]) -> bool:
        """Whether a word of this conversation has that name."""
        kind = self._name(plain)
        return isinstance(kind, str) and kind in self.named

    def of_kind(self, plain: dict[str, Plain], kind: type[K]) -> K | None:
        """The word, if it has that one's name; None: it says something else.

        Raises:
            ProtocolError: a field doesn't fit.
        """
        name = self._name(plain)
        if not isinstance(name, str) or kind not in self.named.get(name, ()):
            return None
        word = self.decode(plain)
        return word if isinstance(word, kind) else None

    def _name(self, plain: dict[str, Plain]) -> Plain:
        return plain.get(self.key) if self.key else ""

    def decode(self, plain: dict[str, Plain]) -> W:
        """Inverse of :meth:`encode`.

        Raises:
            ProtocolError: no word of this conversation, or a field that doesn't fit.
        """
        kind = self._name(plain)
        found = self.named.get(kind) if isinstance(kind, str) else None
        if found is None:
            raise ProtocolError(f"{UNKNOWN} {str(kind)[:80]!r}")
        if len(found) == 1:
            return cast(W, from_plain(found[0], plain, self._rows))
        errors = {}
        for each in found:
            try:
                return cast(W, from_plain(each, plain, self._rows))
            except ProtocolError as error:
                errors[each] = error
        meant = [error for each, error in errors.items() if _may_be(each, found, plain)]
        if len(meant) == 1:
            raise meant[0]
        raise ProtocolError("; ".join(map(str, errors.values())))


def _kind(word: type[Any]) -> str:
    return str(getattr(word, "kind", word.__name__))


def _may_be(word: type, among: Sequence[type], plain: dict[str, Plain]) -> bool:
    """Whether ``plain`` may be meant for ``word``, by what all words of that name have: a text of a
    closed set."""
    common = set[str].intersection(*({*_closed(each)} for each in among))
    return bool(common) and all(plain.get(name) in _closed(word)[name] for name in common)


@cache
def _closed(word: type) -> dict[str, tuple[Any, ...]]:
    """The fields that hold one of a closed set, and that set."""
    hints = typing.get_type_hints(word, include_extras=True)
    literal = (name for name in _names(word) if typing.get_origin(hints[name]) is typing.Literal)
    return {name: typing.get_args(hints[name]) for name in literal}


@cache
def _names(word: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(word) if f.default is not NOTHING)


@cache
def _keeper(word: type) -> str:
    """The field that holds what is not known here; empty: it has none."""
    return next((f.name for f in dataclasses.fields(word) if f.default is NOTHING), "")


@cache
def _nones(word: type) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(word) if f.default is None)


# --- readers: one for each annotation, made once --------------------------------------------------


@cache
def _reader(hint: Any, rows: bool) -> Reader:
    if hint is NodeId:
        return _id(_checked_node)
    if hint is JobId:
        return _id(_checked_job)
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _anything
    if origin in (Union, types.UnionType):
        return _optional(hint, arguments, rows)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _many(arguments[0], rows)
        return _fixed(tuple(_reader(each, rows) for each in arguments))
    if origin is dict:
        return _map(_reader(arguments[0], rows), _reader(arguments[1], rows))
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is typing.Annotated:
        limits = arguments[1]
        return _printable(limits) if isinstance(limits, Printable) else _within(limits)
    if dataclasses.is_dataclass(hint):
        return _dataclass(cast(type, hint), rows)
    return _within(_WHOLE) if hint is int else _atom(hint)


class Checked:
    """What fits where anything does, and was looked at before. Only as the whole of such a value:
    inside of a list or map nothing would put in what it stands for."""

    __slots__ = ("plain",)

    def __init__(self, plain: Plain) -> None:
        """
        Raises:
            ProtocolError: it is too long, or nested too deep.
        """
        self.plain = _anything(plain)


def _bounded(plain: Any) -> None:
    if len(plain) > MAX_LENGTH:
        raise ProtocolError(f"{len(plain)} are more than {MAX_LENGTH}")


def _anything(plain: Plain, depth: int = 0) -> Plain:
    if isinstance(plain, (list, tuple, dict)):
        if depth == MAX_DEPTH:
            raise ProtocolError(f"lists and maps are nested more than {MAX_DEPTH} deep")
        _bounded(plain)
        for item in plain.values() if isinstance(plain, dict) else plain:
            # Most are atoms; a call for each would take most of the time of a large journal.
            if type(item) is str:
                if len(item) > MAX_LENGTH:
                    _bounded(item)
            elif type(item) is Checked:
                raise TypeError("what was checked is a part of what was not")
            elif type(item) not in _ATOMS or type(item) is bytes:
                _anything(item, depth + 1)
    elif type(plain) is Checked:
        return plain.plain
    elif isinstance(plain, (str, bytes)):
        _bounded(plain)
    return plain


def _atom(hint: Any) -> Reader:
    # A large journal is mostly texts: no call for each.
    longest = MAX_LENGTH if hint in (str, bytes) else None

    def read(plain: Plain) -> Any:
        if type(plain) is hint:
            if longest is not None and len(plain) > longest:
                _bounded(plain)
            return plain
        if hint is float and type(plain) is int:
            return float(plain)
        raise _unfit(hint, plain)

    return read


def _unfit(hint: Any, plain: Plain) -> ProtocolError:
    return ProtocolError(f"expected {hint.__name__}, got {type(plain).__name__}")


def _within(limits: Within) -> Reader:
    least, most = limits.least, limits.most

    def read(plain: Plain) -> int:
        if type(plain) is not int:
            raise _unfit(int, plain)
        if not least <= plain <= most:
            raise ProtocolError(f"{plain} is not from {least} to {most}")
        return plain

    return read


def _printable(limits: Printable) -> Reader:
    inner, most = _atom(str), limits.most

    def read(plain: Plain) -> str:
        text = str(inner(plain))
        if len(text) > most or not text.isprintable():
            raise ProtocolError(f"{text[:80]!r} is not {most} printable letters at most")
        return text

    return read


@lru_cache(4096)
def _checked_node(text: str) -> str:
    """Or the empty text: none."""
    # A view has a thousand names, and says them all the time.
    if text and not is_node_id(text):
        raise IdError(f"{text[:80]!r} is no node's id: {OF_NODE_ID}")
    return text


@lru_cache(4096)
def _checked_job(text: str) -> str:
    if not is_job_id(text):
        raise IdError(f"{text[:80]!r} is no job's id: {OF_JOB_ID}")
    return text


def _id(checked: Callable[[str], str]) -> Reader:
    def read(plain: Plain) -> str:
        if type(plain) is not str:
            raise _unfit(str, plain)
        return checked(plain)

    return read


def _literal(options: tuple[Any, ...]) -> Reader:
    known = {option: option for option in options}

    def read(plain: Plain) -> Any:
        if isinstance(plain, str) and plain in known:
            return known[plain]
        raise ProtocolError(f"{str(plain)[:80]!r} is none of {options}")

    return read


def _optional(hint: Any, options: tuple[Any, ...], rows: bool) -> Reader:
    (kind,) = (option for option in options if option is not types.NoneType)
    inner = _reader(kind, rows)

    def read(plain: Plain) -> Any:
        return None if plain is None else inner(plain)

    if len(options) != 2:
        raise TypeError(f"{hint}: only a kind or None can be told apart")
    return read


def _list(plain: Plain) -> None:
    if not isinstance(plain, (list, tuple)):
        raise ProtocolError(f"expected a list, got {type(plain).__name__}")
    _bounded(plain)


@lru_cache(1024)
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """Thousands of records name the same nodes: each row of names is in memory once."""
    return names


def _many(kind: Any, rows: bool) -> Reader:
    inner, names = _reader(kind, rows), getattr(kind, "__supertype__", kind) is str
    least, most = _WHOLE.least, _WHOLE.most

    def read(plain: Plain) -> Any:
        _list(plain)
        if not plain:
            return ()
        # A large view has many numbers.
        if kind is int and all(type(item) is int and least <= item <= most for item in plain):
            return tuple(plain)
        items = tuple([inner(item) for item in plain])
        return _same(items) if names and len(items) <= _FEW else items

    return read


def _fixed(inner: tuple[Reader, ...]) -> Reader:
    def read(plain: Plain) -> Any:
        _list(plain)
        if len(plain) != len(inner):
            raise ProtocolError(f"expected {len(inner)} items, got {len(plain)}")
        return tuple([each(item) for each, item in zip(inner, plain, strict=True)])

    return read


def _map(key: Reader, value: Reader) -> Reader:
    def read(plain: Plain) -> Any:
        if not isinstance(plain, dict):
            raise ProtocolError(f"expected a map, got {type(plain).__name__}")
        _bounded(plain)
        return {key(k): value(v) for k, v in plain.items()}

    return read


def _dataclass(kind: type, rows: bool) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [(name, _reader(hints[name], rows)) for name in _names(kind)]
    keeper = _keeper(kind)
    required = {
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    row = _fixed(tuple(reader for _, reader in fields)) if rows and kind in _ROWS else None

    def read(plain: Plain) -> Any:
        if row is not None:
            return kind(*row(plain))
        if not isinstance(plain, dict):
            raise ProtocolError(f"{kind.__name__}: expected a map, got {type(plain).__name__}")
        values = {}
        name = ""
        try:
            for name, reader in fields:
                if name in plain:
                    values[name] = reader(plain[name])
        except IdError as error:
            raise IdError(error.said, f"{kind.__name__}.{name}") from None
        except ProtocolError as error:
            raise ProtocolError(f"{kind.__name__}.{name}: {error}") from None
        if len(values) < len(fields) and (missing := required - values.keys()):
            first = next(name for name, _ in fields if name in missing)
            raise ProtocolError(f"{kind.__name__}: field {first} is missing")
        if keeper and len(plain) > len(values):
            values[keeper] = _kept(plain, values)
        return kind(**values)

    return read


def _kept(plain: dict[Any, Plain], known: typing.Container[str]) -> Unknown:
    fields = {name: _anything(value) for name, value in plain.items() if name not in known}
    for name in fields:
        _atom(str)(name)
    return Unknown.of(fields)
