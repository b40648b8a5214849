"""Headers of safetensors files that must be refused, each with the name of the file and tensor."""

from __future__ import annotations

import json

import pytest

from elasticd.checkpoints import header
from elasticd.errors import StateError


def test_encode_and_decode_agree() -> None:
    made, data = header.encode(
        [("b", "U8", (3,)), ("a", "F32", (2, 2)), ("c", "F64", ()), ("d", "I8", (0, 5))],
        {"key": "value"},
    )
    assert len(data) % 8 == 0 and data[8:9] == b"{"
    assert [entry.name for entry in made.entries] == ["c", "a", "b", "d"]
    assert made.file_bytes == len(data) + 8 + 16 + 3
    length = header.text_bytes(data[:8], made.file_bytes, "file")
    assert header.decode(data[8 : 8 + length], made.file_bytes, "file") == made


def test_a_file_without_tensors() -> None:
    made, data = header.encode([], {})
    assert made.file_bytes == len(data)
    assert header.decode(data[8:], len(data), "file") == made


def test_reserved_name() -> None:
    with pytest.raises(ValueError, match="__metadata__"):
        header.encode([("__metadata__", "U8", (1,))], {})


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        ('{"a": 1, "a": 1}', "occurs twice"),
        ({"__metadata__": {"a": 1}}, "not a map of strings"),
        ({"__metadata__": []}, "not a map of strings"),
        ({"a": 3}, "tensor 'a': needs"),
        ({"a": {**GOOD, "more": 1}}, "tensor 'a': needs"),
        ({"a": {**GOOD, "dtype": "F31"}}, "unknown dtype 'F31'"),
        ({"a": {**GOOD, "dtype": ["F32"]}}, "unknown dtype"),
        ({"a": {**GOOD, "shape": [-2]}}, "must be lists of numbers"),
        ({"a": {**GOOD, "shape": [True]}}, "must be lists of numbers"),
        ({"a": {**GOOD, "shape": [2.0]}}, "must be lists of numbers"),
        ({"a": {**GOOD, "data_offsets": [0, 4, 8]}}, "must be lists of numbers"),
        ({"a": {**GOOD, "shape": [3]}}, "takes 12 bytes, data_offsets give 8"),
        ({"a": {**GOOD, "data_offsets": [8, 0]}}, "give -8"),
        ({"a": {**GOOD, "shape": [2**30], "data_offsets": [0, 2**32]}}, "ends past the end"),
        ({"a": {**GOOD, "shape": [0, 2**31], "data_offsets": [0, 0]}}, "is longer than"),
        ({"a": GOOD, "b": GOOD}, "tensor 'b' overlaps"),
        ({"a": GOOD, "b": {**GOOD, "data_offsets": [4, 12]}}, "tensor 'b' overlaps"),
        ({"a": {**GOOD, "data_offsets": [4, 12]}}, "tensor 'a' follows a hole"),
        ({"a": GOOD}, "8 bytes follow the last tensor"),
    ],
)
def test_refused(table: object, message: str) -> None:
    text = (
        table
        if isinstance(table, bytes)
        else (table if isinstance(table, str) else json.dumps(table)).encode()
    )
    with pytest.raises(StateError, match=r"^some/file: ") as caught:
        header.decode(text, header.LENGTH_BYTES + len(text) + 16, "some/file")
    assert message in str(caught.value)


def test_refused_length() -> None:
    for first, size in ((b"", 0), (b"\1\0", 2), (b"\x09" + bytes(7), 16), (b"\xff" * 8, 1 << 40)):
        with pytest.raises(StateError, match="some/file: truncated"):
            header.text_bytes(first, size, "some/file")
