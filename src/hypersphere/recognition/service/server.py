"""A server around the application: where it listens, who may reach it, how it stops."""

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .album_app import AlbumAccess, create_album_app
from .app import create_app
from .bearer_keys import VARIABLE, BearerKeys
from .limits import Limits
from .recognizer import Recognizer

log = logging.getLogger("hypersphere.service")
BACKLOG = 32  # connections accepted at a time, before the first of them is counted
SEND_BUFFER = 64 * 1024  # bytes of an answer that the system buffers for a slow client; its default is megabytes
RESERVED_FILES = 2 * BACKLOG + 64  # for connections not counted yet, and the files of gallery, decoders and libraries


def serve(recognizer: Recognizer, host: str = "127.0.0.1", port: int = 8000, keys: BearerKeys | None = None) -> None:
    """Answer requests until SIGTERM or SIGINT; then let those that were begun end, and close the recognizer.

    Args:
        recognizer: The embedder and the gallery.
        host: Where to listen. Beyond this machine only with keys.
        port: 0 takes a free one; the address is printed.
        keys: Who may ask.

    Raises:
        ValueError: When others could reach a service without keys.
        OSError: When the address cannot be listened on.

    >>> serve(Recognizer(hs.load("characters"), "people.db"), port=8000)  # doctest: +SKIP
    serving on http://127.0.0.1:8000 (open to everybody on this machine: no bearer key is set)
    """
    keys = keys or BearerKeys()
    serve_app(create_app(recognizer, keys), recognizer.limits, host, port, keys, recognizer.warm_up)


def serve_album(access: AlbumAccess, host: str = "127.0.0.1", port: int = 8000, keys: BearerKeys | None = None) -> None:
    """Show an album and take corrections until SIGTERM or SIGINT, with the same limits and keys as :func:`serve`.

    Args:
        access: The album.
        host: Where to listen. Beyond this machine only with keys.
        port: 0 takes a free one; the address is printed.
        keys: Who may ask.

    Raises:
        ValueError: When others could reach a service without keys.
        OSError: When the address cannot be listened on.

    >>> serve_album(AlbumAccess("family.album"), port=8000)  # doctest: +SKIP
    serving on http://127.0.0.1:8000 (open to everybody on this machine: no bearer key is set)
    """
    keys = keys or BearerKeys()
    serve_app(create_album_app(access, keys), access.limits, host, port, keys, lambda: None)


def serve_app(
    app: FastAPI, limits: Limits, host: str, port: int, keys: BearerKeys, warm_up: Callable[[], object]
) -> None:
    """Run an application of this package until SIGTERM or SIGINT. ``warm_up`` is called before the address is printed."""
    with listener(host, port, bool(keys)) as place:
        address, number = place.getsockname()[:2]
        config = uvicorn.Config(
            app,
            http=_protocol(limits, allowed_connections(limits)),
            backlog=BACKLOG,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # or a client could choose its address
            timeout_graceful_shutdown=int(limits.answer_seconds) + 1,
        )
        server = _Server(config)

        def stop(_: int, __: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn handles these while it runs and then raises them again for what was there before, which ends well.
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            warm_up()
            shown = f"[{address}]" if ":" in address else address
            how = "with keys" if keys else "open to everybody on this machine: no bearer key is set"
            print(f"serving on http://{shown}:{number} ({how})", flush=True)
            server.run(sockets=[place])
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)
    print("stopped; everything that was acknowledged is on disk", flush=True)


def listener(host: str, port: int, keys: bool) -> socket.socket:
    """Return a socket that listens, on a loopback address unless there are keys."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    if not keys and not ipaddress.ip_address(address[0]).is_loopback:
        raise ValueError(
            f"host {host} can be reached by others, and no bearer key is set: put keys into the variable {VARIABLE} or a file "
            "named by --keys, or listen on 127.0.0.1"
        )
    try:
        place = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
    place.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # its connections inherit it
    return place


def log_to_stderr() -> None:
    """Write one line a request to standard error, with the time and the request id."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"hypersphere.service": logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)


def allowed_connections(limits: Limits) -> int:
    """Return how many connections may be open: ``limits.connections``, fewer if the process may not open as many files.

    The limit of open files is first raised as far as the system allows.
    """
    try:
        import resource
    except ImportError:  # not on this platform
        return limits.connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(limits.connections, soft - RESERVED_FILES))
    return limits.connections


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_log_loop_error)
        await super().startup(sockets)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what goes wrong outside of requests: one line if the system runs out of something, else as always."""
    error = context.get("exception")
    if isinstance(error, OSError):
        log.warning("%s: %s", context.get("message"), error)
    else:
        loop.default_exception_handler(context)


def _protocol(limits: Limits, connections: int) -> type[asyncio.Protocol]:
    """Return HTTP by h11 with limits on connections, on the time for the head of a request and on the time for reading answers.

    Connections are counted before anything is read from them. The middleware limits the time for the body. A head that
    arrives too slowly, and an answer that the client does not read, never reach the middleware.
    """
    by_address: Counter[str] = Counter()
    seconds = limits.sending_seconds

    class LimitedProtocol(H11Protocol):
        address: str | None = None  # None unless this connection is counted
        deadline: asyncio.TimerHandle | None = None
        check: asyncio.TimerHandle | None = None
        unread_since: float | None = None

        def connection_made(self, transport: Any) -> None:
            peer = transport.get_extra_info("peername")
            address = peer[0] if isinstance(peer, tuple) else "-"
            if by_address.total() >= connections or by_address[address] >= limits.per_address:
                transport.abort()
                return
            self.address = address
            by_address[address] += 1
            super().connection_made(transport)
            self.watch()
            self.check_unread()

        def data_received(self, data: bytes) -> None:
            if self.address is not None:
                super().data_received(data)
                self.watch()

        def eof_received(self) -> None:
            if self.address is not None:
                super().eof_received()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.address is None:
                return
            by_address[self.address] -= 1
            if not by_address[self.address]:
                del by_address[self.address]
            self.address = None
            self.unwatch()
            if self.check is not None:
                self.check.cancel()
            super().connection_lost(exc)

        def watch(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self.unwatch()
            elif self.deadline is None:
                self.deadline = self.loop.call_later(seconds, self.transport.close)

        def unwatch(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def check_unread(self) -> None:
            """Abort the connection if the client has left an answer unread for too long."""
            now = self.loop.time()
            if not self.transport.get_write_buffer_size():
                self.unread_since = None
            elif self.unread_since is None:
                self.unread_since = now
            elif now - self.unread_since > seconds:
                self.transport.abort()
                return
            self.check = self.loop.call_later(min(1.0, seconds / 4), self.check_unread)

    return LimitedProtocol
