"""Reads TensorBoard's files of events: each record's checksums are checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
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


def as_tensorboard_reads(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Each name's steps and values below ``folder``, by TensorBoard's own reader. The test is
    skipped where that is not installed."""
    module = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    reader = module.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    assert reader.file_version == 2.0
    names: list[str] = reader.Tags()["scalars"]
    return {name: [(each.step, each.value) for each in reader.Scalars(name)] for name in names}


def scalars(path: Path) -> dict[int, dict[str, float]]:
    """The values by step; a step that is told twice fails."""
    first, *others = events(path)
    assert first.file_version == "brain.Event:2"
    found: dict[int, dict[str, float]] = {}
    for event in others:
        assert event.step not in found, f"step {event.step} is told twice"
        found[event.step] = {value.tag: value.simple_value for value in event.summary.value}
    return found
