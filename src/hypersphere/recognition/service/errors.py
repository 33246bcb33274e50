"""Error answers. All have the form ``{"error": {"code", "message", "request_id"}}`` and never contain a traceback."""

from collections.abc import Mapping

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


class RequestError(HTTPException):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        code: A word for programs, which never changes.
        message: A sentence for people that says what to do.
        headers: Additional headers of the answer.

    >>> RequestError(404, "unknown_person", "nobody of this name is enrolled").code
    'unknown_person'
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, message, dict(headers or {}))
        self.code = code

    def response(self, request_id: str) -> JSONResponse:
        """Return the error answer."""
        return error_response(self.status_code, self.code, self.detail, request_id, self.headers)


def error_response(
    status: int, code: str, message: str, request_id: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error answer in the common form."""
    content = {"error": {"code": code, "message": message, "request_id": request_id}}
    return JSONResponse(content, status, dict(headers or {}))


# The handlers are not asynchronous: Starlette asks whether a handler is, and a decorator of a function hides it.
def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of the service or of the framework, such as an unknown path or a malformed form."""
    assert isinstance(error, HTTPException)
    if isinstance(error, RequestError):
        return error.response(request.state.request_id)
    code = CODES.get(error.status_code, "refused")
    return error_response(error.status_code, code, str(error.detail), request.state.request_id, error.headers)


def handle_invalid_form(request: Request, error: Exception) -> JSONResponse:
    """Answer a form without the required fields (422), or a body that is not a form (415)."""
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    if request.method == "POST" and not content_type.lower().startswith("multipart/form-data"):
        message = f"the body must be multipart/form-data, got {content_type[:100] or 'no content type'}"
        return error_response(415, "not_a_form", message, request.state.request_id)
    problems = [f"{'.'.join(map(str, problem['loc'][1:]))}: {problem['msg']}" for problem in error.errors()[:5]]
    return error_response(422, "invalid", "; ".join(problems), request.state.request_id)
