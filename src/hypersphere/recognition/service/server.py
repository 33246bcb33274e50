"""The HTTP server: its address, its connections and its shutdown."""

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
    """Answer requests until SIGTERM or SIGINT, then finish running requests and close the recognizer.

    Args:
        recognizer: The embedder and the gallery.
        host: The address to listen on. Addresses that other machines can reach need keys.
        port: The port; 0 chooses a free one. The address is printed.
        keys: The accepted keys.

    Raises:
        ValueError: If other machines could reach a service without keys.
        OSError: If the address cannot be listened on.

    >>> serve(Recognizer(hs.load("characters"), "people.db"), port=8000)  # doctest: +SKIP
    serving on http://127.0.0.1:8000 (open to everybody on this machine: no bearer key is set)
    """
    keys = keys or BearerKeys()
    serve_app(create_app(recognizer, keys), recognizer.limits, host, port, keys, recognizer.warm_up)


def serve_album(access: AlbumAccess, host: str = "127.0.0.1", port: int = 8000, keys: BearerKeys | None = None) -> None:
    """Serve the review of an album until SIGTERM or SIGINT, with the same limits and keys as :func:`serve`.

    Args:
        access: The album.
        host: The address to listen on. Addresses that other machines can reach need keys.
        port: The port; 0 chooses a free one. The address is printed.
        keys: The accepted keys.

    Raises:
        ValueError: If other machines could reach a service without keys.
        OSError: If the address cannot be listened on.

    >>> serve_album(AlbumAccess("family.album"), port=8000)  # doctest: +SKIP
    serving on http://127.0.0.1:8000 (open to everybody on this machine: no bearer key is set)
    """
    keys = keys or BearerKeys()
    serve_app(create_album_app(access, keys), access.limits, host, port, keys, lambda: None)


def serve_app(
    app: FastAPI, limits: Limits, host: str, port: int, keys: BearerKeys, warm_up: Callable[[], object]
) -> None:
    """Run an application of this package until SIGTERM or SIGINT. ``warm_up`` is called before the address is printed."""
    with open_listener(host, port, has_keys=bool(keys)) as listener:
        address, number = listener.getsockname()[:2]
        config = uvicorn.Config(
            app,
            http=_make_protocol(limits, limit_connections(limits)),
            backlog=BACKLOG,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # otherwise a client could choose its address
            timeout_graceful_shutdown=int(limits.answer_seconds) + 1,
        )
        server = _Server(config)

        def stop(_: int, __: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn handles these signals while it runs, and afterwards raises them again for the handlers set here.
        previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            warm_up()
            url_host = f"[{address}]" if ":" in address else address
            access = "with keys" if keys else "open to everybody on this machine: no bearer key is set"
            print(f"serving on http://{url_host}:{number} ({access})", flush=True)
            server.run(sockets=[listener])
        finally:
            for signal_number, handler in previous.items():
                signal.signal(signal_number, handler)
    print("stopped; everything that was acknowledged is on disk", flush=True)


def open_listener(host: str, port: int, has_keys: bool) -> socket.socket:
    """Return a listening socket. Without keys, only loopback addresses are accepted."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    if not has_keys and not ipaddress.ip_address(address[0]).is_loopback:
        raise ValueError(
            f"other machines can reach host {host}, and no bearer key is set: put keys into the variable {VARIABLE} or into a "
            "file for --keys, or listen on 127.0.0.1"
        )
    try:
        listener = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # its connections inherit it
    return listener


def log_to_stderr() -> None:
    """Log one line per request to standard error, with the time and the request id."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"hypersphere.service": logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)


def limit_connections(limits: Limits) -> int:
    """Return ``limits.connections``, or fewer if the process may not open as many files.

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
    """Log an error outside of requests, in one line if it is a system error, such as too many open files."""
    error = context.get("exception")
    if isinstance(error, OSError):
        log.warning("%s: %s", context.get("message"), error)
    else:
        loop.default_exception_handler(context)


def _make_protocol(limits: Limits, connections: int) -> type[asyncio.Protocol]:
    """Return the h11 protocol with limits on connections, on the time for a request's head, and for reading an answer.

    Connections are counted before anything is read from them. The middleware limits the time for the body. It cannot
    limit the time for the head or for reading the answer, because neither reaches it.
    """
    by_address: Counter[str] = Counter()
    seconds = limits.sending_seconds

    class LimitedProtocol(H11Protocol):
        address: str | None = None  # None unless this connection is counted
        head_deadline: asyncio.TimerHandle | None = None
        unread_check: asyncio.TimerHandle | None = None
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
            self.update_head_deadline()
            self.check_unread()

        def data_received(self, data: bytes) -> None:
            if self.address is not None:
                super().data_received(data)
                self.update_head_deadline()

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
            self.cancel_head_deadline()
            if self.unread_check is not None:
                self.unread_check.cancel()
            super().connection_lost(exc)

        def update_head_deadline(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self.cancel_head_deadline()
            elif self.head_deadline is None:
                self.head_deadline = self.loop.call_later(seconds, self.transport.close)

        def cancel_head_deadline(self) -> None:
            if self.head_deadline is not None:
                self.head_deadline.cancel()
                self.head_deadline = None

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
            self.unread_check = self.loop.call_later(min(1.0, seconds / 4), self.check_unread)

    return LimitedProtocol
