"""Tokens with which a node joins: what is printed, and what is kept of those that are open. Pure.

A token pins the cluster's authority, so who joins knows whom it talks to before it says anything;
its secret proves that it was invited. Of the secret only a digest is kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, replace

from elasticd.errors import OperationError, UsageError
from elasticd.settings.config import split_address

PREFIX = "elasticd1-"
PIN_BYTES = 32
SECRET_BYTES = 16
MOST_ADDRESSES = 4
MOST_OPEN = 64
"""Tokens that are kept at once; the oldest makes room."""


@dataclass(frozen=True, slots=True)
class Token:
    """An invitation."""

    pin: str
    """The cluster's id: the digest of its authority's certificate, 64 hex."""
    secret: bytes
    addresses: tuple[str, ...]
    """Where it is taken ("host:port"), best first."""

    def text(self) -> str:
        """One word to be copied."""
        where = ",".join(self.addresses[:MOST_ADDRESSES]).encode()
        body = bytes.fromhex(self.pin) + self.secret + where
        check = hashlib.sha256(body).digest()[:4]
        return PREFIX + base64.urlsafe_b64encode(check + body).decode().rstrip("=")


def read(text: str) -> Token:
    """The token that was copied.

    Raises:
        UsageError: it is none, or a part of one.
    """
    wrong = UsageError("that is no whole join token: copy what 'elasticctl cluster token' prints")
    text = "".join(text.split())
    if not text.startswith(PREFIX):
        raise wrong
    coded = text[len(PREFIX) :]
    try:
        data = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
    except (binascii.Error, ValueError):
        raise wrong from None
    check, body = data[:4], data[4:]
    if hashlib.sha256(body).digest()[:4] != check or len(body) <= PIN_BYTES + SECRET_BYTES:
        raise wrong
    pin, rest = body[:PIN_BYTES], body[PIN_BYTES:]
    try:
        addresses = tuple(rest[SECRET_BYTES:].decode("ascii").split(","))
        for address in addresses:
            split_address(address)
    except ValueError:
        raise wrong from None
    token = Token(pin.hex(), rest[:SECRET_BYTES], addresses)
    if token.text() != text:  # base64 has several texts for the same bytes
        raise wrong
    return token


@dataclass(frozen=True, slots=True)
class OpenToken:
    """What the issuer keeps of a token."""

    digest: str
    """Of its secret."""
    until_unix: float
    uses: int
    """So many nodes may join with it."""
    keys: tuple[str, ...] = ()
    """Digests of the keys that have."""


def opened(secret: bytes, until_unix: float, uses: int) -> OpenToken:
    return OpenToken(_digest(secret), until_unix, uses)


def with_new(tokens: tuple[OpenToken, ...], new: OpenToken, now: float) -> tuple[OpenToken, ...]:
    """The tokens to be kept once there is another one."""
    living = [each for each in tokens if each.until_unix > now]
    return (*living[-(MOST_OPEN - 1) :], new)


def used(
    tokens: tuple[OpenToken, ...], secret: bytes, key: str, now: float
) -> tuple[OpenToken, ...]:
    """The tokens after a node with this ``key`` has joined with one.

    The same key may use it again: its node has not heard the answer.

    Raises:
        OperationError: there is no such token, or it has ended, or others have used it.
    """
    at = _found(tokens, secret, now)
    token = tokens[at]
    if key in token.keys:
        return tokens
    if len(token.keys) >= token.uses:
        raise OperationError("the join token has been used: make another one")
    return (*tokens[:at], replace(token, keys=(*token.keys, key)), *tokens[at + 1 :])


def check(tokens: tuple[OpenToken, ...], secret: bytes, now: float) -> None:
    """Raises OperationError: who asks has no token that is open."""
    _found(tokens, secret, now)


def _found(tokens: tuple[OpenToken, ...], secret: bytes, now: float) -> int:
    digest = _digest(secret)
    for at, token in enumerate(tokens):
        if hmac.compare_digest(token.digest, digest) and token.until_unix > now:
            return at
    raise OperationError("the join token has expired or was not made here: make another one")


def _digest(secret: bytes) -> str:
    return hashlib.sha256(b"token " + secret).hexdigest()
