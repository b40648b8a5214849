"""The door of the web page: a process for who knocks, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.settings.config import NodeConfig
from elasticd.shell.control import webdoor
from elasticd.shell.control.webdoor import WebDoor, command_of, is_loopback, strangers_listen
from elasticd.shell.control.webtoken import (
    METRICS_FILE,
    PLACE_FILE,
    TOKEN_FILE,
    WebPlace,
    make_token,
    metrics_token,
    place_of,
    tell_place,
    token_of,
)
from elasticd.shell.storage.durable import PARTIAL_SUFFIX
from tests.integration.otheraccount import need_root
from tests.nobody import NOBODY, as_nobody

# Answers each who connects with its pid, until it is told "end" or its standard input closes.
SERVES = """
import os, socket, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(9)), daemon=True).start()
door = socket.socket(fileno=int(sys.argv[1]))
door.setblocking(True)
while True:
    visitor, _ = door.accept()
    visitor.sendall(str(os.getpid()).encode() + b" ")
    said = visitor.recv(9)
    visitor.close()
    if said:
        os._exit(int(said))
"""


def serving(fd: int) -> Sequence[str]:
    return [sys.executable, "-c", SERVES, str(fd)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (a file says it)
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def kept(
    home: Path,
    command: Callable[[int], Sequence[str]] = serving,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[int]:
    """The port of a door."""
    port = free_port()
    door = WebDoor(home, NodeConfig(dashboard_port=port), command, sleep)
    task = asyncio.create_task(door.keep())
    try:
        await until(lambda: place_of(home).port == port)
        yield port
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.done()


async def knock(port: int, say: str = "0") -> int:
    """The pid of who answers; ``say``: the status with which it is to end; empty: it stays."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pid = int(await reader.readuntil(b" "))
        writer.write(say.encode())
        writer.write_eof()
        await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return pid


@pytest.mark.process
@in_a_loop
async def test_who_knocks_is_served_and_the_next_one_too(tmp_path: Path) -> None:
    async with kept(tmp_path) as port:
        first = await knock(port, "")
        assert await knock(port) == first, "one process for all"
        assert await knock(port) != first, "another one when that has ended"


@pytest.mark.process
@in_a_loop
async def test_nobody_is_started_for_nobody(tmp_path: Path) -> None:
    started: list[int] = []

    def noted(fd: int) -> Sequence[str]:
        started.append(fd)
        return serving(fd)

    async with kept(tmp_path, noted) as port:
        assert not started
        await knock(port)
        assert len(started) == 1


@pytest.mark.process
@pytest.mark.parametrize("steady, expected", [(False, [1.0, 2.0, 4.0, 1.0]), (True, [1.0] * 4)])
@in_a_loop
async def test_one_that_fails_is_started_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: bool, expected: list[float]
) -> None:
    """The first pause again after one that did not fail, or that had run for long."""
    pauses: list[float] = []
    monkeypatch.setattr(webdoor, "STEADY_SECONDS", -1.0 if steady else 600.0)

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    async with kept(tmp_path, sleep=noted) as port:
        for _ in range(3):
            await knock(port, "3")
        await knock(port, "0")
        await knock(port, "3")
        await knock(port, "0")
    assert pauses == expected


