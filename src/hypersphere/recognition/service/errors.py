"""The one shape of an error: ``{"error": {"code", "message", "request_id"}}`` with the right status, never a traceback."""

from collections.abc import Mapping

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


class RequestError(HTTPException):
    """Why a request is not answered.

    Args:
        status: The status of HTTP.
        code: A word that programs compare; it never changes.
        message: A sentence for people that says what to do.
        headers: Further headers of the answer.

    >>> RequestError(404, "unknown_person", "nobody of this name is enrolled").code
    'unknown_person'
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, message, dict(headers or {}))
        self.code = code

    def response(self, request_id: str) -> JSONResponse:
        """Return the answer that says it."""
        return error_response(self.status_code, self.code, self.detail, request_id, self.headers)


def error_response(
    status: int, code: str, message: str, request_id: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as every error is answered."""
    content = {"error": {"code": code, "message": message, "request_id": request_id}}
    return JSONResponse(content, status, dict(headers or {}))


# These run in a thread: Starlette asks whether a handler is asynchronous, which a decorated function hides.
def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error, or what the framework refuses by itself: an unknown path, a method, a malformed form."""
    assert isinstance(error, HTTPException)
    if isinstance(error, RequestError):
        return error.response(request.state.request_id)
    code = CODES.get(error.status_code, "refused")
    return error_response(error.status_code, code, str(error.detail), request.state.request_id, error.headers)


def handle_invalid_form(request: Request, error: Exception) -> JSONResponse:
    """Answer a form without the fields that are asked for (422), or a body that is no form at all (415)."""
    assert isinstance(error, RequestValidationError)
    given = request.headers.get("content-type", "")
    if request.method == "POST" and not given.lower().startswith("multipart/form-data"):
        message = f"the body must be multipart/form-data, got {given[:100] or 'no content type'}"
        return error_response(415, "not_a_form", message, request.state.request_id)
    problems = [f"{'.'.join(map(str, found['loc'][1:]))}: {found['msg']}" for found in error.errors()[:5]]
    return error_response(422, "invalid", "; ".join(problems), request.state.request_id)
