"""Who may ask: this machine's own browser, with the token of the link that was printed.

A page of another site can send requests to a server on loopback, and a name of its own can be made to lead there (DNS
rebinding). So every request must name this server in its Host, come from this server's pages, and carry the token; and
nothing that is asked for changes anything.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Pages that runs left behind have their scripts in them. They get an origin of their own, and nothing to talk to.
SANDBOX = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuse whatever does not come from the browser that opened the printed link.

    Args:
        app: what answers otherwise.
        token: of the link that is printed.
        port: by which its pages are told from others.
        ticket: the token of the link that the browser is started with. Everybody on the machine may see that in the
            list of processes, so it is good once: a second use of it ends what the first one was given.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, ticket: str | None = None) -> None:
        self._app, self._token, self._ticket = app, token, ticket
        self._hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost")]
        if port == 80:  # which browsers leave out
            self._hosts += ["127.0.0.1", "localhost"]
        self._cookie = f"nestegg-{port}"  # cookies know hosts, not ports
        self._of_ticket: str | None = None  # the cookie that the ticket was traded for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("the studio speaks HTTP alone.")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) or self._welcome(scope) or self._app
        await answer(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is wrong with a request, whoever sent it."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return _said(421, "This is the studio of nestegg on another address: open the link that it printed.")
        if headers.get("origin", f"http://{headers['host']}") != f"http://{headers['host']}":
            return _said(403, "The studio does not answer pages of other sites.")
        is_visit = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_visit:
            return _said(403, "The studio does not answer pages of other sites.")
        if scope["method"] not in ("GET", "HEAD"):
            return _said(405, "The studio only shows: it takes no changes.")
        return None

    def _welcome(self, scope: Scope) -> Response | None:
        """Trade the token of the link for a cookie; refuse a request that has neither."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if key := self._traded(dict(query).get("token", "")):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = f"/{scope['path'].lstrip('/')}"  # two slashes at its beginning would name another host
            response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            # "lax": a link to a page of the studio works wherever it is clicked on. That is a visit, which shows the
            # page to whoever sits here and tells the other site nothing; all other requests of its are refused above.
            response.set_cookie(self._cookie, key, httponly=True, samesite="lax")
            return response
        shown = cookie_parser(Headers(scope=scope).get("cookie", "")).get(self._cookie, "")
        if any(_same(shown, key) for key in (self._token, self._of_ticket) if key is not None):
            return None
        return _said(401, "Open the link that nestegg studio printed: it has the token that this address lacks.")

    def _traded(self, given: str) -> str | None:
        """What a browser gets as its cookie for the token of a link."""
        if _same(given, self._token):
            return self._token
        if self._ticket is None or not _same(given, self._ticket):
            return None
        self._of_ticket = secrets.token_urlsafe(24) if self._of_ticket is None else ""
        return self._of_ticket or None


def _same(given: str, secret: str) -> bool:
    """Whether a secret is known, in a time that does not tell how much of it is; an empty one is known to nobody."""
    return secret != "" and hmac.compare_digest(given.encode(), secret.encode())


def _said(status: int, sentence: str) -> PlainTextResponse:
    return PlainTextResponse(f"{sentence}\n", status)
