"""How requests are answered: work in a thread that ends when nobody waits any more, and mistakes as sentences."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.to_thread import run_sync
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

import nestegg
from nestegg.errors import InputError, VerificationError

GoesOn = Callable[[], None]  # raises where work has been overtaken
_LOOK_EVERY = 0.05  # seconds
_PAGES = Environment(loader=PackageLoader("nestegg.studio"), autoescape=True, undefined=StrictUndefined)
_PAGES.filters["eps"] = lambda value: f"{value:.3f}" if math.isfinite(value) else "–"


class OvertakenError(Exception):
    """Nobody waits for an answer any more."""


def page(template: str, **values: Any) -> HTMLResponse:
    """Return a page of the studio."""
    return HTMLResponse(_PAGES.get_template(template).render(version=nestegg.__version__, **values))


async def answered(request: Request, work: Callable[[GoesOn], Any]) -> Response:
    """Do work in a thread and return what it gives: a response, or values as JSON.

    Args:
        request: whose sender may go away; then the work ends at its next step.
        work: is given a function to call between its steps.
    """
    gone = threading.Event()

    def goes_on() -> None:
        if gone.is_set():
            raise OvertakenError

    async def watch() -> None:
        while not await request.is_disconnected():
            await anyio.sleep(_LOOK_EVERY)
        gone.set()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        response = await run_sync(_said, work, goes_on)
        group.cancel_scope.cancel()
    return response


async def shown(request: Request, template: str, work: Callable[[GoesOn], dict[str, Any]], **values: Any) -> Response:
    """Return a page that needs work; where that finds a mistake, a page that says so."""

    def made(goes_on: GoesOn) -> Response:
        try:
            return page(template, **values, **work(goes_on))
        except (InputError, VerificationError) as error:
            response = page("sorry.html", sentence=str(error), **values)
            response.status_code = 422
            return response

    return await answered(request, made)


def _said(work: Callable[[GoesOn], Any], goes_on: GoesOn) -> Response:
    try:
        found = work(goes_on)
        return found if isinstance(found, Response) else JSONResponse(found)
    except OvertakenError:
        return Response(status_code=499)
    except InputError as error:
        return JSONResponse({"wrong": getattr(error, "sentences", {"": str(error)})}, 422)
    except VerificationError as error:
        return JSONResponse({"wrong": {"": str(error)}}, 422)
    except Exception as error:  # a mistake of ours must not end the studio, and its words may hold what is secret
        sentence = (
            f"The studio could not answer: {type(error).__name__}. That is a mistake in nestegg; please report it."
        )
        return JSONResponse({"wrong": {"": sentence}}, 500)