@pytest.mark.process
@in_a_loop
async def test_who_knocks_is_served_once_a_process_can_be_started(tmp_path: Path) -> None:
    """It has no log as long as a folder lies in its place."""
    in_its_place = tmp_path / webdoor.LOG_FILE
    in_its_place.mkdir()
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            in_its_place.rmdir()

    async with kept(tmp_path, sleep=noted) as port:
        await knock(port)
        assert place_of(tmp_path).port == port
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize("name", [METRICS_FILE, PLACE_FILE])
@in_a_loop
async def test_a_disk_that_refuses_is_tried_again(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    told: list[str] = []

    async def noted(seconds: float) -> None:
        told.append(place_of(tmp_path).why)
        if len(told) == 2:
            (tmp_path / name).rmdir()

    async with kept(tmp_path, sleep=noted) as port:
        assert place_of(tmp_path).port == port
    assert len(told) == 2 and all(told)
    if name == METRICS_FILE:
        assert name in told[0] and "every 30 s" in told[0]


@pytest.mark.process
@in_a_loop
async def test_a_process_ends_with_its_daemon(tmp_path: Path) -> None:
    async with kept(tmp_path) as port:
        pid = await knock(port, "")
    assert not psutil.pid_exists(pid)


@in_a_loop
async def test_a_port_that_another_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        task = asyncio.create_task(WebDoor(tmp_path, NodeConfig(dashboard_port=port)).keep())
        await until(lambda: place_of(tmp_path).why.startswith("127.0.0.1:"))
        why = place_of(tmp_path).why
        assert "in use" in why and "every 30 s" in why
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("ours", [True, False])
@in_a_loop
async def test_after_another_account_had_the_port_there_is_a_new_token(
    tmp_path: Path, ours: bool
) -> None:
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    make_token(tmp_path)
    before = token_of(tmp_path)

    async def once_it_went(seconds: float) -> None:
        other.close()

    door = WebDoor(
        tmp_path,
        NodeConfig(dashboard_port=port),
        sleep=once_it_went,
        strangers=lambda host, port: not ours,
    )
    task = asyncio.create_task(door.keep())
    try:
        await until(lambda: place_of(tmp_path).port == port)
        assert (token_of(tmp_path) == before) is ours
        assert (tmp_path / METRICS_FILE).read_text() == metrics_token(token_of(tmp_path))
    finally:
        task.cancel()
        await asyncio.wait([task])


@in_a_loop
async def test_a_new_token_that_the_disk_refused_is_drawn_later(tmp_path: Path) -> None:
    """Until then the port is free for the next try, and nobody is let in with the old one."""
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    make_token(tmp_path)
    before = token_of(tmp_path)
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            other.close()
            (tmp_path / f"{TOKEN_FILE}{PARTIAL_SUFFIX}").mkdir()
        else:
            assert token_of(tmp_path) == before
            (tmp_path / f"{TOKEN_FILE}{PARTIAL_SUFFIX}").rmdir()

    door = WebDoor(
        tmp_path,
        NodeConfig(dashboard_port=port),
        sleep=noted,
        strangers=lambda host, port: True,
    )
    task = asyncio.create_task(door.keep())
    try:
        await until(lambda: place_of(tmp_path).port == port)
        assert len(pauses) == 2 and token_of(tmp_path) not in ("", before)
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("asks_once", [True, False])
@in_a_loop
async def test_where_that_takes_long_it_is_asked_once_whose_the_port_is(
    tmp_path: Path, asks_once: bool
) -> None:
    asked: list[int] = []
    pauses: list[float] = []

    def not_strangers(host: str, port: int) -> bool:
        asked.append(port)
        return False

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def three_times(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                other.close()

        door = WebDoor(
            tmp_path,
            NodeConfig(dashboard_port=port),
            sleep=three_times,
            strangers=not_strangers,
            asks_once=asks_once,
        )
        task = asyncio.create_task(door.keep())
        await until(lambda: place_of(tmp_path).port == port)
        task.cancel()
        await asyncio.wait([task])
    assert asked == [port] * (1 if asks_once else 3)


def test_the_port_of_another_account_alone_is_a_strangers() -> None:
    need_root()
    with as_nobody():
        listening = socket.create_server(("127.0.0.1", 0))
    with listening:
        port = listening.getsockname()[1]
        assert strangers_listen("127.0.0.1", port, ours=lambda port: False)
        os.seteuid(NOBODY)
        try:
            assert not strangers_listen("127.0.0.1", port, ours=lambda port: False)
        finally:
            os.seteuid(0)
    assert not strangers_listen("127.0.0.1", port, ours=lambda port: False)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux whose the listener is")
def test_the_port_of_a_process_of_ours_that_cannot_be_seen_is_no_strangers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not strangers_listen("127.0.0.1", port, ours=lambda port: False)


def test_a_mac_tells_no_more_than_that_somebody_not_ours_has_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert strangers_listen("127.0.0.1", port, "darwin", lambda port: False)
        assert not strangers_listen("127.0.0.1", port, "darwin", lambda port: True)
    assert not strangers_listen("127.0.0.1", port, "darwin", lambda port: False), "it has ended"


@in_a_loop
async def test_who_wants_no_page(tmp_path: Path) -> None:
    await WebDoor(tmp_path, NodeConfig(dashboard_port=0)).keep()
    assert "is 0" in place_of(tmp_path).why
    assert not (tmp_path / TOKEN_FILE).exists()


@in_a_loop
async def test_what_it_needs_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdoor, "NEEDED", ("no_such_module_here",))
    await WebDoor(tmp_path, NodeConfig(dashboard_port=1)).keep()
    assert place_of(tmp_path).why == (
        "no_such_module_here is not installed there: pip install 'elasticd[dashboard]'"
    )


def test_elsewhere_than_on_loopback_there_is_tls(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "127.1.2.3", "localhost"):
        assert is_loopback(host)
        assert "--tls" not in command_of(tmp_path, NodeConfig(dashboard_host=host))(3)
    for host in ("0.0.0.0", "10.0.0.1", "mac-1.local", "127.0.0.1.example"):
        assert not is_loopback(host)
        found = command_of(tmp_path, NodeConfig(dashboard_host=host, listen="mac-1.local:1"))(3)
        assert "--tls" in found and found[-1] == "mac-1.local"


def test_the_token_is_for_this_account_alone(tmp_path: Path) -> None:
    assert token_of(tmp_path) == ""
    make_token(tmp_path)
    token = token_of(tmp_path)
    assert len(token) >= 43
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600
    (tmp_path / METRICS_FILE).unlink()
    make_token(tmp_path)
    assert (tmp_path / METRICS_FILE).read_text() == metrics_token(token)
    assert stat.S_IMODE((tmp_path / METRICS_FILE).stat().st_mode) == 0o600
    assert token_of(tmp_path) == token, "addresses that people keep go on to work"
    (tmp_path / TOKEN_FILE).chmod(0o640)
    assert token_of(tmp_path) == "", "others have read it"
    make_token(tmp_path)
    assert token_of(tmp_path) not in ("", token)


def test_a_link_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    (tmp_path / "other").chmod(0o600)
    (tmp_path / TOKEN_FILE).symlink_to(tmp_path / "other")
    assert token_of(tmp_path) == ""
    make_token(tmp_path)
    assert token_of(tmp_path) and (tmp_path / "other").read_text() == "x"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"host": "h"}', '{"host":1,"port":"x"}'])
def test_a_place_that_nobody_understands(tmp_path: Path, text: str) -> None:
    (tmp_path / PLACE_FILE).write_text(text)
    assert place_of(tmp_path).why


def test_a_place_that_cannot_be_told_is_not_the_one_of_before(tmp_path: Path) -> None:
    tell_place(tmp_path, WebPlace("h", 1, True))
    (tmp_path / f"{PLACE_FILE}{PARTIAL_SUFFIX}").mkdir()
    with pytest.raises(OSError):
        tell_place(tmp_path, WebPlace(why="none"))
    assert place_of(tmp_path).why and place_of(tmp_path).port == 0


def test_a_place(tmp_path: Path) -> None:
    tell_place(tmp_path, WebPlace("h", 1, True))
    assert place_of(tmp_path) == WebPlace("h", 1, True)
    assert json.loads((tmp_path / PLACE_FILE).read_text())["why"] == ""
