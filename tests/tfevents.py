"""Reads TensorBoard's files of events: each record's checksums are checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c


def events(path: Path) -> Iterator[Event]:
    data = memoryview(path.read_bytes())
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(bytes(data[:8])),)
        content, data = bytes(data[12 : 12 + length]), data[12 + length :]
        assert struct.unpack("<I", data[:4]) == (masked_crc32c(content),)
        data = data[4:]
        yield Event.FromString(content)


def scalars(path: Path) -> dict[int, dict[str, float]]:
    """The values by step; a step that is told twice fails."""
    first, *others = events(path)
    assert first.file_version == "brain.Event:2"
    found: dict[int, dict[str, float]] = {}
    for event in others:
        assert event.step not in found, f"step {event.step} is told twice"
        found[event.step] = {value.tag: value.simple_value for value in event.summary.value}
    return found
