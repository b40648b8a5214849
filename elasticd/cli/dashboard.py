"""``elasticctl dashboard``: where the web page of a node is, with the token that lets one in."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Annotated

import typer

from elasticd.cli import screen
from elasticd.cli.options import Home, Json, common
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import OperationError
from elasticd.shell.control.webtoken import TOKEN_FILE, place_of, renew_token, token_of
from elasticd.shell.storage import papers


def dashboard(
    context: typer.Context,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make another token; the old one opens nothing.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print the address of the web page that every daemon serves (port 8050 by default).

    The page shows the cluster and its jobs, live. Who has the address with its token can also
    pause, resume and cancel jobs, and drain and undrain nodes: keep it to yourself. The token is
    in the file dashboard.token of the home. Prometheus finds /metrics at the same address,
    and needs no more than the token in metrics.token, which opens that alone.

    \b
    Examples:
      elasticctl dashboard
      elasticctl dashboard --home /tmp/cluster/node-1
      elasticctl dashboard --new-token
    """
    options = common(context, home, json)
    with options.client.open(ShowStatus(ended=0)) as connection:
        connection.answer()
        node = connection.path.parent
    place = place_of(node)
    if place.why:
        raise OperationError(f"there is no web page at {node}: {place.why}")
    if new_token:
        renew_token(node)
    token = token_of(node)
    if not token:
        raise OperationError(
            f"{node / TOKEN_FILE} holds no token, or others can read it; make another: --new-token"
        )
    url = f"http{'s' if place.tls else ''}://{place.host}:{place.port}/#token={token}"
    fingerprint = _fingerprint(node) if place.tls else None
    if options.json:
        screen.print_json({"url": url, "fingerprint": fingerprint})
        return
    screen.say(url)
    if fingerprint:
        screen.say(f"its certificate's SHA-256: {fingerprint}")


def _fingerprint(home: Path) -> str:
    """As browsers show it, for who wants to compare."""
    certificate, _ = papers.shown(home)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    return hashlib.sha256(der).digest().hex(":").upper()
