"""Who is let in: decided by a request's method, path and headers. Pure.

Browsers send a header ``Authorization`` only where a script of the page's own origin puts it in,
and never by themselves, as they do with cookies. (Nor would a cookie do: one of 127.0.0.1 is sent
to every port, also to that of another account's server.) So a page of another origin can read
nothing and change nothing. ``Host`` is looked at besides: a name that somebody has lead to this
address would make his page one of our origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.shell.control.webtoken import metrics_token

METRICS = "/metrics"
LOOPBACK_NAMES = frozenset({"localhost"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer, also to what is no request (connections.py)."""
_SCHEME = "bearer "
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Guard:
    """``names``: those by which this node is reached; any address may be one. ``public``: paths of
    what is in every copy of elasticd, and needs no token."""

    names: frozenset[str]
    scheme: str
    public: frozenset[str]

    def refusal(
        self, method: str, path: str, headers: Mapping[str, list[str]], token: str
    ) -> Refusal | None:
        """Why a request is not served. ``headers``: by lower-case names; ``token``: the home's."""
        if method not in ("GET", "HEAD", "POST"):
            return Refusal(405, "there is nothing for that method here")
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal(421, "this is another host")
        if any(origin != f"{self.scheme}://{hosts[0]}" for origin in origins):
            return Refusal(403, "a page of another origin may ask for nothing")
        if path in self.public and method != "POST":
            return None
        sites = headers.get("sec-fetch-site", [])
        if any(site not in ("same-origin", "none") for site in sites):
            return Refusal(403, "a page of another origin may ask for nothing")
        shown = _shown(headers.get("authorization", []))
        if path == METRICS and method != "POST" and token and _same(shown, metrics_token(token)):
            return None
        if not token or not _same(shown, token):
            return Refusal(401, "it needs the token that 'elasticctl dashboard' prints")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _name_of(host: str) -> str:
    """Without the port; empty: it is none."""
    found = _HOST.fullmatch(host.lower())
    return found[1] if found else ""


def _shown(headers: list[str]) -> str:
    """The token of a header ``Authorization: Bearer …``."""
    if len(headers) != 1 or not headers[0].lower().startswith(_SCHEME):
        return ""
    return headers[0][len(_SCHEME) :].strip()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
