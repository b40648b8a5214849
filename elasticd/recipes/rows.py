"""Rows of JSON lines as tokens, and the order in which they are trained.

Formats and masks are mlx-lm's own (``mlx_lm.tuner.datasets``). The order is not: rows of a batch
are of like length, which rows are together changes from epoch to epoch, none is left out at an
epoch's end, and all of it is a function of the seed and the rows.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.data.jsonlines import lines_of, named, no_utf8, parsed
from elasticd.errors import UsageError
from elasticd.recipes import templateday
from elasticd.recipes.rowtokens import FileRows, TokenPart, parts_of
from elasticd.settings.recipe import MlxLm
from elasticd.settings.rules import one_line, show
from elasticd.train.steps.sampling import Permutation

PAD_TO = 32
"""Widths of batches are multiples of this and one more, as each width is compiled anew."""
_SHOWN = 10
_MOST_MEASURED = 128
"""Of a file that is only measured, digests that nodes tell one another: with those of train.jsonl
and of another such file they are less than a fingerprint names one by one."""
_HALF = re.compile("[\ud800-\udfff]")
"""What no text may have: JSON knows characters of two halves, and writes each as \\u…."""
Row = tuple[NDArray[np.int32], int]
"""A row's tokens, and the first of them that is trained."""
Sample = tuple[Row, ...]
"""What is computed as one: a row, or several (those that are packed into one sequence, or an answer
that is preferred and another)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one file, those that train something."""

    samples: tuple[Sample, ...]
    untrained: tuple[int, ...]
    """Lines on which nothing is trained: all is masked, or cut off."""
    cut: int
    """Rows that were longer than the longest sequence."""


def read_rows(path: Path, tokenizer: Any, config: MlxLm, key: str = "") -> Rows:
    """The rows of a file of JSON lines; its first row says of which format they are. Of tables each
    row does: they may be of several. ``key``: as for :func:`read`.

    Raises:
        UsageError: naming file and line.
    """
    names = ("mask_prompt", "prompt_feature", "completion_feature", "chat_feature", "text_feature")
    wanted = {name: getattr(config, name) for name in names}

    def choose(first: dict[str, Any]) -> Sequence[Process]:
        make = tokens_of(first, tokenizer, wanted, config.model)
        if not config.hf_dataset:
            return (make,)
        makers = {_format_of(first, wanted): make}

        def process(row: dict[str, Any]) -> tuple[Sequence[int], int]:
            kind = _format_of(row, wanted)
            if kind not in makers:
                makers[kind] = tokens_of(row, tokenizer, wanted, config.model)
            return makers[kind](row)

        return (process,)

    return read(path, config.max_seq_length, choose, key)


Process = Callable[[dict[str, Any]], tuple[Sequence[int], int]]
"""Makes tokens of a row, and says which is the first that is trained."""


def tokens_of(first: dict[str, Any], tokenizer: Any, wanted: dict[str, Any], model: str) -> Process:
    """By mlx-lm's own code, for rows as the ``first`` is, and a ``model`` with that tokenizer.

    Raises:
        ValueError: the row is of no format.
        UsageError: the model has no template for such rows.
    """
    from mlx_lm.tuner.datasets import create_dataset

    kind = _format_of(first, wanted)
    if kind == "text" and wanted["mask_prompt"]:
        raise ValueError(
            f"rows of {show(wanted['text_feature'])} have no prompt that mask_prompt could mask:"
            " leave it away, or have rows of a prompt and a completion"
        )
    if kind != "text" and not getattr(tokenizer, "has_chat_template", True):
        raise UsageError(
            f"the model {model} has no chat template (chat_template.jinja, or chat_template in"
            f" tokenizer_config.json), which rows of {kind} need: take a model for chats,"
            ' or rows of {"text": …} with kind = "mlx-lm"'
        )
    data: Any = create_dataset([first], tokenizer, types.SimpleNamespace(**wanted))
    names = ("prompt_key", "completion_key", "text_key")
    texts = [getattr(data, name) for name in names if hasattr(data, name)]
    chats = [data.chat_key] if hasattr(data, "chat_key") else []
    day = templateday.day_for(str(getattr(tokenizer, "chat_template", "")))

    def process(row: dict[str, Any]) -> tuple[Sequence[int], int]:
        # What is wrong here mlx-lm trains as the text "None" and the like, or stops with Python's.
        for name in texts:
            text_of(row, name)
        for name in chats:
            messages = messages_of(row, name)
            if len(messages) == 1 and wanted["mask_prompt"]:
                raise ValueError(
                    "nothing stands before its last message, so mask_prompt leaves no prompt"
                )
            row = {**row, name: messages}
        try:
            with templateday.written(day):
                made: tuple[Sequence[int], int] = data.process(row)
        except IndexError:
            if not any(row[name] == "" for name in texts):
                raise
            empty = next(name for name in texts if row[name] == "")
            raise ValueError(f"its {show(empty)} is empty") from None
        return made

    return process


