"""Safe terminal output (names of files and people may contain escape sequences), and log messages."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

ALLOWED = "\n\t\r"


def escape_controls(text: str) -> str:
    r"""Return text with control characters written as escapes, so that a terminal prints instead of executing them.

    Line breaks, tabs and carriage returns are kept.

    >>> escape_controls("a\x1b[31m.png\n")
    'a\\x1b[31m.png\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c in ALLOWED or not _is_control(c) else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    r"""Escape control characters in everything that is written to stdout and stderr inside the block.

    >>> with escaped_output():
    ...     print("\x1b[2Jall gone?")
    \x1b[2Jall gone?
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Escaping(stream) for stream in before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def add_action(
    actions: Any, name: str, text: str, example: str, aliases: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add an action to a command, such as ``list`` to ``gallery``, and return its parser.

    Args:
        actions: The result of ``parser.add_subparsers``.
        name: The name of the action.
        text: The first line of its help.
        example: A command line with this action.
        aliases: Other names of the action.

    >>> actions = argparse.ArgumentParser().add_subparsers()
    >>> print(add_action(actions, "list", "list people", "hypersphere gallery list a.db").epilog)
    example: hypersphere gallery list a.db
    """
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text, epilog=f"example: {example}", aliases=aliases
    )
    return parser


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet`` and ``--verbose`` to a command and to each of its actions.

    >>> parser = argparse.ArgumentParser()
    >>> add_verbosity(parser)
    >>> parser.parse_args(["-vv"])
    Namespace(quiet=False, verbose=2)
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in {id(choice): choice for choice in action.choices.values()}.values():
                add_verbosity(inner)
            return
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help="print only results and errors")
    group.add_argument(
        "-v", "--verbose", action="count", default=0, help="write progress messages to stderr; -vv also writes details"
    )


@contextlib.contextmanager
def log_messages(args: argparse.Namespace) -> Iterator[None]:
    """Write the messages of the library's loggers to stderr inside the block.

    The loggers are named after the packages, such as ``hypersphere.training``. The lowest level written is WARNING;
    ERROR with ``-q``, INFO with ``-v``, and DEBUG with ``-vv``.

    >>> with log_messages(argparse.Namespace(quiet=True, verbose=0)):
    ...     logging.getLogger("hypersphere.training").warning("not shown")
    """
    verbose = getattr(args, "verbose", 0)
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logger = logging.getLogger("hypersphere")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    old_level, old_disable = logger.level, logging.root.manager.disable
    if getattr(args, "command", None) != "serve":  # the service installs its own handlers
        logger.addHandler(handler)
        logger.setLevel(level)
    if getattr(args, "quiet", False):
        logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(old_level)
        logging.disable(old_disable)


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
    # C0, DEL, C1, and the marks that change the direction of text, which can disguise the ending of a file name.
    code = ord(c)
    return code < 32 or 127 <= code < 160 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
