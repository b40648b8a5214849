"""What becomes of a plain job's script, by what its ranks tell one another of it. Pure.

Every rank decides by the same words, so all come to the same. A rank that fails by itself is waited
for by the others for a moment: what all ranks fail of, each by itself, is the script's own doing,
and ends the job. Who has only lost another rank has not failed by itself.

What fails alike again and again on one node alone may be that node's doing: the job goes on without
it. If another node then fails alike, as the next rank 0 of a script that can't save, it was the
script's. While a rank is of the release before, which tells failures by rank and leaves nobody out,
all decide as that one does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from elasticd.recovery.signatures import FATAL_SIGNALS, last_words

ScriptState = Literal["none", "running", "done", "failed"]
GRACE_ROUNDS = 20
"""So many rounds of news others have to end, too, when a rank has failed."""
SAME_FAILURES = 3
"""A script that fails alike so often in a row on a node won't do better there."""
SETTLE_SECONDS = 2.5
"""A world that has lost members waits for so long for others in their place, before the script
begins anew: it would begin twice."""
_SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class ScriptWord:
    """What a rank says of itself."""

    world: tuple[int, str, str]
    """The newest that it is in."""
    rank: int
    members: tuple[str, ...]
    port: int
    """On which its script may listen in this world; 0: it has none."""
    entered_seconds: float
    """Since it has entered that."""
    ring: tuple[int, str, str] | None = None
    """The world in which its script was begun last."""
    state: ScriptState = "none"
    failed_in: tuple[int, str, str] | None = None
    """The world in which it was seen that its script failed."""
    status: int | None = None
    """How that ended: exit code, or minus the signal; None: it hung."""
    follows: bool = False
    """It ended because another rank was lost, as its last lines say."""
    text: str = ""
    """Its last lines, or how it hung."""
    ran_seconds: float = 0.0
    by_node: bool = False
    """It can blame nodes, and leave them out; the release before, which doesn't say this, can't."""


@dataclass(frozen=True, slots=True)
class ScriptHistory:
    """What all ranks know of the script so far; part of the job's state."""

    begun: int = 0
    """So often it was begun."""
    ring: tuple[int, str, str] | None = None
    members: tuple[str, ...] = ()
    """Where that was done last."""
    failing: int = 0
    """Rounds since a rank of it was seen to fail."""
    counted: tuple[int, str, str] | None = None
    """The newest of which a failure was counted."""
    failures: int = 0
    """In a row."""
    same: int = 0
    """Of these the last ones that have ended alike."""
    last: str = ""
    """How the last one ended: a line for each node to blame (or rank: see ``by_node``), of several
    what they have in common with the one before."""
    left: tuple[str, ...] = ()
    """Such lines of nodes that the job goes on without, or is about to, for that. The release
    before doesn't know it: it is kept apart from the rest, and stays as it is while such a rank is
    there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the job.toml says of it."""

    restarts: int
    steady_seconds: float


@dataclass(frozen=True, slots=True)
class NotYet:
    """Not all is known yet."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """It runs, as all ranks of this world say."""

    world: tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin it in this world, on every rank, with these ports."""

    world: tuple[int, str, str]
    ports: tuple[int, ...]
    restarts: int


@dataclass(frozen=True, slots=True)
class Again:
    """This rank of that world leaves it, which ends it for all, with its reason."""

    world: tuple[int, str, str]
    rank: int
    why: str = ""
    """What else is to be said of the cause."""