def _format_of(row: dict[str, Any], wanted: dict[str, Any]) -> str:
    """As mlx-lm tells them apart. Raises ValueError: it is none."""
    prompt, completion = wanted["prompt_feature"], wanted["completion_feature"]
    chat, text = wanted["chat_feature"], wanted["text_feature"]
    if prompt in row and completion in row:
        return "prompt and completion"
    if chat in row:
        return "messages"
    if text in row:
        return "text"
    raise ValueError(
        f"{keys_of(row)}; a row needs {show(chat)}, a list of"
        f' {{"role": …, "content": …}}, or {show(prompt)} and {show(completion)}, or {show(text)}.'
        " If yours are called otherwise, say so: chat_feature, prompt_feature and"
        " completion_feature, or text_feature"
    )


def keys_of(row: dict[str, Any]) -> str:
    """Which ones it has, in words."""
    if not row:
        return "this row is empty"
    more = ", …" if len(row) > _SHOWN else ""
    return f"this row has {', '.join(map(show, list(row)[:_SHOWN]))}{more}"


def text_of(row: dict[str, Any], name: str) -> str:
    """What a row has under a name. Raises ValueError: it is no text."""
    value = _value_of(row, name)
    if not isinstance(value, str):
        raise ValueError(f"its {show(name)} must be a text, not {_shown(value)}")
    return value


def tools_of(row: dict[str, Any]) -> dict[str, Any]:
    """What a row gives to the chat template beside its messages."""
    return {"tools": row["tools"]} if row.get("tools") is not None else {}


