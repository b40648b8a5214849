"""Tells a webhook something. Is run as a script of its own, so that a server that answers byte by
byte holds up nothing, and reads from its input where to send what: so its URL is in no list of
processes.

It prints no part of the URL. Exit status 75: it may work later.
"""

import http.client
import json
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 15.0
AGAIN = 75
"""EX_TEMPFAIL of sysexits.h."""
_MAY_PASS = (408, 425, 429)
MACS_OWN = "/etc/ssl/cert.pem"
"""Certificates that macOS itself comes with."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """The message goes to nobody but whom the URL names."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def context(bundle: str = MACS_OWN, here: str = sys.platform) -> ssl.SSLContext:
    """Who is trusted. python.org's Python for macOS trusts nobody until its "Install Certificates"
    was clicked, and then the system's certificates count."""
    found = ssl.create_default_context()
    if here == "darwin" and not found.cert_store_stats()["x509_ca"]:
        found.load_verify_locations(bundle)
    return found


def main() -> int:
    order = json.load(sys.stdin)
    data = json.dumps(order["body"]).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "elasticd"}
    request = urllib.request.Request(order["url"], data, headers)
    try:
        secure = urllib.request.HTTPSHandler(context=context())
        opener = urllib.request.build_opener(_Straight, secure)
        with opener.open(request, timeout=SECONDS) as answer:
            print(f"HTTP {answer.status}")
        return 0
    except urllib.error.HTTPError as error:
        print(f"HTTP {error.code}")
        return AGAIN if error.code >= 500 or error.code in _MAY_PASS else 1
    except urllib.error.URLError as error:
        why = error.reason
        print(f"no connection: {why.strerror if isinstance(why, OSError) else type(why).__name__}")
        return AGAIN
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"no answer: {type(error).__name__}")  # its text may name the URL
        return AGAIN if isinstance(error, OSError | http.client.HTTPException) else 1


if __name__ == "__main__":
    sys.exit(main())
