"""The studio as one application: a guard, files for pages, and the pages. A further page is a module with `routes`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nestegg.studio import ledger_page, plan_page, runs_page, statement_page
from nestegg.studio.guard import Guard
from nestegg.studio.place import Place

_KEPT = {"Cache-Control": "private, max-age=600"}  # the same for everybody, and asked for again and again
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def make_app(folder: Path, *, token: str, port: int, ledger: str | None = None, ticket: str | None = None) -> Starlette:
    """Return the application.

    Args:
        folder: below which everything is that it shows.
        token: that whoever asks must have.
        port: on loopback, by which its own pages are told from others.
        ledger: a URL or a file; without one there are no accounts to show.
        ticket: another token, which is good once.
    """
    place = Place(folder, ledger)
    modules = (plan_page, runs_page, ledger_page, statement_page)
    pages = [route for module in modules for route in module.routes(place)]
    files = [Route("/static/vega.js", _vega), Route("/static/{name}", _static)]
    guard = Middleware(Guard, token=token, port=port, ticket=ticket)
    app = Starlette(routes=[*pages, *files], middleware=[guard])
    app.state.is_ending = lambda: False  # a server says otherwise: then answers without an end have one
    return app


async def _vega(request: Request) -> Response:
    """Vega, which is bundled once on a machine: that takes some seconds."""

    def bundle() -> str:
        from nestegg.report.scripts import chart_scripts  # slow to import: the first page is there before it

        return chart_scripts()

    return PlainTextResponse(await run_sync(bundle), media_type="text/javascript", headers=_KEPT)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    room = "nestegg.report" if name == "look.css" else "nestegg.studio.static"
    known = {file.name: file for file in resources.files(room).iterdir() if file.is_file()}
    suffix = Path(name).suffix
    if name not in known or suffix not in _KINDS:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(known[name].read_bytes(), media_type=_KINDS[suffix], headers=_KEPT)
