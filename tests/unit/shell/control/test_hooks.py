"""What ``[notify]`` names, as real processes, and with a fake in their place."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.settings.notify import DESKTOP, Hook
from elasticd.shell.control.hooks import (
    OUTPUT_BYTES,
    HookCall,
    HookEnd,
    HookError,
    call_of,
    run_hook,
    tell,
)

MESSAGE = {"event": "job_failed", "text": 'j-1 has failed: it\'s "so"', "id": "job_failed/j-1"}
SECRET = "T0KEN"


class FakeRun:
    """Ends as it is told to, one call after the other."""

    def __init__(self, *ends: HookEnd | Exception) -> None:
        self.ends, self.calls = list(ends), list[HookCall]()

    async def __call__(self, call: HookCall) -> HookEnd:
        self.calls.append(call)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


class Clock:
    """Goes on in pauses alone, and these take no time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def told(hook: Hook, run: Any, clock: Clock | None = None) -> HookEnd:
    clock = clock or Clock()
    return asyncio.run(tell(hook, MESSAGE, run, sleep=clock.sleep, clock=clock.now))


def test_macos_is_handed_the_text_as_an_argument() -> None:
    run = FakeRun(HookEnd(0, ""))
    told(DESKTOP, run)
    (call,) = run.calls
    assert call.words[0] == "/usr/bin/osascript"
    assert call.words[-2:] == (MESSAGE["text"], "elasticd: job_failed")
    assert not any("so" in word for word in call.words[:-2]), "nothing of it is run as a script"


def test_what_may_pass_is_tried_again_and_nothing_else() -> None:
    run = FakeRun(HookEnd(75, ""), HookEnd(75, ""), HookEnd(0, "ok"))
    assert told("https://h/x", run).output == "ok" and len(run.calls) == 3
    for end in (HookEnd(1, SECRET), HookEnd(-9, ""), TimeoutError(), OSError(2, "No such file")):
        run = FakeRun(end)
        with pytest.raises(HookError) as caught:
            told(("/bin/x", SECRET), run)
        assert len(run.calls) == 1 and SECRET not in str(caught.value)


def test_it_is_tried_for_five_minutes_and_not_for_ever() -> None:
    run, clock = FakeRun(*[HookEnd(75, "HTTP 503")] * 50), Clock()
    with pytest.raises(HookError, match=r"the webhook ended with status 75 \(HTTP 503\)"):
        told(f"https://h/{SECRET}", run, clock)
    assert 300 <= clock.seconds <= 300 + 60, "the longest pause is a minute"
    assert len(run.calls) < 20


def test_no_secret_is_in_a_list_of_processes_or_an_environment() -> None:
    call = call_of(f"https://h/{SECRET}", MESSAGE, {"HOME": "/h", "AWS_SECRET": SECRET})
    assert SECRET not in repr((call.words, call.environment)) and SECRET.encode() in call.stdin


@pytest.mark.process
def test_a_command_has_what_is_told_and_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    out = tmp_path / "out"
    script = f'cat > {out}; echo "$ELASTICD_TEXT" >> {out}; env >> {out}; pwd >> {out}'
    told(("/bin/sh", "-c", script), run_hook)
    first, text, *rest = out.read_text().replace("}", "}\n", 1).splitlines()
    assert json.loads(first) == MESSAGE and text == MESSAGE["text"]
    assert SECRET not in str(rest) and any(line.startswith("PATH=") for line in rest)


@pytest.mark.process
def test_a_command_that_never_ends_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"
    call = HookCall(("/bin/sh", "-c", script), b"", {"PATH": os.environ["PATH"]})

    async def main() -> None:
        run = asyncio.create_task(run_hook(call))
        while not pid.exists():  # noqa: ASYNC110 (a file says it)
            await asyncio.sleep(0.01)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        with pytest.raises(TimeoutError):
            await run_hook(HookCall(("/bin/sleep", "600"), b"", {}), seconds=0.01)

    asyncio.run(main())
    with contextlib.suppress(psutil.NoSuchProcess):
        gone = psutil.Process(int(pid.read_text()))
        while gone.status() != psutil.STATUS_ZOMBIE:  # its parent is gone, who would have reaped it
            time.sleep(0.01)


@pytest.mark.process
def test_output_without_end_is_taken_and_not_kept() -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done"
    end = asyncio.run(run_hook(HookCall(("/bin/sh", "-c", script), b"", {})))
    assert end.status == 0 and len(end.output) == OUTPUT_BYTES


@contextlib.contextmanager
def server(status: int, seen: list[Any]) -> Iterator[str]:
    class _Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, json.loads(body)))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/other")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}/{SECRET}"
        finally:
            made.shutdown()
            thread.join()


@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "passes"), [(204, None), (404, False), (302, False), (503, True)]
)
def test_a_webhook(status: int, passes: bool | None) -> None:
    seen: list[Any] = []
    with server(status, seen) as url:
        telling: Callable[[], HookEnd] = lambda: asyncio.run(  # noqa: E731
            tell(url, MESSAGE, run_hook, seconds=0)
        )
        if passes is None:
            assert telling().output == "HTTP 204\n"
        else:
            with pytest.raises(HookError, match=f"HTTP {status}") as caught:
                telling()
            assert caught.value.passes == passes
            assert SECRET not in str(caught.value) + caught.value.output
    assert seen == [(f"/{SECRET}", MESSAGE)]


@pytest.mark.process
def test_nobody_at_the_webhook() -> None:
    with pytest.raises(HookError, match="no connection: Connection refused") as caught:
        asyncio.run(tell(f"http://127.0.0.1:9/{SECRET}", MESSAGE, run_hook, seconds=0))
    assert caught.value.passes and SECRET not in str(caught.value) + caught.value.output
