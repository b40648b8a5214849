"""Whom the web page lets in."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.dashboard.guard import HEADERS, LOOPBACK_NAMES, Guard
from elasticd.shell.control.webtoken import metrics_token

TOKEN = "t" * 43
GUARD = Guard(LOOPBACK_NAMES, "http", frozenset({"/", "/page.js"}))
OWN = {"host": ["127.0.0.1:8050"], "authorization": [f"Bearer {TOKEN}"]}


def status(
    headers: dict[str, list[str]], path: str = "/api/live", method: str = "GET", token: str = TOKEN
) -> int:
    refusal = GUARD.refusal(method, path, headers, token)
    return 200 if refusal is None else refusal.status


def test_who_has_the_token() -> None:
    assert status(OWN) == 200
    assert status(OWN, "/api/change", "POST") == 200
    assert status(OWN | {"authorization": [f"bearer  {TOKEN}"]}) == 200


def without(**changed: Any) -> dict[str, list[str]]:
    return {k: v for k, v in (OWN | changed).items() if v is not None}


@pytest.mark.parametrize(
    "shown",
    [None, [], [""], ["Bearer "], ["Bearer x"], [f"Basic {TOKEN}"], [TOKEN],
     [f"Bearer {TOKEN}"] * 2, [f"Bearer {TOKEN}x"], ["Bearer \xff"]],
)  # fmt: skip
def test_who_has_not(shown: Any) -> None:
    for path, method in (("/api/live", "GET"), ("/metrics", "GET"), ("/api/change", "POST")):
        assert status(without(authorization=shown), path, method) == 401


def test_the_token_of_the_metrics_opens_them_alone() -> None:
    shown = OWN | {"authorization": [f"Bearer {metrics_token(TOKEN)}"]}
    assert status(shown, "/metrics") == status(shown, "/metrics", "HEAD") == 200
    for path, method in (("/api/live", "GET"), ("/metrics", "POST"), ("/api/change", "POST")):
        assert status(shown, path, method) == 401
    empty = OWN | {"authorization": [f"Bearer {metrics_token('')}"]}
    assert status(empty, "/metrics", token="") == 401


def test_a_home_without_a_token_opens_to_nobody() -> None:
    for shown in ("Bearer ", "Bearer"):
        assert status(OWN | {"authorization": [shown]}, token="") == 401
    assert status(OWN, token="") == 401


@pytest.mark.parametrize("path", ["/", "/page.js"])
def test_what_is_in_every_copy_needs_no_token(path: str) -> None:
    assert status(without(authorization=None), path) == 200
    assert status(without(authorization=None), path, "POST") == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "127.0.0.1@evil.example", "[::1].evil.example", "xn--localhost"],
)  # fmt: skip
def test_a_name_that_was_lead_here_is_refused(host: str) -> None:
    """DNS rebinding: to the browser such a page is of our origin."""
    for path in ("/", "/api/live", "/metrics"):
        assert status(OWN | {"host": [host]}, path) == 421


@pytest.mark.parametrize("host", ["localhost:8050", "LOCALHOST", "127.0.0.1", "10.0.0.1:9000",
                                  "[::1]:8050", "192.168.0.7"])  # fmt: skip
def test_an_address_leads_nowhere_else(host: str) -> None:
    assert status(OWN | {"host": [host]}) == 200


def test_one_host() -> None:
    assert status(without(host=None)) == 421
    assert status(OWN | {"host": ["localhost", "evil.example"]}) == 421


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:8050", "http://127.0.0.1:9000",
     "http://localhost:8050", ""],
)  # fmt: skip
def test_another_origin(origin: str) -> None:
    for path, method in (("/api/live", "GET"), ("/api/change", "POST"), ("/", "GET")):
        assert status(OWN | {"origin": [origin]}, path, method) == 403
    assert status(OWN | {"origin": ["http://127.0.0.1:8050"]}, "/api/change", "POST") == 200


def test_another_site() -> None:
    for site in ("cross-site", "same-site"):
        assert status(OWN | {"sec-fetch-site": [site]}) == 403
        assert status(OWN | {"sec-fetch-site": [site]}, "/") == 200, "a link may lead to the page"
    assert status(OWN | {"sec-fetch-site": ["same-origin"]}) == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"])
def test_other_methods(method: str) -> None:
    assert status(OWN, method=method) == 405


def test_a_name_of_ones_own() -> None:
    guard = Guard(frozenset({"mac-1.local"}), "https", frozenset())
    own = {"host": ["mac-1.local:8050"], "authorization": [f"Bearer {TOKEN}"]}
    assert guard.refusal("GET", "/metrics", own, TOKEN) is None
    with_origin = own | {"origin": ["https://mac-1.local:8050"]}
    assert guard.refusal("GET", "/metrics", with_origin, TOKEN) is None
    assert guard.refusal("GET", "/metrics", own | {"host": ["mac-2.local"]}, TOKEN) is not None


def test_nothing_foreign_is_loaded_or_run() -> None:
    policy = dict(part.strip().split(" ", 1) for part in
                  HEADERS["content-security-policy"].split(";"))  # fmt: skip
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert "unsafe" not in HEADERS["content-security-policy"]
