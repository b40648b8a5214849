"""Probes of MLX: whether the same work has the same bits twice, and what short memory does."""

from __future__ import annotations

import hashlib
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import psutil
from mlx.utils import tree_flatten

from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.preflight.firststeps import AS_PRODUCT
from elasticd.recovery.signatures import of_text
from elasticd.train.gpu import has_gpu
from elasticd.train.settling import settled
from elasticd.train.steps.relief import allocate

GRADIENTS = 20
_WIDE, _ROWS, _WORDS = 256, 64, 50
_ROOM_BYTES = 256 << 20
_SETTLINGS, _SETTLE_SECONDS = 50, 0.01
STARVE = (
    sys.executable,
    "-P",
    "-c",
    "from elasticd.cli.mac.metal import starve; starve()",
)
_STARVE_SECONDS = 60.0
_ENDED = "ended by "


def _numbers(*shape: int) -> mx.array:
    """The same on each machine."""
    count = 1
    for length in shape:
        count *= length
    found = (mx.arange(count, dtype=mx.int32) * 37 % 97).astype(mx.float32) / 97 - 0.5
    return found.reshape(shape)


def digest_of(tree: object) -> str:
    """Of all bits of it."""
    found = hashlib.blake2b(digest_size=8)
    leaves: Any = tree_flatten(tree)
    for name, leaf in sorted(leaves):
        mx.eval(leaf)
        found.update(name.encode() + bytes(memoryview(leaf)))
    return found.hexdigest()


def _net() -> Any:
    """MLX's modules have no types."""
    module: Any = nn
    net = module.Sequential(nn.Linear(_WIDE, _WIDE), module.ReLU(), nn.Linear(_WIDE, _WIDE))
    net.layers[0].weight, net.layers[2].weight = _numbers(_WIDE, _WIDE), _numbers(_WIDE, _WIDE).T
    net.layers[0].bias = net.layers[2].bias = _numbers(_WIDE)
    return net


def _squares(net: Any, x: mx.array) -> mx.array:
    return mx.mean(net(x) ** 2)


def gradient() -> str:
    """Of a small network: what trainers call a grain."""
    net = _net()
    return digest_of(nn.value_and_grad(net, _squares)(net, _numbers(_ROWS, _WIDE))[1])


def settling() -> float:
    """Seconds that it takes to wait for the GPU where all was evaluated: a trainer does so in each
    step before its gradients leave it."""
    found = []
    for _ in range(_SETTLINGS):
        mx.eval(_numbers(_ROWS, _WIDE))
        begun = time.perf_counter()
        settled()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def grain(
    folder: Path,
    compute: Callable[[], str] = gradient,
    settle: Callable[[], float] = settling,
) -> ProbeFinding:
    """The gradient of one grain, computed twice."""
    first, second = compute(), compute()
    if first != second:
        return failed(
            f"{first}, then {second}",
            "Jobs with this node are shown 'exact: no'. Let the Mac cool down, restart it, and try"
            " again; if it stays so have its GPU checked",
        )
    waits = settle()
    value = f"{first}; to wait for the GPU once more takes {waits * 1000:.2f} ms"
    if waits > _SETTLE_SECONDS:
        return warned(value, "Each step takes so much longer: end what else uses the GPU")
    return passed(value)


def updated(device: mx.Device | mx.DeviceType | None = None) -> str:
    """What two updates of AdamW make of fixed parameters."""
    with mx.stream(device or mx.default_device()):
        net, optimizer = _net(), optim.AdamW(learning_rate=1e-2)
        for turn in (1.0, 0.3):
            moved = {"layers": [{"weight": turn * _numbers(_WIDE, _WIDE)}]}
            optimizer.update(net, moved)
        return digest_of(net.parameters())


def adamw(
    folder: Path,
    gpu: Callable[[], str] = updated,
    cpu: Callable[[], str] = lambda: updated(mx.cpu),
) -> ProbeFinding:
    """The bits of AdamW's update, to be compared with those of other Macs."""
    first, second, on_cpu = gpu(), gpu(), cpu()
    if first != second:
        return failed(
            f"{first}, then {second}",
            "Use another optimizer, or this node in jobs without require_exact only",
        )
    where = "as on the CPU" if first == on_cpu else f"on the CPU {on_cpu}"
    return passed(f"{first}, {where}; Macs whose first word differs update with other bits")


def embedding_gradient() -> str:
    """Of a table of which some rows are wanted often: scatters collide there."""
    table = nn.Embedding(_WORDS, _WIDE)
    table.weight = _numbers(_WORDS, _WIDE)
    wanted = mx.arange(_ROWS * _ROWS) % 7
    weight = _numbers(_ROWS * _ROWS, _WIDE)

    def loss(net: nn.Module, ids: mx.array) -> mx.array:
        return mx.sum(net(ids) * weight)

    return digest_of(nn.value_and_grad(table, loss)(table, wanted)[1])


def embedding(
    folder: Path, compute: Callable[[], str] = embedding_gradient, times: int = GRADIENTS
) -> ProbeFinding:
    """The gradient of an embedding, again and again: on Metal its sums are made in any order."""
    found = {compute() for _ in range(times)}
    if len(found) > 1:
        return warned(
            f"{len(found)} different results of {times}",
            f"Jobs with nn.Embedding are shown 'exact: no' here. Where bits matter {AS_PRODUCT}",
        )
    return passed(f"the same bits {times} times: {found.pop()}")


def starve() -> None:
    """Ask for more memory than this process may have. Without Metal it may end of that."""
    if not has_gpu():
        mx.eval(mx.zeros(4))
        most = psutil.Process().memory_info().vms + _ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    allocate(4 * _ROOM_BYTES)


def starve_aside(command: Sequence[str] = STARVE) -> None:
    """As :func:`starve`, in a process of its own, since MLX on the CPU doesn't survive it.

    Raises:
        RuntimeError: it ended of that, as it should.
    """
    done = subprocess.run(command, capture_output=True, timeout=_STARVE_SECONDS, check=False)
    if done.returncode < 0:
        raise RuntimeError(f"{_ENDED}{signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])


def shortage(
    folder: Path,
    force: Callable[[], None] | None = None,
    compute: Callable[[], str] = gradient,
    metal: bool | None = None,
) -> ProbeFinding:
    """A forced shortage of memory, and whether MLX computes the same after it."""
    on_metal = has_gpu() if metal is None else metal
    cure = "Send this result: a job that runs out of memory may fail on this node"
    before = compute()
    try:
        (force or (starve if on_metal else starve_aside))()
    except RuntimeError as error:
        said = str(error)
    else:
        return failed("more memory than there is was given, without an error", cure)
    told = of_text(said)
    if (told is None or told[0] != "oom") and (on_metal or not said.startswith(_ENDED)):
        return failed(f"not known as short memory: {said}", cure)
    if compute() != before:
        return failed(f"afterwards MLX computes something else; it had said: {said}", cure)
    where = "" if on_metal else "in a process of its own: "
    return passed(f"{where}{said}; MLX works afterwards")
