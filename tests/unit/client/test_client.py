"""Questions to daemons, their answers, and what is made of those that give none."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Any

import psutil
import pytest

from elasticd.archive import pack
from elasticd.cli.daemons import name as name_process
from elasticd.client import client, connection, processes
from elasticd.client.client import Client
from elasticd.client.connection import Connection, HungUp, NobodyListens, probe
from elasticd.client.processes import find_daemon
from elasticd.client.queue import ARCHIVE_FRAME_BYTES
from elasticd.core.words.requests.checkpoints import PruneCheckpoints
from elasticd.core.words.requests.jobs import CancelJob, JobChanged
from elasticd.core.words.requests.looking import ReadEvents, ShowDisk, ShowStatus
from elasticd.core.words.requests.nodes import DrainNode, NodeChanged
from elasticd.errors import NoDaemonError, OperationError, ProtocolError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.settings.places import DAEMON_FILE, FILE_NAME, LOCAL_LOCK_NAME
from elasticd.types import JobId, NodeId
from tests.integration import otheraccount
from tests.nobody import NOBODY, as_nobody
from tests.unit.client.fake_daemon import FakeDaemon

JOB = JobId("j")
Serve = Callable[[Path, Mapping[str, Any]], FakeDaemon]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A fake daemon of a home, which serves until the test ends."""
    with ExitStack() as running:
        yield lambda home, answers: running.enter_context(FakeDaemon(home, answers))


def test_an_answer_is_returned_and_the_question_arrives_whole(home: Path, serve: Serve) -> None:
    daemon = serve(home, {"status": {"jobs": []}})
    assert Client(home).request(ShowStatus(JOB)) == {"jobs": []}
    assert daemon.requests == [{"do": "status", "job": "j", "parts": True}]


def test_an_answer_in_parts_is_put_together(home: Path, serve: Serve) -> None:
    parts = [
        {"removed": [1], "more": True},
        {"removed": [2, 3], "more": True},
        {"kept": [4], "more": True},
        {"removed": [], "kept": [5], "job": "j"},
    ]
    daemon = serve(home, {"checkpoints_prune": parts})
    whole = {"removed": [1, 2, 3], "kept": [4, 5], "job": "j"}
    assert Client(home).request(PruneCheckpoints(JOB)) == whole
    assert daemon.requests[0]["parts"] is True


def test_a_stream_ends_where_the_daemon_says_so(home: Path, serve: Serve) -> None:
    serve(home, {"events": [{"n": 1}, {"n": 2}, {"end": True}, {"n": 3}]})
    assert list(Client(home).stream(ReadEvents())) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("stream", [True, False])
def test_what_takes_a_daemon_long_is_waited_for_as_long_as_it_answers_others(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(connection, "QUIET_SECONDS", 0.05)
    asked = threading.Semaphore(0)

    def status(request: dict[str, Any]) -> dict[str, Any]:
        asked.release()
        return {}

    def after_two_questions(request: dict[str, Any]) -> list[dict[str, Any]]:
        for _ in range(2):
            asked.acquire()
        return [{"n": 1}, {"end": True}]

    slow = {"events": after_two_questions, "disk": after_two_questions}
    serve(home, {"status": status, **slow})
    client = Client(home, answer_seconds=0.05)
    if stream:
        assert list(client.stream(ReadEvents(), patient=True)) == [{"n": 1}]
    else:
        assert client.wait_for(ShowDisk()) == {"n": 1}


def test_a_refusal_is_an_error_of_its_kind(home: Path, serve: Serve) -> None:
    serve(home, {"status": {"error": "no job x"}, "events": {"error": "bad", "code": 2}})
    with pytest.raises(OperationError, match="no job x"):
        Client(home).request(ShowStatus())
    with pytest.raises(UsageError, match="bad"):
        list(Client(home).stream(ReadEvents()))


def test_who_hangs_up_or_keeps_silent_is_no_daemon(home: Path, serve: Serve) -> None:
    serve(home, {"status": []})
    with pytest.raises(NoDaemonError, match="hung up"):
        Client(home).request(ShowStatus())
    with pytest.raises(NoDaemonError, match="no daemon runs at"):
        Client(home / "elsewhere").request(ShowStatus())
    other = home / "other"
    other.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(other / "control.sock"))
        silent.listen()
        with pytest.raises(NoDaemonError, match=r"nothing came for 0\.05 s"):
            Client(other, answer_seconds=0.05).request(ShowStatus())
        with pytest.raises(NoDaemonError, match="nothing came"):
            probe(other / "control.sock", 0.05)
    with pytest.raises(NobodyListens, match="no daemon runs at"):
        probe(other / "control.sock")


