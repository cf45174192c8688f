"""Start the studio: a socket on loopback, a link with a token, and the browser."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from nestegg.checks import whole
from nestegg.errors import InputError

HOST = "127.0.0.1"


def serve(
    folder: Path,
    *,
    ledger: str | None = None,
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Show plans, runs and accounts until interrupted.

    Args:
        folder: below which runs are looked for; nothing outside it is read, but for the ledger.
        ledger: a URL or a file.
        port: on loopback; 0 is a free one.
        browser: whether to open one.
        say: is told the link.

    Raises:
        InputError: there is no such folder, or the port is in use.
    """
    if not folder.is_dir():
        raise InputError(f"FOLDER = {str(folder)!r} must be a folder that exists.")
    listener = _listening(whole("--port", port, 0, 65_535))
    port = listener.getsockname()[1]
    token, ticket = secrets.token_urlsafe(24), secrets.token_urlsafe(24) if browser else None
    link = f"http://{HOST}:{port}/?token="
    say(link + token)
    if ticket is not None:
        # The kernel keeps the browser's call until the server answers: whoever opens the page sees it a moment sooner.
        threading.Thread(target=webbrowser.open, args=(link + ticket,), daemon=True).start()
    from nestegg.studio.app import make_app

    app = make_app(folder, token=token, port=port, ledger=ledger, ticket=ticket)
    import uvicorn

    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="on", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    app.state.is_ending = lambda: server.should_exit
    server.run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(
            f"--port = {port} cannot be had: {error.strerror}. Give another one, or none for one that is free."
        ) from None
    return listener
