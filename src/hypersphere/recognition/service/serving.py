"""A server around the application: where it listens, who may reach it, how it stops."""

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import create_app
from .bearer_keys import VARIABLE, BearerKeys
from .engine import Engine


def serve(engine: Engine, host: str = "127.0.0.1", port: int = 8000, keys: BearerKeys | None = None) -> None:
    """Answer requests until SIGTERM or SIGINT; then let those that were begun end, and close the engine.

    Args:
        engine: The embedder and the gallery.
        host: Where to listen. Beyond this machine only with keys.
        port: 0 takes a free one; the address is printed.
        keys: Who may ask.

    Raises:
        ValueError: When others could reach a service without keys.
        OSError: When the address cannot be listened on.

    >>> serve(Engine(hs.load("characters"), "people.db"), port=8000)  # doctest: +SKIP
    serving on http://127.0.0.1:8000 (open to everybody on this machine: no key is set)
    """
    keys = keys or BearerKeys()
    with listener(host, port, bool(keys)) as place:
        address, number = place.getsockname()[:2]
        limits = engine.limits
        config = uvicorn.Config(
            create_app(engine, keys),
            http=_protocol(limits.sending_seconds),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # or a client could choose its address
            timeout_graceful_shutdown=int(limits.answer_seconds) + 1,
        )
        server = uvicorn.Server(config)

        def stop(_: int, __: FrameType | None) -> None:
            server.should_exit = True

        # uvicorn handles these while it runs and then raises them again for what was there before, which ends well.
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            engine.warm_up()
            shown = f"[{address}]" if ":" in address else address
            how = "with keys" if keys else "open to everybody on this machine: no key is set"
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
            f"host {host} can be reached by others, and no key is set: put keys into the variable {VARIABLE} or a file "
            "named by --keys, or listen on 127.0.0.1"
        )
    try:
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error


def log_to_stderr() -> None:
    """Write one line a request to standard error, with the time and the request id."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"hypersphere.service": logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP by h11, which closes a connection whose next request does not begin to be read in time.

    The body is timed by the guard; a head that trickles in never reaches it.
    """

    class Punctual(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.unwatch()
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

    return Punctual