def abandoned(home: Path) -> None:
    """A socket whose daemon was killed."""
    home.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead, contextlib.chdir(home):
        dead.bind("control.sock")


def said(home: Path) -> str:
    with pytest.raises(NoDaemonError) as error:
        Client(home, answer_seconds=0.05).request(ShowStatus())
    return str(error.value)


def test_one_cause_and_cure_is_said_of_a_home_with_no_daemon(tmp_path: Path) -> None:
    """Whether its sockets are there or not, its own or those of its nodes, and whatever else."""

    def nothing(home: Path) -> None:
        pass

    def a_cluster(home: Path) -> None:
        for number in range(3):
            abandoned(home / f"node-{number}")

    def some_of_each(home: Path) -> None:
        abandoned(home / "node-0")
        (home / "node-1").mkdir()
        (home / "node-2").mkdir()
        (home / "node-2" / "control.sock").touch()
        (home / "control.sock").symlink_to("nowhere")

    makers: list[Callable[[Path], None]] = [nothing, a_cluster, some_of_each, Path.touch]
    for name in ("a", "a path that fits no address of a socket" * 3):
        for number, make in enumerate(makers):
            home = tmp_path / f"{name}{number}"
            make(home)
            of, mark = f"--home {quote(str(home))}", "" if " " in name else "'"
            assert said(home) == (
                f"no daemon runs at {home} (start one with {mark}elasticctl local up {of}{mark} or"
                f" {mark}elasticctl service install {of}{mark}, or name its home with --home)"
            )


def test_what_starts_a_daemon_fits_its_home(tmp_path: Path) -> None:
    """'local up' would lay a local cluster into a node's own home."""
    own, local = tmp_path / "own", tmp_path / "local"
    (local / "node-0").mkdir(parents=True)
    (local / LOCAL_LOCK_NAME).touch()
    own.mkdir()
    (own / FILE_NAME).touch()
    assert "local up" not in said(own) and "service install --home" in said(own)
    for home in (local, local / "node-0"):
        assert f"'elasticctl local up --home {local}'" in said(home)
        assert "service" not in said(home)


def test_a_daemon_that_is_there_but_silent_is_not_one_that_has_ended(tmp_path: Path) -> None:
    """Whichever of the others ended."""
    abandoned(tmp_path / "node-0")
    abandoned(tmp_path / "node-2")
    (tmp_path / "node-1").mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "node-1" / "control.sock"))
        silent.listen()
        told = said(tmp_path)
    assert told.startswith(f"the daemon at {tmp_path}/node-1 doesn't answer (nothing")
    assert told.endswith(f": 'elasticctl doctor --home {tmp_path}/node-1' says what to do")


def test_a_daemon_that_takes_no_connection_is_silent_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.1)
    home.mkdir()
    name_process(home / DAEMON_FILE, psutil.Process())
    path = str(home / "control.sock")
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket(socket.AF_UNIX))
        full.bind(path)
        full.listen(0)
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:  # macOS refuses where Linux has us wait
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(path)
        text = said(home)
    assert "it takes no connection" in text and "Errno" not in text


def test_one_that_lives_and_refuses_is_busy_as_on_a_mac(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(home)
    path = home / "control.sock"
    with pytest.raises(NobodyListens):
        Connection(path, "darwin")
    name_process(home / DAEMON_FILE, psutil.Process())
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.1)
    with pytest.raises(NoDaemonError, match="it takes no connection"):
        Connection(path, "darwin")
    with pytest.raises(NobodyListens):  # Linux says something else of one that is busy
        Connection(path, "linux")


def test_a_busy_daemon_is_asked_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    name_process(home / DAEMON_FILE, psutil.Process())
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(home / "control.sock"))

        def has_room_then(home: Path) -> psutil.Process | None:
            busy.listen()
            return find_daemon(home)

        monkeypatch.setattr(processes, "find_daemon", has_room_then)
        Connection(home / "control.sock", "darwin").close()
        busy.accept()[0].close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_socket_that_we_may_not_open_is_a_cause_of_its_own(home: Path) -> None:
    abandoned(home)
    (home / "control.sock").chmod(0)
    assert "permission denied" in said(home)
    home.chmod(0)
    try:
        assert "permission denied" in said(home)
    finally:
        home.chmod(0o700)