@dataclass(frozen=True, slots=True)
class Finish:
    """It has ended everywhere as it should."""


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """The job goes on without the node of this rank of that world."""

    world: tuple[int, str, str]
    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed."""

    world: tuple[int, str, str]
    reason: str


Order = NotYet | GoOn | Begin | Again | Finish | LeaveOut | GiveUp


def decide(
    told: Iterable[ScriptWord], history: ScriptHistory, limits: Limits
) -> tuple[Order, ScriptHistory]:
    """What is to be done now, and what is to be kept of it.

    ``told``: the newest word of every rank that there ever was.
    """
    words = _of_newest_world(told)
    if all(word.by_node for word in words):
        return _decided(words, history, limits)
    by_rank = [replace(word, by_node=False) for word in words]
    order, found = _decided(by_rank, replace(history, left=()), limits)
    return order, replace(found, left=history.left)


def _decided(
    words: Sequence[ScriptWord], history: ScriptHistory, limits: Limits
) -> tuple[Order, ScriptHistory]:
    """By words that are all of one way."""
    if not words:
        return NotYet(), history
    if _has_ended(words, history):
        return Finish(), replace(history, failing=0)
    members = words[0].members
    failed_in = {word.failed_in for word in words if word.state == "failed"}
    if failed_in == {words[0].world} and _all_there(words, history):
        return _failing(words, history, limits)
    history = replace(history, failing=0)
    ends_well = all(word.state in ("running", "done") for word in words)
    if ends_well and _all_there(words, history):
        return GoOn(words[0].world), history
    history = _counted(words, history, limits)
    if verdict := _verdict(words, history, limits):
        return verdict
    shrunk = len(members) < len(history.members)
    if shrunk and words[0].entered_seconds < SETTLE_SECONDS:
        return NotYet(), history
    if len(words) > 1 and not all(word.port for word in words):
        return NotYet(), history
    world = words[0].world
    begin = Begin(world, tuple(word.port for word in words), history.begun)
    left = {line.partition(" ")[0] for line in history.left}
    if left & set(history.members) - set(members):
        history = replace(history, failures=0, same=0, last="")
    return begin, replace(history, begun=history.begun + 1, ring=world, members=members)


def _of_newest_world(told: Iterable[ScriptWord]) -> list[ScriptWord]:
    """By rank; nothing before all of its members have said that they are in it."""
    words = list(told)
    newest = max((word.world for word in words), default=None)
    found = {word.rank: word for word in words if word.world == newest}
    ranks = sorted(found)
    complete = found and ranks == list(range(len(found[ranks[0]].members)))
    return [found[rank] for rank in ranks] if complete else []


def _has_ended(words: Sequence[ScriptWord], history: ScriptHistory) -> bool:
    """Every rank of the script that was begun last has exited with 0; others may be there now."""
    own = [word for word in words if word.ring == history.ring]
    done = len(own) == len(history.members) and all(word.state == "done" for word in own)
    return done and (words[0].by_node or _all_there(words, history))


def _all_there(words: Sequence[ScriptWord], history: ScriptHistory) -> bool:
    """All tell of the script that was begun last."""
    return words[0].members == history.members and all(word.ring == history.ring for word in words)


def _failing(
    words: Sequence[ScriptWord], history: ScriptHistory, limits: Limits
) -> tuple[Order, ScriptHistory]:
    """A rank has failed in this world, and said so."""
    failed, world = [word for word in words if word.state == "failed"], words[0].world
    causes = [word for word in failed if not word.follows]
    ended = all(word.state in ("failed", "done") for word in words)
    if ended and len(causes) == len(words) and len({_kind(word) for word in causes}) == 1:
        return GiveUp(world, _said_of(causes[0], f"on every rank of {len(causes)}")), history
    history = replace(history, failing=history.failing + 1)
    if not ended and history.failing < GRACE_ROUNDS:
        return NotYet(), history
    counted = _counted(words, history, limits)
    if verdict := _verdict(words, counted, limits):
        return verdict
    return Again(world, (causes or failed)[0].rank, _left_early(_blamed(words, history))), history


def _blamed(words: Sequence[ScriptWord], history: ScriptHistory) -> list[ScriptWord]:
    """Whose doing the failure is: who failed by itself; else who had left before; else all that
    have lost another."""
    own = [word for word in words if word.ring == history.ring]
    failed = [word for word in own if word.state == "failed"]
    if causes := [word for word in failed if not word.follows]:
        return causes
    if not failed or not _all_there(words, history):
        return []
    return [word for word in own if word.state == "done"] or failed


def _left_early(blamed: Sequence[ScriptWord]) -> str:
    """Said of ranks that have lost nobody, but were lost."""
    ranks = [str(word.rank) for word in blamed if word.state == "done"]
    if not ranks:
        return ""
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks)}"
    return f"{who} had exited with status 0 before the others were done"


def _counted(words: Sequence[ScriptWord], history: ScriptHistory, limits: Limits) -> ScriptHistory:
    """With the failure that these tell of, unless it is known or is nobody's."""
    blamed = _blamed(words, history)
    if not blamed or history.counted == history.ring:
        return history
    failed = [word for word in words if word.state == "failed" and word.ring == history.ring]
    steady = max(word.ran_seconds for word in failed) >= limits.steady_seconds
    kinds = [_line(word) for word in blamed]
    known = history.last.split("\n")
    common = [] if steady else [kind for kind in kinds if kind in known]
    return replace(
        history,
        counted=history.ring,
        failures=1 if steady else history.failures + 1,
        same=history.same + 1 if common else 1,
        last="\n".join(common or kinds),
        left=() if steady else history.left,
    )


