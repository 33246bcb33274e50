"""Decoding of large pictures in a worker process with limits on time and memory.

The time of a decoder cannot be limited within the process, because Pillow runs in C without returning to Python. Therefore a
picture that may be expensive is sent to a worker process. The worker has a memory limit and responds with raw pixels. It is
killed at the end of the time limit, and the next picture gets a new worker. Workers start on first use and are reused. A
response is never unpickled, so a compromised decoder can only send wrong pixels.
"""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from .._extras import require

MAX_BYTES_IN_MEMORY = 6 << 30  # address space of a worker; the largest accepted picture needs less
MAX_IDLE_WORKERS = 4
LOW_PRIORITY = 10  # added to the niceness of a worker, so that expensive pictures do not slow down other work
_WORKER = """
import sys, types
root = sys.argv[1]
for name, folder in (("hypersphere", root), ("hypersphere.data", root + "/data")):
    package = types.ModuleType(name)  # skip __init__.py, which would import torch
    package.__path__ = [folder]
    sys.modules[name] = package
from hypersphere.data.decoding_process import answer_requests
answer_requests()
"""


class DecodingTimeoutError(ValueError):
    """Raised if a picture is not decoded within its time limit."""


class DecodingFailedError(ValueError):
    """Raised if the worker refuses a picture or ends while decoding it."""


def decode_in_process(content: bytes, formats: tuple[str, ...], mode: str | None, seconds: float) -> Any:
    """Return the upright 8-bit PIL image in ``content``, decoded by a worker process.

    Args:
        content: The bytes of a file. The caller has checked the size of the picture.
        formats: The formats that Pillow may try.
        mode: ``"RGB"``, ``"L"``, or None, which keeps gray pictures gray.
        seconds: Time limit.

    Raises:
        DecodingTimeoutError: If the picture is not decoded within the time limit.
        DecodingFailedError: If the picture cannot be decoded or the worker ended.
    """
    worker = _take_worker()
    timer = threading.Timer(seconds, worker.expire)
    timer.daemon = True
    timer.start()
    try:
        head, pixels = worker.decode(content, {"formats": formats, "mode": mode, "size": len(content)})
    except (OSError, ValueError) as error:
        if worker.expired:
            raise DecodingTimeoutError(f"decoding took more than {seconds:g} s") from None
        raise DecodingFailedError(f"the decoder's process ended ({type(error).__name__})") from None
    finally:
        timer.cancel()
        timer.join()
        _give_back(worker)
    if "error" in head:
        raise DecodingFailedError(str(head["error"]))
    return require("PIL.Image").frombytes(head["mode"], (head["width"], head["height"]), pixels)


class _Worker:
    def __init__(self) -> None:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        command = [sys.executable, "-c", _WORKER, root]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.expired = False

    def decode(self, content: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send one picture; return the header and the pixels of the response."""
        writer, reader = self.process.stdin, self.process.stdout
        assert writer is not None
        assert reader is not None
        writer.write(json.dumps(request).encode() + b"\n")
        writer.write(content)
        writer.flush()
        head = json.loads(reader.readline(1 << 16))
        if "error" in head:
            return head, b""
        channels = {"L": 1, "RGB": 3}[head["mode"]]
        size = int(head["width"]) * int(head["height"]) * channels
        pixels = reader.read(size)
        if len(pixels) != size:
            raise OSError("the response is truncated")
        return head, pixels

    def expire(self) -> None:
        """Kill the process after the time limit."""
        self.expired = True
        self.process.kill()

    def close(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


_idle: list[_Worker] = []
_inherited: list[_Worker] = []  # workers of the parent process; a reference prevents their destructors from running
_lock = threading.Lock()


def _take_worker() -> _Worker:
    with _lock:
        worker = _idle.pop() if _idle else None
    return worker or _Worker()


def _give_back(worker: _Worker) -> None:
    with _lock:
        if worker.process.poll() is None and not worker.expired and len(_idle) < MAX_IDLE_WORKERS:
            _idle.append(worker)
            return
    worker.close()


@atexit.register
def _close_all() -> None:
    while _idle:
        _idle.pop().close()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_idle)
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def answer_requests() -> None:
    """Run a worker: decode requests from standard input until it closes."""
    from .images import decode_in_this_process

    _limit_resources()
    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    while line := reader.readline():
        request = json.loads(line)
        content = reader.read(request["size"])
        pixels = b""
        try:
            image = decode_in_this_process(content, tuple(request["formats"]), request["mode"])
            head = {"mode": image.mode, "width": image.width, "height": image.height}
            pixels = image.tobytes()
        except BaseException as error:  # a decoder may raise any exception on damaged bytes, including MemoryError
            head = {"error": f"{type(error).__name__}: {error}"[:500]}
        writer.write(json.dumps(head).encode() + b"\n")
        writer.write(pixels)
        writer.flush()


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # not available on this platform
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(LOW_PRIORITY)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES_IN_MEMORY, MAX_BYTES_IN_MEMORY))
