"""The pages of runs: a table that follows what happens, several runs in one chart, and each run by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nestegg.studio.guard import SANDBOX
from nestegg.studio.place import Place
from nestegg.studio.replies import GoesOn, answered, page

if TYPE_CHECKING:
    from nestegg.studio.watching import Watch

LOOK_EVERY = 0.5  # seconds, while somebody listens
_SIGN_OF_LIFE = 30  # looks without news


def routes(place: Place) -> list[Route]:
    """Return the pages, the events that they listen to, and the files of runs that may be opened."""

    @cache
    def watch() -> Watch:
        from nestegg.studio.watching import Watch  # slow to import: the page is there before it

        return Watch(place)

    return [
        Route("/runs", _page),
        Route("/runs/events", _events(watch)),
        Route("/runs/compare", _compare(watch)),
        Route("/runs/show", _show),
        Route("/runs/answer", _answer(place, watch)),
        Route("/runs/file", _file(place)),
    ]


async def _page(request: Request) -> Response:
    return page("runs.html", here="runs")


async def _show(request: Request) -> Response:
    return page("run.html", here="runs", run=request.query_params.get("run", ""))


Handler = Callable[[Request], Any]


def _events(watch: Callable[[], Watch]) -> Handler:
    """Tell of runs as long as somebody listens: of all, or of the one that is asked for."""

    async def answer(request: Request) -> Response:
        return StreamingResponse(_told(request, watch), media_type="text/event-stream")

    return answer


async def _told(request: Request, watch: Callable[[], Watch]) -> AsyncIterator[str]:
    only = request.query_params.get("run")
    last, silent = "", 0

    def look() -> str:
        table = watch().table()
        if only is not None:
            table = {**table, "runs": [row for row in table["runs"] if row["path"] == only]}
        return json.dumps(table)

    while not request.app.state.is_ending():
        text = await run_sync(look)
        silent = 0 if text != last else silent + 1
        if text != last:
            yield f"data: {text}\n\n"
        elif silent % _SIGN_OF_LIFE == 0:  # or nobody would notice that the other side is gone
            yield ": nothing new\n\n"
        last = text
        await anyio.sleep(LOOK_EVERY)


def _compare(watch: Callable[[], Watch]) -> Handler:
    async def answer(request: Request) -> Response:
        paths = request.query_params.getlist("run")

        def work(goes_on: GoesOn) -> Any:
            from nestegg.studio.comparing import compared

            return compared([watch().run(path) for path in dict.fromkeys(paths)])

        return await answered(request, work)

    return answer


def _answer(place: Place, watch: Callable[[], Watch]) -> Handler:
    async def answer(request: Request) -> Response:
        path = request.query_params.get("run", "")

        def work(goes_on: GoesOn) -> Any:
            from nestegg.studio.run_answers import run_answer

            return run_answer(place, watch().run(path))

        return await answered(request, work)

    return answer


def _file(place: Place) -> Handler:
    async def answer(request: Request) -> Response:
        path, name = (request.query_params.get(key, "") for key in ("run", "name"))

        def work(goes_on: GoesOn) -> Response:
            from nestegg.studio.run_answers import FILES, file_in

            content = file_in(place, path, name)
            return Response(content, media_type=FILES[name], headers={"Content-Security-Policy": SANDBOX})

        return await answered(request, work)

    return answer
