"""The figures that people have of a run on a fixed number of devices, and job.toml's for them.

elasticd has no number of devices that a run rests on: the global batch stays, whoever computes it.
So the three figures give ``batch.global``, ``batch.micro`` and the most nodes that take part.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from elasticd.errors import ConfigError
from elasticd.settings import job as jobs
from elasticd.settings import recipe as recipes
from elasticd.settings.rules import Rule, Wrong, integer, rule
from elasticd.settings.toml import Document

_count = integer(1, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class DistributedConfig:
    """So many devices, each computing ``batch_size_per_device`` samples at once, so often a step.

    Raises:
        ConfigError: a figure, or what they come to, is more than a job can have.
    """

    num_devices: int = field(metadata=rule(integer(1, jobs.MAX_NODES)))
    batch_size_per_device: int = field(metadata=rule(_count))
    gradient_accumulation: int = field(default=1, metadata=rule(_count))

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _checked(item.name, item.metadata["rule"], getattr(self, item.name))
        try:
            _count(self.global_batch)
        except Wrong as wrong:
            raise _wrong("batch_size_per_device", f"batch.global {wrong}") from None
        if (grains := self.num_devices * self.gradient_accumulation) > jobs.MAX_GRAINS:
            raise _wrong(
                "gradient_accumulation",
                f"cuts the global batch into {grains} grains;"
                f" at most {jobs.MAX_GRAINS} are possible",
            )

    @property
    def global_batch(self) -> int:
        """Samples in one optimizer step."""
        return self.num_devices * self.batch_size_per_device * self.gradient_accumulation

    def to_toml(self) -> str:
        """The tables of job.toml that say the same."""
        return (
            f"[world]\nmax = {self.num_devices}\n\n"
            f"[batch]\nglobal = {self.global_batch}\nmicro = {self.batch_size_per_device}\n"
        )

    @classmethod
    def from_job(cls, path: str | Path, num_devices: int | None = None) -> DistributedConfig:
        """The figures of a job.toml. ``num_devices``: where its ``world.max`` is 0, every node.

        Raises:
            ConfigError: it is wrong, or its global batch is no multiple of such shares.
        """
        if num_devices is not None:
            _checked("num_devices", integer(1, jobs.MAX_NODES), num_devices)
        path = Path(path)
        spec = jobs.load(path)
        document = recipes.job_of(path) if recipes.is_config(path) else Document.read(path)
        if spec.plain is not None:
            raise document.error(
                ("job", "mode"), "is plain: its script, and no [batch], says what is computed"
            )
        devices = num_devices if num_devices is not None else spec.world.max
        if not devices:
            raise document.error(
                ("world", "max"), "is 0, every node: say num_devices= or how many these are"
            )
        micro, global_ = spec.batch.micro, spec.batch.global_
        accumulation, rest = divmod(global_, devices * micro)
        if rest or not accumulation:
            raise document.error(
                ("batch", "global"),
                f"is {global_}, no multiple of {devices} devices times {micro} samples"
                " (batch.micro): some would compute more than others, as elasticd can,"
                " and these figures can't say",
            )
        return cls(devices, micro, accumulation)


def _checked(key: str, check: Rule, value: object) -> None:
    try:
        check(value)
    except Wrong as wrong:
        raise _wrong(key, str(wrong)) from None


def _wrong(key: str, message: str) -> ConfigError:
    return ConfigError(message, file="elasticd.DistributedConfig", key=key)
