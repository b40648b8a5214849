"""A real elasticd.toml, changed in every way in which people and editors do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import FILE_NAME
from elasticd.shell.control import settingswatch as module
from elasticd.shell.control.settingswatch import SettingsWatch
from elasticd.shell.storage import watching

Run = Callable[[Coroutine[Any, Any, None]], None]


class Node:
    """What a daemon is told by its watch."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME
        self.holds = NodeConfig()
        self.wrong: list[str] = []
        self.told: asyncio.Queue[tuple[str, str, list[str]]] = asyncio.Queue()

    def tell(self, kind: str, reason: str, fields: dict[str, Any]) -> None:
        self.told.put_nowait((kind, reason, fields["keys"]))

    def take(self, settings: NodeConfig) -> None:
        self.holds = settings

    @contextlib.asynccontextmanager
    async def following(self, system: str = sys.platform) -> AsyncIterator[SettingsWatch]:
        self.holds = config.load(self.path.parent)
        watch = SettingsWatch(
            self.path.parent,
            self.path,
            self.holds,
            self.take,
            self.tell,
            self.wrong.append,
            system,
        )
        watch.start()
        try:
            yield watch
        finally:
            await watch.close()

    async def refused(self) -> tuple[str, list[str]]:
        kind, reason, keys = await self.told.get()
        assert kind == "settings_refused", reason
        return reason, keys

    async def taken(self) -> list[str]:
        kind, reason, keys = await self.told.get()
        assert kind == "settings_taken", reason
        return keys


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def beside(path: Path, text: str) -> None:
    """As careful editors do, and elasticctl."""
    other = path.with_name("other")
    other.write_text(text)
    os.utime(other, (1, 1))
    other.rename(path)


def moved_away_first(path: Path, text: str) -> None:
    """As those that keep a backup."""
    path.rename(path.with_name("elasticd.toml~"))
    path.write_text(text)


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize("write", [beside, moved_away_first, in_place])
def test_what_can_be_is_taken_and_the_rest_is_refused(
    node: Node, run: Run, write: Callable[[Path, str], None]
) -> None:
    async def main() -> None:
        node.path.write_text("output_bytes = 5\n[keep]\ndays = 0\n")
        async with node.following():
            write(node.path, "output_bytes = 6\nlisten = 'h:1'\n[keep]\ndays = 0\n")
            assert await node.taken() == ["output_bytes"]
            reason, keys = await node.refused()
            assert keys == ["listen"] and str(node.path) in reason and "started again" in reason
            assert (node.holds.output_bytes, node.holds.listen) == (6, NodeConfig().listen)
            write(node.path, "listen = 'h:1'\n[keep]\ndays = 1\n")
            assert sorted(await node.taken()) == ["keep.days", "output_bytes"]
            assert node.holds.keep.days == 1 and node.told.empty()

    run(main())


def test_what_may_be_a_secret_is_in_no_event(node: Node, run: Run) -> None:
    async def main() -> None:
        node.path.write_text("")
        async with node.following():
            beside(node.path, "[notify]\nparked = 'https://h/T0KEN'\n")
            kind, reason, keys = await node.told.get()
            assert (kind, keys) == ("settings_taken", ["notify.parked"])
            assert "notify.parked = " in reason and "T0KEN" not in reason
            assert node.holds.notify.parked == "https://h/T0KEN"
            beside(node.path, "[notify]\nparked = 'T0KEN'\n")
            assert "T0KEN" not in (await node.refused())[0]

    run(main())


@pytest.mark.usefixtures("soon_quiet")
def test_a_wrong_file_and_none_change_nothing(node: Node, run: Run) -> None:
    async def main() -> None:
        node.path.write_text("output_bytes = 5\n")
        async with node.following():
            before = node.holds
            for text, said in (("\noutput_bytes = -1", ":2: output_bytes"), ("x = [", ":1: ")):
                beside(node.path, text)
                reason, _ = await node.refused()
                assert str(node.path) in reason and said in reason
                assert node.wrong[-1] == reason
            node.path.unlink()
            assert "is gone" in (await node.refused())[0]
            assert node.holds == before
            beside(node.path, "output_bytes = 5\n[keep]\nresults = false\n")
            assert await node.taken() == ["keep.results"]
            assert node.wrong[-1] == ""

    run(main())


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize("text", [None, "output_bytes = -1", "output_bytes = 9\n"])
def test_what_is_replaced_while_it_is_read_is_judged_afterwards(
    node: Node, run: Run, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """What was read then may be either of the two."""

    real = config.load

    def load(home: Path, path: Path) -> NodeConfig:
        monkeypatch.setattr(config, "load", real)
        node.path.unlink() if text is None else beside(node.path, text)
        try:
            return real(home, path)
        finally:
            if text is not None:
                beside(node.path, "output_bytes = 7\n")

    async def main() -> None:
        node.path.write_text("output_bytes = 5\n")
        async with node.following():
            monkeypatch.setattr(config, "load", load)
            beside(node.path, "output_bytes = 6\n")
            if text is None:
                assert "is gone" in (await node.refused())[0]
            else:
                assert await node.taken() == ["output_bytes"] and node.holds.output_bytes == 7
            assert node.told.empty()

    run(main())


def test_half_a_file_is_not_taken(node: Node, run: Run) -> None:
    """It is emptied, and its lines come one by one: its defaults would have files removed."""

    async def main() -> None:
        node.path.write_text("[keep]\ndays = 0\n")
        async with node.following():
            with node.path.open("w") as file:
                for line in ("output_bytes = 7\n", "[keep]\n", "days = 0\n", "jobs = 1\n"):
                    await asyncio.sleep(0.05)
                    file.write(line)
                    file.flush()
            assert sorted(await node.taken()) == ["keep.jobs", "output_bytes"]
            assert node.holds.keep.days == 0 and node.told.empty()

    run(main())


def test_a_link_to_a_file_kept_elsewhere(
    node: Node, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No event tells of that, so it is looked at now and then."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        kept = tmp_path / "kept" / "mine.toml"
        kept.parent.mkdir()
        kept.write_text("")
        node.path.symlink_to(kept)
        async with node.following():
            beside(kept, "quota_bytes = 9\n")
            assert await node.taken() == ["quota_bytes"]

    run(main())


@pytest.mark.parametrize(("system", "asked"), [("darwin", 0), ("linux", 1)])
def test_where_no_events_are_told_the_file_is_looked_at(
    node: Node, run: Run, monkeypatch: pytest.MonkeyPatch, system: str, asked: int
) -> None:
    """A Mac, which would tell of all below the home, isn't asked; Linux may have no watch left."""
    watches = 0

    def refused() -> None:
        nonlocal watches
        watches += 1
        raise OSError("inotify watch limit reached")

    monkeypatch.setattr(watching, "Observer", refused)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(module, "LOOK_SECONDS", 3600.0)

    async def main() -> None:
        node.path.write_text("output_bytes = 5\n")
        async with node.following(system):
            for number in (6, 7):
                beside(node.path, f"output_bytes = {number}\n")
                assert await node.taken() == ["output_bytes"]
        assert node.holds.output_bytes == 7 and watches == asked

    run(main())


def test_what_changed_before_it_is_watched_is_seen(node: Node, run: Run) -> None:
    async def main() -> None:
        watch = SettingsWatch(node.path.parent, node.path, NodeConfig(), node.take, node.tell)
        beside(node.path, "peers = ['h:1']\n")
        watch.start()
        assert await node.taken() == ["peers"]
        await watch.close()

    run(main())
