"""What both applications share: errors, checks of every request, the page at ``/``, and the description of keys."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from ... import __version__
from .bearer_keys import BearerKeys
from .errors import handle_http_error, handle_invalid_form
from .limits import Limits
from .middleware import RequestMiddleware
from .page import load_page
from .schemas import Error

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
}


def create_base_app(
    title: str, page_name: str, *, limits: Limits, keys: BearerKeys, fingerprint: str, close: Callable[[], None]
) -> FastAPI:
    """Return an application with the page at ``/`` and no other route.

    Args:
        title: The title of the OpenAPI description.
        page_name: The file of the page in this package.
        limits: Limits per request and per client.
        keys: Accepted keys; without keys, requests must address this machine by a loopback name.
        fingerprint: The fingerprint of the model.
        close: Called when the server stops.

    >>> app = create_base_app("test", "page.html", limits=Limits(), keys=BearerKeys(), fingerprint="", close=lambda: None)
    >>> app.title
    'test'
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        close()

    app = FastAPI(
        title=title,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(RequestValidationError, handle_invalid_form)
    app.add_middleware(RequestMiddleware, limits=limits, keys=keys, fingerprint=fingerprint)
    content, headers = load_page(page_name)

    @app.get("/", include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(content, headers=headers)

    _describe_keys(app, bool(keys))
    return app


def _describe_keys(app: FastAPI, needed: bool) -> None:
    """Add the security scheme to the OpenAPI description: a bearer key for every route but ``/v1/health``."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        scheme = {
            "type": "http",
            "scheme": "bearer",
            "description": "one of the keys that the service was started with",
        }
        document.setdefault("components", {})["securitySchemes"] = {"key": scheme}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                # Without keys, requests from this machine need none.
                optional: list[dict[str, Any]] = [] if needed else [{}]
                operation["security"] = [] if path == "/v1/health" else [{"key": []}, *optional]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
