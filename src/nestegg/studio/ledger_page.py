"""The pages of the ledger: all accounts, one client, one run; read-only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nestegg.errors import InputError
from nestegg.studio.draft import read_draft
from nestegg.studio.place import Place
from nestegg.studio.replies import GoesOn, answered, shown

if TYPE_CHECKING:
    from nestegg.ledger import Ledger
    from nestegg.studio.accounts import Left

Handler = Callable[[Request], Any]
Look = Callable[["Ledger", QueryParams, GoesOn], dict[str, Any]]


def routes(place: Place) -> list[Route]:
    """Return the pages, and what they ask for."""
    return [
        Route("/ledger", _page(place)),
        Route("/ledger/client", _looking(place, _client, "client.html")),
        Route("/ledger/run", _looking(place, _run, "ledger_run.html")),
        Route("/ledger/accounts", _looking(place, _accounts)),
        Route("/ledger/pld", _looking(place, _pld)),
        Route("/ledger/verify", _looking(place, _verify)),
        Route("/ledger/left", _left(place)),
    ]


def _page(place: Place) -> Handler:
    async def answer(request: Request) -> Response:
        def work(goes_on: GoesOn) -> dict[str, Any]:
            if place.ledger is None:
                return {"place": None, "runs": []}
            from nestegg.studio.accounts import opened

            with opened(place.ledger) as ledger:
                return {"place": ledger.place, "runs": ledger.runs()}

        return await shown(request, "ledger.html", work, here="ledger")

    return answer


def _looking(place: Place, look: Look, template: str | None = None) -> Handler:
    """Return what answers a request with a look at the ledger: as a page, or as JSON."""

    async def answer(request: Request) -> Response:
        query = request.query_params

        def work(goes_on: GoesOn) -> Any:
            from nestegg.studio.accounts import opened  # databases are slow to import

            with opened(place.ledger) as ledger:
                return look(ledger, query, goes_on)

        if template is None:
            return await answered(request, work)
        return await shown(request, template, work, here="ledger")

    return answer


def _accounts(ledger: Ledger, query: QueryParams, goes_on: GoesOn) -> dict[str, Any]:
    from nestegg.studio.accounts import listed

    return listed(ledger, query.get("prefix", "").strip(), query.get("after", ""), query.get("run") or None)


def _client(ledger: Ledger, query: QueryParams, goes_on: GoesOn) -> dict[str, Any]:
    from nestegg.studio.accounts import client_content

    return client_content(ledger, query.get("client", ""))


def _run(ledger: Ledger, query: QueryParams, goes_on: GoesOn) -> dict[str, Any]:
    from nestegg.studio.accounts import run_content

    return run_content(ledger, query.get("run", ""), goes_on)


def _pld(ledger: Ledger, query: QueryParams, goes_on: GoesOn) -> dict[str, Any]:
    from nestegg.studio.accounts import by_pld

    if "client" not in query:
        raise InputError("client is missing: whose account?")
    return by_pld(ledger, query["client"])


def _verify(ledger: Ledger, query: QueryParams, goes_on: GoesOn) -> dict[str, Any]:
    from nestegg.studio.accounts import verified

    return verified(ledger)


def _left(place: Place) -> Handler:
    @cache
    def left() -> Left:
        from nestegg.studio.accounts import Left

        return Left(place.ledger)

    async def answer(request: Request) -> Response:
        items = request.query_params.multi_items()

        def work(goes_on: GoesOn) -> Any:
            return {"sentences": left().sentences(read_draft(items), goes_on)}

        return await answered(request, work)

    return answer
