"""The page on which plans are drafted: everything follows the sliders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from nestegg.errors import InputError
from nestegg.studio.draft import METHODS, Draft, read_draft
from nestegg.studio.place import Place
from nestegg.studio.replies import GoesOn, answered, page

_CHARTS = {"spending", "noise", "sampling", "effect", "methods"}
_DRAWN = {"svg": "image/svg+xml", "png": "image/png"}


def routes(place: Place) -> list[Route]:
    """Return the page, and what it asks for while a slider moves, on request, and for export."""
    asked: dict[str, Callable[[Draft, GoesOn], Any]] = {
        "/plan/answer": _answer,
        "/plan/rivals": _rivals,
        "/plan/verdict": _verdict,
        "/plan/export/plan.toml": _toml,
        "/plan/export/plan.json": _json,
        "/plan/export/plan.py": _python,
    }
    return [
        Route("/", _page),
        *(Route(path, _asking(work)) for path, work in asked.items()),
        Route("/plan/target", _target),
        Route("/plan/chart/{name}.{kind}", _chart),
    ]


async def _page(request: Request) -> Response:
    return page("plan.html", here="plan", methods=METHODS, first=Draft().to_query())


def _asking(work: Callable[[Draft, GoesOn], Any]) -> Callable[[Request], Any]:
    """Return what answers a request whose query is a draft."""

    async def answer(request: Request) -> Response:
        items = request.query_params.multi_items()
        return await answered(request, lambda goes_on: work(read_draft(items), goes_on))

    return answer


# Planning and charts are slow to import: the first page is there before them.
def _answer(draft: Draft, goes_on: GoesOn) -> Any:
    from nestegg.studio.answers import answer

    return answer(draft)


def _rivals(draft: Draft, goes_on: GoesOn) -> Any:
    from nestegg.studio.answers import rivals

    return rivals(draft, goes_on)


def _verdict(draft: Draft, goes_on: GoesOn) -> Any:
    from nestegg.studio.answers import verdict

    return verdict(draft, goes_on)


def _toml(draft: Draft, goes_on: GoesOn) -> Response:
    from nestegg.studio.exports import as_toml

    return _file("plan.toml", as_toml(draft, goes_on), "application/toml")


def _json(draft: Draft, goes_on: GoesOn) -> Response:
    from nestegg.studio.exports import as_plan

    return _file("plan.json", as_plan(draft, goes_on), "application/json")


def _python(draft: Draft, goes_on: GoesOn) -> Response:
    from nestegg.studio.exports import as_python

    return PlainTextResponse(as_python(draft))


async def _target(request: Request) -> Response:
    """The other way round: from a target to ε."""
    query = request.query_params
    items = [(key, value) for key, value in query.multi_items() if key not in ("target", "wanted", "of")]

    def work(goes_on: GoesOn) -> Any:
        from nestegg.studio.targets import reached

        return reached(read_draft(items), query.get("target", ""), query.get("wanted", ""), query.get("of"), goes_on)

    return await answered(request, work)


async def _chart(request: Request) -> Response:
    name, kind = request.path_params["name"], request.path_params["kind"]
    items = request.query_params.multi_items()

    def work(goes_on: GoesOn) -> Response:
        if name not in _CHARTS or kind not in _DRAWN:
            raise InputError(f"there is no chart {name}.{kind}.")
        from nestegg.studio.exports import as_picture

        return _file(f"{name}.{kind}", as_picture(read_draft(items), name, kind), _DRAWN[kind])

    return await answered(request, work)


def _file(name: str, content: str | bytes, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
