"""A daemon's log without what scripts have printed, for a bundle that is sent to others.

A daemon logs why jobs failed, and that may end in what a script printed. Only what is named here
is kept; of anything else it is said that it was left out.
"""

from __future__ import annotations

import re

LEFT_OUT = "[what the script printed is left out]"
"""In its place; no less is said where nobody can tell whether a script said it."""
_KEPT = frozenset({
    "timestamp", "level", "kind", "job", "node", "child", "status", "generation", "epoch",
    "members", "nodes", "step", "seconds", "where", "path", "home", "listen", "version",
    "address", "before", "source", "count", "newest_known", "unsaid", "shard", "used_bytes",
    "quota_bytes",
})  # fmt: skip
"""Fields that a daemon fills by itself."""
_OWN_WORDS = frozenset({
    "address could not be measured", "address is not dialled any more",
    "address is not dialled anew", "peer disconnected", "not listened on",
    "connection failed", "node is dead", "leaves the view", "gives up its view", "no web page yet",
    "daemon stops", "checkpoint damaged", "checkpoint not stored",
    "the store can't be read",
})  # fmt: skip
"""Lines of which ``reason`` and ``why`` are the daemon's and the system's."""
_OWN_KINDS = frozenset({
    "node_joined", "node_lost", "node_forgotten", "node_put_out", "certificate_renewed",
    "job_submitted", "link_avoided", "memory_pressure", "memory_relieved", "preflight_finished",
    "shares_foreseen", "shares_moved",
})  # fmt: skip
"""Events of which the reason is."""
_OWN_PHRASES = re.compile(
    r"(?:[a-z_]+ on [\w.-]+: )?"
    r"(?:(?:trainer|reducer) ended with (?:signal|exit status) \d+(?: while [a-z]+)?"
    r"|the script ended with exit status \d+"
    r"|[a-z]+ took [\d.]+ s and lost \d+ committed steps?"
    r"|[\w.-]+(?:, [\w.-]+)* holds? step \d+"
    r"|no job needs a reducer|the job is done|job (?:finished|cancelled))?"
)
"""How another event's reason may begin."""
_FIELD = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |$)')
_FRAME = re.compile(r'\s*(?:Traceback|File "[^"]*", line \d+, in [\w.<>]+$)')


def without_printed(log: str) -> str:
    """Line by line. What is no record is of the daemon's own interpreter, and stays."""
    return "".join(_line(line) for line in log.splitlines(keepends=True))


def _line(line: str) -> str:
    if not line.startswith("timestamp="):
        return line
    text = line.rstrip("\n")
    fields: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None:
            fields.append(("rest", ""))
            break
        fields.append((found[1], found[2]))
        at = found.end()
    said = {key: value.strip('"') for key, value in fields}
    return " ".join(f"{key}={_value(key, value, said)}" for key, value in fields) + "\n"


def _value(key: str, value: str, said: dict[str, str]) -> str:
    own = said.get("event") in _OWN_WORDS or said.get("kind") in _OWN_KINDS
    if key in _KEPT or (own and key in ("reason", "why")):
        return value
    plain = value.removeprefix('"').removesuffix('"')
    if key == "event":
        kept = plain.partition(": ")[0]
    elif key == "exception":
        kept = "\\n".join(each for each in plain.replace('\\"', "'").split("\\n") if _frame(each))
    else:
        begins = _OWN_PHRASES.match(plain)
        kept = begins[0] if begins is not None else ""
    if kept == plain:
        return value
    return f'"{kept.rstrip(": ")} {LEFT_OUT}"' if kept else f'"{LEFT_OUT}"'


def _frame(line: str) -> bool:
    return _FRAME.match(line.replace("'", '"')) is not None
