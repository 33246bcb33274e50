"""Output that cannot control the terminal: names of files and people may contain escape sequences."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

ALLOWED = "\n\t\r"


def escape_controls(text: str) -> str:
    r"""Return text with control characters written as escapes, so that a terminal shows them instead of obeying.

    Line breaks, tabs and carriage returns stay.

    >>> escape_controls("a\x1b[31m.png\n")
    'a\\x1b[31m.png\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c in ALLOWED or not _is_control(c) else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape control characters in everything that is written to stdout and stderr inside the block.

    >>> with escaped_output():
    ...     print("\\x1b[2Jall gone?")
    \\x1b[2Jall gone?
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Escaping(stream) for stream in before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Escaping:
    """A text stream that escapes control characters."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escape_controls(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _is_control(c: str) -> bool:
    # C0, DEL, C1, and the marks that turn the direction of text, which can disguise the end of a file's name.
    code = ord(c)
    return code < 32 or 127 <= code < 160 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