@pytest.fixture
def strangers_socket() -> Iterator[Path]:
    """One on which another account listens, in a home that looks well."""
    otheraccount.need_root()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder) / "control.sock"
        Path(folder).chmod(0o777)
        with as_nobody():
            listening.bind(str(path))
            listening.listen()
        path.chmod(0o777)
        Path(folder).chmod(0o755)
        yield path


@pytest.mark.parametrize("way", ["client", "connection", "probe"])
def test_no_daemon_of_another_account_is_asked(strangers_socket: Path, way: str) -> None:
    ways: dict[str, Callable[[], object]] = {
        "client": lambda: Client(strangers_socket.parent, 0.1).request(ShowStatus()),
        "connection": lambda: Connection(strangers_socket),
        "probe": lambda: probe(strangers_socket, 0.1),
    }
    os.seteuid(NOBODY - 1)
    try:
        with pytest.raises(UsageError, match=r"answered by another account .*(nobody|65534)"):
            ways[way]()
    finally:
        os.seteuid(0)
    with as_nobody():
        Connection(strangers_socket).close()
    Connection(strangers_socket).close()  # root may ask any


def test_of_whom_the_system_tells_nothing_is_gone_and_the_next_is_asked(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS may not say whose daemon it was, if it ends just then."""
    monkeypatch.setattr(connection, "PROBE_SECONDS", 60.0)
    gone, there = serve(home / "node-0", {}), serve(home / "node-1", {"status": {}, "cancel": {}})

    told = iter([None, None, 54_321, 54_321])
    monkeypatch.setattr(connection, "peer_uid", lambda connected: next(told))
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    monkeypatch.setattr(client, "refuse_open", lambda home: None)
    with pytest.raises(HungUp):
        Connection(home / "node-0" / "control.sock")
    Client(home).open(CancelJob(JOB)).close()
    assert not gone.requests
    assert there.requests[0]["do"] == "status"


@pytest.mark.parametrize(
    "number, kind", [(errno.ENOENT, NobodyListens), (errno.ESTALE, NoDaemonError)]
)
def test_a_home_that_cannot_be_looked_at_is_not_asked(
    strangers_socket: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refuse_open(home: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(client, "refuse_open", refuse_open)
    with as_nobody(), pytest.raises(kind) as caught:
        Client(strangers_socket.parent, 0.1).request(ShowStatus())
    assert type(caught.value) is kind


def test_of_several_daemons_the_first_that_answers_is_asked(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", 60.0)  # a busy machine answers late
    serve(home / "node-0", {"status": []})
    daemon = serve(home / "node-1", {"status": {}, "cancel": {"id": "j", "state": "cancelled"}})
    assert Client(home).change(CancelJob(JOB)) == JobChanged(JOB, "cancelled")
    assert [request["do"] for request in daemon.requests] == ["status", "cancel"]


def test_a_change_is_read(home: Path, serve: Serve) -> None:
    daemon = serve(home, {"drain": {"id": "n", "state": "draining", "more": 1}, "cancel": {}})
    node = NodeId("n")
    assert Client(home).change(DrainNode(node)) == NodeChanged(node, "draining")
    assert daemon.requests == [{"do": "drain", "node": "n"}]
    with pytest.raises(ProtocolError, match="JobChanged: field id is missing"):
        Client(home).change(CancelJob(JOB))


def test_a_job_is_shipped_with_its_folder(home: Path, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_bytes(b"#" * (2 * ARCHIVE_FRAME_BYTES))
    spec = JobSpec.from_dict(
        {
            "job": {"name": "j", "entrypoint": "train.py"},
            "batch": {"global": 8, "micro": 4},
            "train": {"steps": 1},
        }
    )
    archive = pack(folder)
    daemon = serve(home, {"submit": {"id": "j-1-abcd"}})
    assert Client(home).submit(spec, archive) == "j-1-abcd"
    assert daemon.archives == [archive.data]
    daemon.answers["submit"] = {"state": "queued"}
    with pytest.raises(ProtocolError, match="has no id"):
        Client(home).submit(spec, archive)
