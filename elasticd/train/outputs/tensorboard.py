"""Events as TensorBoard reads them.

A file of events is one record behind the other: the length of an event and that event, each with a
checksum. The first one says which version the format has.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from elasticd.errors import UsageError

try:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import masked_crc32c
except ImportError as error:
    raise UsageError(
        f"[track] tensorboard needs the package tensorboardX on every node ({error});"
        " pip install 'elasticd[track]'"
    ) from error

NAME = "tensorboard/events.out.tfevents.0.elasticd"
"""Below the job's outputs: TensorBoard looks for files with ``tfevents`` in their name."""
_VERSION = "brain.Event:2"


def beginning(wall_seconds: float) -> bytes:
    """What a file begins with."""
    return _record(Event(wall_time=wall_seconds, file_version=_VERSION))


def scalars(step: int, values: Mapping[str, float], wall_seconds: float) -> bytes:
    """The values of one step, by name."""
    found = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    return _record(Event(wall_time=wall_seconds, step=step, summary=Summary(value=found)))


def _record(event: Event) -> bytes:
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join((length, _checksum(length), data, _checksum(data)))


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))
