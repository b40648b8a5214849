"""All that can be asked, and its small answers."""

from __future__ import annotations

from elasticd.core.words.codec import Words
from elasticd.core.words.requests.chaos import CutLinks, LinksCut, RankStruck, StrikeRank
from elasticd.core.words.requests.checkpoints import (
    ListCheckpoints,
    OpenCheckpoint,
    PruneCheckpoints,
    VerifyCheckpoints,
)
from elasticd.core.words.requests.ends import Failed, StreamEnded
from elasticd.core.words.requests.jobs import (
    ChangeOfJob,
    JobChanged,
    JobNamed,
    JobRetried,
    NameJob,
    RetryJob,
    SubmitJob,
    Submitted,
)
from elasticd.core.words.requests.logs import LogBytes, LogCut, LogText, LogUnread, ReadLogs
from elasticd.core.words.requests.looking import (
    OpenOutputs,
    ReadEvents,
    ReadLosses,
    ShowDisk,
    ShowStatus,
    TryNotices,
)
from elasticd.core.words.requests.nodes import (
    ChangeOfNode,
    NodeChanged,
    Restart,
    RotateCertificates,
    RotationTold,
    ShutDown,
)
from elasticd.core.words.requests.preflight import PreflightTold, RunPreflight
from elasticd.core.words.requests.wire import KEY

Request = (
    ShowStatus
    | ShowDisk
    | TryNotices
    | RunPreflight
    | ReadLosses
    | ReadLogs
    | ReadEvents
    | OpenOutputs
    | NameJob
    | SubmitJob
    | ChangeOfJob
    | RetryJob
    | ChangeOfNode
    | RotateCertificates
    | ShutDown
    | Restart
    | ListCheckpoints
    | VerifyCheckpoints
    | OpenCheckpoint
    | PruneCheckpoints
    | StrikeRank
    | CutLinks
)

Outcome = Submitted | JobChanged | JobRetried | NodeChanged | Failed
"""What the control plane says to a request that changes something."""

Answer = (
    Outcome
    | JobNamed
    | StreamEnded
    | LogText
    | LogBytes
    | LogCut
    | LogUnread
    | RankStruck
    | LinksCut
    | RotationTold
    | PreflightTold
)

REQUESTS: Words[Request] = Words(Request, key=KEY, terse=True)