def _verdict(
    words: Sequence[ScriptWord], history: ScriptHistory, limits: Limits
) -> tuple[Order, ScriptHistory] | None:
    """What is done instead of beginning it again as it was, and what is kept of that; None: it is
    begun again.

    That a node is to be left out is kept first and done in the next round: whoever does it leaves
    the round in which it does.
    """
    blamed = _blamed(words, history)
    if not blamed:
        return None
    known = history.last.split("\n")
    culprit = next((word for word in blamed if _line(word) in known), blamed[0])
    early = _left_early(blamed)
    cause = next(word for word in words if word.state == "failed") if early else culprit
    by_itself, line = bool(early) or _by_itself(cause), _line(culprit)
    often = _hopeless(history, limits, by_itself=by_itself, tried=line in history.left)
    if not often:
        return None
    world = words[0].world
    alone = len(words) > 1 and len(known) == 1 and history.same >= SAME_FAILURES and cause.by_node
    before = _before(line, history)
    if before or early or not (alone or line in history.left):
        if before:
            often = f"{often}, as before on {', '.join(before)}"
        return GiveUp(world, _said_of(cause, often, early)), history
    if line not in history.left:
        return NotYet(), replace(history, left=(*history.left, line))
    return LeaveOut(world, cause.rank, _said_of(cause, often)), history


def _hopeless(history: ScriptHistory, limits: Limits, *, by_itself: bool, tried: bool) -> str:
    """How often it has failed, if that is too often; ``tried``: it was left out for that before."""
    if by_itself and history.same >= SAME_FAILURES:
        return f"{history.same} times in a row"
    if history.failures > limits.restarts:
        return f"{history.failures} times in a row, at last"
    return "once more" if by_itself and tried else ""


def _line(word: ScriptWord) -> str:
    who = word.members[word.rank] if word.by_node else word.rank
    return f"{who} {_kind(word)}"


def _before(line: str, history: ScriptHistory) -> list[str]:
    """Which other nodes were left out for the same."""
    node, _, kind = line.partition(" ")
    told = [known.partition(" ") for known in history.left]
    return [other for other, _, known in told if known == kind and other != node]


def _by_itself(word: ScriptWord) -> bool:
    """It ended through its own doing; what kills from outside isn't."""
    if word.status is None or word.follows:
        return False
    return word.status > 0 or -word.status in FATAL_SIGNALS


def _kind(word: ScriptWord) -> str:
    """What two failures alike have in common: how it ended, and the type of what was raised.
    Numbers in it (a pid, a step) may differ."""
    if word.status is None or word.status <= 0:
        return how(word.status)
    said = last_words(word.text) if word.by_node else word.text.strip().rpartition("\n")[2].strip()
    return f"{how(word.status)} {re.sub(r'[0-9]+', '#', said.partition(':')[0])}"


def how(status: int | None) -> str:
    """How a process ended, for people."""
    if status is None:
        return "hung"
    return f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"


def _said_of(word: ScriptWord, often: str, early: str = "") -> str:
    lines = "\n".join(word.text.strip().splitlines()[-_SHOWN_LINES:])
    node = word.members[word.rank]
    text = f"the script {how(word.status)} {often} (rank {word.rank}, {node})"
    text = f"{early}: {text}" if early else text
    return f"{text}:\n{lines}" if lines else text
