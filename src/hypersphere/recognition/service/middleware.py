"""Checks around every request: request id, origin, keys, rate limit, size and time; headers and a log line afterwards."""

import asyncio
import contextlib
import ipaddress
import logging
import math
import re
import time
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .bearer_keys import BearerKeys
from .errors import RequestError
from .limits import Limits
from .rate_limit import TokenBuckets

log = logging.getLogger("hypersphere.service")
PATHS_WITHOUT_KEY = ("/", "/v1/health", "/openapi.json")  # they reveal nothing about enrolled people
DRAIN_SECONDS = 1.0  # how long the rest of a refused body is read
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class RequestMiddleware:
    """ASGI middleware that admits, limits and logs requests.

    Args:
        app: The application that answers.
        limits: Limits per request and per client.
        keys: Accepted keys; without keys, requests must address this machine by a loopback name.
        fingerprint: Fingerprint of the model. A request that names another one by ``X-Model-Fingerprint`` is refused.
    """

    def __init__(self, app: ASGIApp, limits: Limits, keys: BearerKeys, fingerprint: str):
        self.app, self.limits, self.keys, self.fingerprint = app, limits, keys, fingerprint
        self.rates = TokenBuckets(limits.per_minute, limits.burst)
        self.working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 0
        body = RequestBody(receive, self.limits)
        request_id = _choose_request_id(Headers(scope=scope).get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif status >= 400 and not message.get("more_body"):
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body"}
            await send(message)

        failure = None
        self.working += 1
        try:
            self._admit(scope)
            await self.app(scope, body.receive, answer)
        except RequestError as error:
            failure = error
        except Exception:
            log.exception("%s failed", request_id)
            failure = RequestError(
                500, "internal", "the service failed; its log contains the reason under this request id"
            )
        finally:
            self.working -= 1
        if failure is not None and not status:
            await failure.response(request_id)(scope, receive, answer)
        # Log the route instead of the path, because a path may contain the name of a person.
        route = getattr(scope.get("route"), "path", "-")
        milliseconds = 1e3 * (time.perf_counter() - started)
        log.info(
            "%s %s %s %d %.1f ms %s", request_id, scope["method"], route, status, milliseconds, _get_address(scope)
        )

    def _admit(self, scope: Scope) -> None:
        headers, address = Headers(scope=scope), _get_address(scope)
        owner = self.keys.owner(headers.get("authorization"))
        wait = self.rates.take(owner or address)  # first, so that refused requests count too
        if wait:
            raise RequestError(
                429,
                "too_often",
                "too many requests: wait as long as the header Retry-After says",
                {"Retry-After": str(math.ceil(wait))},
            )
        self._check_origin(headers)
        if self.keys and owner is None and scope["path"] not in PATHS_WITHOUT_KEY:
            message = "a key is needed: send it in the header Authorization: Bearer KEY"
            raise RequestError(401, "no_key", message, {"WWW-Authenticate": "Bearer"})
        if self.working > self.limits.at_once:
            message = f"{self.limits.at_once} requests are being processed: try again later"
            raise RequestError(503, "busy", message, {"Retry-After": "1"})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise _make_size_error(self.limits)
        requested = headers.get("x-model-fingerprint")
        if requested is not None and requested != self.fingerprint:
            message = f"the service runs model {self.fingerprint}, but X-Model-Fingerprint names another one"
            raise RequestError(409, "model_mismatch", message)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse requests from pages of other sites, because browsers let a page send forms to any address."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name, origin_host = urlsplit(f"//{host}").hostname, None if origin is None else urlsplit(origin).netloc
        except ValueError as error:
            raise RequestError(400, "bad_header", "the header Host or Origin is malformed") from error
        if origin_host is not None and origin_host != host:
            raise RequestError(403, "other_origin", "requests from pages of other sites are refused")
        if not self.keys and not _is_loopback(name):
            message = "without keys the service answers only to localhost, 127.0.0.1 and [::1]"
            raise RequestError(403, "other_host", message)


class RequestBody:
    """The body of a request, with limits on its size and duration while it arrives."""

    def __init__(self, receive: Receive, limits: Limits):
        self._receive, self.limits = receive, limits
        self.end = time.monotonic() + limits.sending_seconds
        self.size, self.is_complete = 0, False

    async def receive(self) -> Message:
        """Return the next part. Raise a :class:`RequestError` if it is late or the body is too large."""
        if self.is_complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self.end - time.monotonic()))
        except asyncio.TimeoutError:
            reason = f"the body must arrive within {self.limits.sending_seconds:g} s"
            raise RequestError(408, "too_slow", reason, {"Connection": "close"}) from None
        self.size += len(message.get("body", b""))
        if self.size > self.limits.body_bytes:
            raise _make_size_error(self.limits)
        self.is_complete = not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read on briefly after an error was answered, because a client that is still sending would not see the answer."""
        self.end = min(self.end, time.monotonic() + DRAIN_SECONDS)
        with contextlib.suppress(asyncio.TimeoutError):
            while not self.is_complete and time.monotonic() < self.end:
                message = await asyncio.wait_for(self._receive(), max(0.0, self.end - time.monotonic()))
                self.is_complete = not message.get("more_body", False)


def _choose_request_id(requested: str | None) -> str:
    return requested if requested is not None and REQUEST_ID.fullmatch(requested) else uuid.uuid4().hex


def _get_address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "-"


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _make_size_error(limits: Limits) -> RequestError:
    message = f"the body must have at most {limits.body_bytes} bytes"
    return RequestError(413, "too_large", message, {"Connection": "close"})
