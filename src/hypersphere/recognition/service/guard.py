"""Before any route: request ids, keys, rates, sizes and times; after it: headers, a line in the log, no traceback."""

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
from .limits import Limits
from .rates import TokenBuckets
from .refusals import Refusal

log = logging.getLogger("hypersphere.service")
OPEN = ("/", "/v1/health", "/openapi.json")  # what is told without a key: nothing about persons
LINGER = 1.0  # seconds
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class Guard:
    """An ASGI application around another.

    Args:
        app: What is guarded.
        limits: What a request may take.
        keys: Who may ask; without keys everybody who names this machine by a loopback address.
        fingerprint: Of the model; a request that names another one by ``X-Model-Fingerprint`` is refused.
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
        request_id = _request_id(Headers(scope=scope).get("x-request-id"))
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

        refusal = None
        self.working += 1
        try:
            self._admit(scope)
            await self.app(scope, body.receive, answer)
        except Refusal as error:
            refusal = error
        except Exception:
            log.exception("%s failed", request_id)
            refusal = Refusal(500, "internal", "the service failed; its log has the reason under this request id")
        finally:
            self.working -= 1
        if refusal is not None and not status:
            await refusal.response(request_id)(scope, receive, answer)
        # The route and not the path, which may hold somebody's name.
        route = getattr(scope.get("route"), "path", "-")
        took = 1e3 * (time.perf_counter() - started)
        log.info("%s %s %s %d %.1f ms %s", request_id, scope["method"], route, status, took, _address(scope))

    def _admit(self, scope: Scope) -> None:
        headers, address = Headers(scope=scope), _address(scope)
        self._check_origin(headers)
        owner = self.keys.owner(headers.get("authorization"))
        wait = self.rates.take(owner or address)
        if wait:
            raise Refusal(429, "too_often", "too many requests", {"Retry-After": str(math.ceil(wait))})
        if self.keys and owner is None and scope["path"] not in OPEN:
            message = "a key is needed, as the header Authorization: Bearer KEY"
            raise Refusal(401, "no_key", message, {"WWW-Authenticate": "Bearer"})
        if self.working > self.limits.at_once:
            message = f"{self.limits.at_once} requests are being worked on: come again"
            raise Refusal(503, "busy", message, {"Retry-After": "1"})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise _too_large(self.limits)
        wanted = headers.get("x-model-fingerprint")
        if wanted is not None and wanted != self.fingerprint:
            message = f"the service runs model {self.fingerprint}, not the one that X-Model-Fingerprint names"
            raise Refusal(409, "model_mismatch", message)

    def _check_origin(self, headers: Headers) -> None:
        """Pages of other sites, which a browser lets send forms anywhere, must not enrol or remove anybody."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Refusal(403, "other_origin", "requests from pages of other sites are refused")
        if not self.keys and not _loopback(urlsplit(f"//{host}").hostname):
            message = "without keys the service answers only to localhost, 127.0.0.1 and [::1]"
            raise Refusal(403, "other_host", message)


class RequestBody:
    """The body of a request, counted and timed while it arrives."""

    def __init__(self, receive: Receive, limits: Limits):
        self._receive, self.limits = receive, limits
        self.end = time.monotonic() + limits.sending_seconds
        self.size, self.whole = 0, False

    async def receive(self) -> Message:
        """Return the next part; refuse what comes too late or is too much."""
        if self.whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self.end - time.monotonic()))
        except asyncio.TimeoutError:
            text = f"the body must arrive within {self.limits.sending_seconds:g} s"
            raise Refusal(408, "too_slow", text, {"Connection": "close"}) from None
        self.size += len(message.get("body", b""))
        if self.size > self.limits.body_bytes:
            raise _too_large(self.limits)
        self.whole = not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read on for a moment after an error was answered: a client that still sends would not see the answer."""
        self.end = min(self.end, time.monotonic() + LINGER)
        with contextlib.suppress(asyncio.TimeoutError):
            while not self.whole and time.monotonic() < self.end:
                message = await asyncio.wait_for(self._receive(), max(0.0, self.end - time.monotonic()))
                self.whole = not message.get("more_body", False)


def _request_id(given: str | None) -> str:
    return given if given is not None and REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "-"


def _loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _too_large(limits: Limits) -> Refusal:
    message = f"the body must have at most {limits.body_bytes} bytes"
    return Refusal(413, "too_large", message, {"Connection": "close"})
