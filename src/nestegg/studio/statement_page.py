"""A run's privacy statement, as a page and as a PDF: what `nestegg statement` writes, without writing it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nestegg.errors import InputError
from nestegg.studio.guard import SANDBOX
from nestegg.studio.place import Place
from nestegg.studio.replies import GoesOn, answered

# Nothing runs on a statement, and it is no page of the studio's: it may be saved, printed and signed as it is.
_HEADERS = {"Content-Security-Policy": SANDBOX.replace("allow-scripts ", "")}


def routes(place: Place) -> list[Route]:
    """Return a run's statement as HTML and as PDF; the query names the run."""
    return [
        Route("/statement", _stating(place, _html)),
        Route("/statement.pdf", _stating(place, _pdf)),
    ]


def _stating(place: Place, drawn: Callable[[Any], Response]) -> Callable[[Request], Any]:
    async def state(request: Request) -> Response:
        run = request.query_params.get("run", "")

        def work(goes_on: GoesOn) -> Response:
            from nestegg.runs.statement import FILES, make_statement  # torch is slow to import

            folder = place.inside(run)
            for name in FILES:
                place.file(f"{run}/{name}", largest=math.inf)
            return drawn(make_statement(folder, ledger=_ledger(place, folder)))

        return await answered(request, work)

    return state


def _ledger(place: Place, folder: Path) -> str | Path | None:
    """The ledger of a run: the one in its folder, or the one that the studio was started with.

    A configuration may name any server, and whoever looks at a run has not asked for a call there, with a password.
    """
    from nestegg.configuration.config import own_ledger
    from nestegg.configuration.description import read_description

    named = read_description(folder).ledger
    if named is None:
        if not own_ledger(folder).resolve().is_relative_to(folder):
            raise InputError(f"{own_ledger(folder)} leads out of the run's folder.")
        return None
    if place.ledger is None:
        raise InputError(
            f"this run is paid by the ledger {named!r}, which the studio opens only if it is told to: "
            "start it with --ledger, or use nestegg statement."
        )
    return place.ledger if "://" in place.ledger else Path(place.ledger)


def _html(statement: Any) -> Response:
    from nestegg.report.statement_page import statement_page

    return Response(statement_page(statement), media_type="text/html", headers=_HEADERS)


def _pdf(statement: Any) -> Response:
    from nestegg.report.statement_pdf import statement_pdf

    return Response(statement_pdf(statement), media_type="application/pdf")