def messages_of(row: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The chat that a row has under a name, each content a text: parts of text are joined, as most
    templates would write Python's words for a list. Raises ValueError: it is none."""
    value = _value_of(row, name)
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else _shown(value)
        raise ValueError(f"its {show(name)} must be a list of messages, not {what}")
    found = []
    for at, message in enumerate(value, start=1):
        if not isinstance(message, dict):
            raise ValueError(f"message {at} of its {show(name)} must have a role and a content")
        if not isinstance(message.get("role"), str):
            instead = "" if "role" in message else f", not {', '.join(map(show, message))}"
            raise ValueError(
                f"message {at} of its {show(name)} must have a role, a text, and a content{instead}"
            )
        content = message.get("content")
        if isinstance(content, list):
            texts = [part.get("text") if _is_text(part) else part for part in content]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(
                    f"message {at} of its {show(name)} must have a content, a text or parts of"
                    " text, and one of its parts is none"
                )
            content = "".join(texts)
            message = {**message, "content": content}
        # One that calls tools may say nothing.
        more = message.keys() - {"role", "content", "name"}
        if not (isinstance(content, str) or (content is None and more)):
            raise ValueError(
                f"message {at} of its {show(name)} must have a content, a text, not"
                f" {_shown(content)}"
            )
        found.append(message)
    return found


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _value_of(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise ValueError(f"it has no {show(name)}")
    return row[name]


def _shown(value: object) -> str:
    return "null" if value is None else show(value)


def _said(error: Exception) -> str:
    """What is wrong with a row, on one line: in our words, a template's, or at least with what
    kind of error it is."""
    text = one_line(next(iter(str(error).splitlines()), ""))
    if type(error) is ValueError and text:
        return text
    return f"its template or tokenizer says {type(error).__name__}{text and f': {text}'}"


def read(
    path: Path,
    longest: int,
    choose: Callable[[dict[str, Any]], Sequence[Process]],
    key: str = "",
) -> Rows:
    """Those of a file of JSON lines. ``choose`` says by its first row what makes samples of all.
    ``key``: tokens are kept for later, under that and the file's content; empty: they aren't.

    Raises:
        UsageError: naming file and line.
    """
    rows = _parse(path)
    if not rows:
        raise UsageError(f"{path}: has no rows")
    try:
        makers = choose(rows[0])
    except (ValueError, TypeError) as error:
        raise UsageError(f"{rows.name(0)}: {str(error).splitlines()[0]}") from None

    def make(row: int) -> list[TokenPart]:
        try:
            made = [make(rows[row]) for make in makers]
        except Exception as error:  # a template may raise what it likes
            raise UsageError(f"{rows.name(row)}: this row can't be read: {_said(error)}") from None
        return [
            TokenPart(np.array(t[:longest], np.int32), int(offset), len(t)) for t, offset in made
        ]

    parts_at = parts_of(rows, make, key)
    found: list[Sample] = []
    untrained, cut = [], 0
    for at, line in enumerate(rows.lines):
        parts = parts_at(at)
        cut += any(part.full > longest for part in parts)
        sample = tuple((part.tokens, part.offset) for part in parts)
        if all(map(trained, sample)):
            found.append(sample)
        else:
            untrained.append(line)
    if not found:
        raise UsageError(f"{path}: no row trains anything: all of each is masked or cut off")
    return Rows(tuple(found), tuple(untrained), cut)


def trained(row: Row) -> int:
    """Tokens of a row that count in the loss: the first of all has nothing before it."""
    tokens, offset = row
    return max(0, len(tokens) - max(offset, 1))


def told(name: str, rows: Rows, longest: int) -> list[str]:
    """What is to be said of them, in sentences."""
    said = []
    if rows.untrained:
        lines = ", ".join(map(str, rows.untrained[:_SHOWN]))
        more = ", …" if len(rows.untrained) > _SHOWN else ""
        said.append(
            f"{name}: {len(rows.untrained)} rows train nothing, as all that is left of them is"
            f" masked; they are left out: line {lines}{more}"
        )
    if rows.cut:
        said.append(f"{name}: {rows.cut} rows are cut off behind max_seq_length = {longest} tokens")
    return said


def length(sample: Sample) -> int:
    """Tokens of all its rows."""
    return sum(len(tokens) for tokens, _ in sample)


def width(most: int, longest: int) -> int:
    """How wide a batch is whose longest sample has ``most`` tokens."""
    return min(1 + PAD_TO * -(-most // PAD_TO), max(longest, 2))


def collate(
    longest: int, *, packed: bool = False
) -> Callable[[Sequence[Sample]], tuple[mx.array, ...]]:
    """Makes a batch: tokens, padded with 0, and which of them, from the second on, are trained. If
    samples are ``packed`` also which row of its sample each token but the last is of."""

    def batch(samples: Sequence[Sample]) -> tuple[mx.array, ...]:
        wide = width(max(map(length, samples)), longest)
        tokens = np.zeros((len(samples), wide), np.int32)
        mask = np.zeros((len(samples), wide), np.uint8)
        rows = np.zeros((len(samples), wide), np.int32)
        for at, sample in enumerate(samples):
            begin = 0
            for number, (row, offset) in enumerate(sample, start=1):
                end = begin + len(row)
                tokens[at, begin:end], rows[at, begin:end] = row, number
                mask[at, begin + max(offset, 1) : end] = 1
                begin = end
        made = mx.array(tokens), mx.array(mask[:, 1:]).astype(mx.bool_)
        return (*made, mx.array(rows[:, :-1])) if packed else made

    return batch


@dataclass(frozen=True)
class RowOrder:
    """Which row is at which position of an endless stream; ``batch`` of them make a step."""

    lengths: tuple[int, ...]
    batch: int
    seed: int

    @classmethod
    def of(cls, samples: Sequence[Sample], batch: int, seed: int) -> RowOrder:
        """That of these rows. Rows of which one is different have another order from the start, so
        that a node with other data is found before it trains."""
        digest = hashlib.blake2b(f"{seed}".encode(), digest_size=7)
        for tokens, offset in (row for sample in samples for row in sample):
            digest.update(f"\0{offset}\0{len(tokens)}\0".encode() + tokens.tobytes())
        return cls(tuple(map(length, samples)), batch, int.from_bytes(digest.digest(), "big"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "_epoch", lru_cache(maxsize=2)(self.epoch))

    def at(self, position: int) -> int:
        """The row at ``position``."""
        epoch, offset = divmod(position, len(self.lengths))
        return int(self._epoch(epoch)[offset])  # type: ignore[attr-defined]

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """All rows once, in batches of like length that come in any order.

        The epoch's first rows complete the batch that the one before has left unfinished.
        """
        count = len(self.lengths)
        shuffled = _shuffled(count, self.seed, epoch)
        widths = -(-np.array(self.lengths) // PAD_TO)
        by_length = np.lexsort((shuffled, widths))
        head = min(-(epoch * count) % self.batch, count)
        full, tail = divmod(count - head, self.batch)
        sizes = np.array([self.batch] * full + [head, tail])
        layout = _shuffled(full + 2, -1 - self.seed, epoch)
        ends = np.cumsum(sizes[layout])
        pieces: list[NDArray[np.int64]] = [by_length[:0]] * (full + 2)
        for end, piece in zip(ends, layout, strict=True):
            pieces[piece] = by_length[end - sizes[piece] : end]
        return np.concatenate([pieces[full], *pieces[:full], pieces[full + 1]])


def _shuffled(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return Permutation(count, seed, epoch)(np.arange(count, dtype=np.uint64)).astype(np.int64)


@dataclass(frozen=True)
class RowSource:
    """What ``Run(data=…)`` is given: a stream of rows, and what is in their file."""

    samples: Sequence[Sample]
    order: RowOrder
    path: Path
    measured: Sequence[Path] = ()
    """Files beside it of which only the loss is measured: the same on all nodes, or on none."""

    def __call__(self) -> RowStream:
        return RowStream(self.samples, self.order)

    def digests_by_file(self) -> Mapping[str, str]:
        """By line, so that a node's that is another is named. What is measured goes by numbers of
        samples: these count only among trainers that tell them in the same form."""
        beside = [line for path in self.measured for line in _lines_measured(path)]
        numbered = {f"sample {number}": line for number, line in enumerate(beside)}
        return lines_of(self.path).named(self.path.name) | numbered


def _lines_measured(path: Path) -> list[str]:
    if not path.exists():
        return [f"{path.name}: none"]
    found = lines_of(path, _MOST_MEASURED).named(path.name)
    return [f"{name}: {text}" for name, text in found.items()]


class RowStream:
    """The rows in their order, without end. Its state is where it is."""

    def __init__(self, samples: Sequence[Sample], order: RowOrder) -> None:
        self._samples, self._order = samples, order
        self._position = 0

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        sample = self._samples[self._order.at(self._position)]
        self._position += 1
        return sample

    def state(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state(self, state: dict[str, int]) -> None:
        self._position = state["position"]


def _parse(path: Path) -> FileRows:
    with named(path, 1):
        raw = path.read_bytes()
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise no_utf8(error, path, error.object.count(b"\n", 0, error.start) + 1) from None
    lines, rows = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        row = parsed(line, path, number)
        if "\\u" in line and _HALF.search(json.dumps(row, ensure_ascii=False)):
            raise UsageError(
                f"{path}:{number}: has half of a character: \\ud8… without \\udc… behind it, or"
                " the other way round"
            )
        lines.append(number)
        rows.append(row)
    return FileRows(path, raw, lines, rows)
