"""Tells people what has happened, as ``[notify]`` in elasticd.toml says, once in the cluster.

Who tells is decided by core/jobs/notices.py from the events, which all nodes have.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from elasticd.core.jobs.notices import (
    AGE_SECONDS,
    TELLING,
    TOLD,
    UNTOLD,
    Around,
    NoticeBook,
    PeopleNotice,
)
from elasticd.core.words.limits import clipped
from elasticd.core.words.requests.looking import TryNotices
from elasticd.errors import OperationError
from elasticd.settings.notify import NotifyRules
from elasticd.settings.rules import one_line
from elasticd.shell.clock import monotonic_seconds, unix_seconds
from elasticd.shell.control.hooks import HookError, RunHook, run_hook, tell
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.tasks import Tasks

LOOK_SECONDS = 1.0
AT_ONCE = 4

log = structlog.get_logger(__name__)

Happened = Callable[[str, str, dict[str, Any]], None]
"""Of an event: its kind, the reason, further fields."""


class NoticeDesk:
    """One node's.

    Attributes:
        rules: what is done from now on.
    """

    def __init__(
        self,
        rules: NotifyRules,
        cluster: str,
        events: EventReading,
        around: Callable[[], Around],
        happened: Happened,
        run: RunHook = run_hook,
    ) -> None:
        self.rules = rules
        self._cluster, self._events, self._around = cluster, events, around
        self._happened, self._run = happened, run
        self._book = NoticeBook()
        self._sending = set[str]()
        self._tasks = Tasks("telling people")

    def handlers(self) -> Handlers:
        return on(TryNotices, self.try_them)

    async def rounds(self) -> None:
        """For ever. What was begun ends with it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._look())
        finally:
            await self._tasks.cancel()

    async def try_them(self, request: TryNotices, stream: Stream) -> Mapping[str, Any]:
        """Do at once what is to be done on that event, or on any, and say how it went.

        Raises:
            OperationError: there is nothing to do.
        """
        told = self.rules.told
        if request.event is not None and request.event not in told:
            known = f": it has {', '.join(told)}" if told else ""
            raise OperationError(
                f"[notify] in this node's elasticd.toml says nothing of {request.event}{known}"
            )
        if not told:
            raise OperationError(
                "this daemon has taken no [notify] from its elasticd.toml; if there is one, the"
                " event settings_refused ('elasticctl events') says what is wrong in the file"
            )
        me = self._around().me
        tried = []
        for event in told if request.event is None else (request.event,):
            text = f"this is a test of {event} from {me}"
            notice = PeopleNotice(f"test/{event}", event, unix_seconds(), text, None, me)
            try:
                message = self._message(notice)
                end = await tell(self._hook(event), message, self._run, seconds=0)
                why, said = None, end.output
            except HookError as error:
                why, said = str(error), error.output
            tried.append({"event": event, "error": why, "output": said})
        return {"tried": tried}

    async def _read(self) -> None:
        while True:
            since = unix_seconds() - AGE_SECONDS
            try:
                async for event, news in self._events.happening(since):
                    # Other nodes wrote some: each may be anything.
                    with contextlib.suppress(LookupError, TypeError, ValueError):
                        # The clock of the node that says when it happened may be wrong.
                        ago = 0.0 if news else unix_seconds() - float(event["time"])
                        self._book.see(event, monotonic_seconds(), ago)
            except OperationError:
                self._book = NoticeBook()  # it is too far behind, and begins anew

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.rules.told:
                continue
            for notice in self._book.mine(self._around(), monotonic_seconds()):
                if notice.key not in self._sending and len(self._sending) < AT_ONCE:
                    self._begin(notice)

    def _begin(self, notice: PeopleNotice) -> None:
        self._sending.add(notice.key)
        sending = self._tasks.start(self._send(notice))
        sending.add_done_callback(lambda _: self._sending.discard(notice.key))

    async def _send(self, notice: PeopleNotice) -> None:
        """Whatever goes wrong is told once, and disturbs nothing."""
        about = {"notice": notice.key, "event": notice.event}
        self._happened(TELLING, f"this node tells: {notice.sentence}", about)
        try:
            await tell(self._hook(notice.event), self._message(notice), self._run)
        except HookError as error:
            self._happened(UNTOLD, f"[notify] {notice.event}: {error}", about)
        except Exception as error:
            log.exception("a notice can't be told", notice=notice.key)
            self._happened(UNTOLD, f"[notify] {notice.event}: {type(error).__name__}", about)
        else:
            self._happened(TOLD, f"told by [notify] {notice.event}: {notice.sentence}", about)

    def _hook(self, event: str) -> Any:
        return getattr(self.rules, event)

    def _message(self, notice: PeopleNotice) -> dict[str, Any]:
        return {
            "id": notice.key,
            "event": notice.event,
            "text": one_line(clipped(notice.sentence)),
            "cluster": self._cluster,
            "job": notice.job,
            "node": notice.node,
            "time": notice.time,
        }
