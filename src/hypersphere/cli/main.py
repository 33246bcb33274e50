"""Entry point of the ``hypersphere`` command: finds the subcommand and turns user errors into one line."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import __version__

PIPE = 13  # SIGPIPE; 128 + a signal is the status that a shell gives to a process it ended

# name → what it does. Each has a module of the same name in this package with `configure(parser)` and `run(args) -> int`;
# only the one that is asked for is imported.
COMMANDS = {
    "fit": "from pictures sorted by identity to a recogniser of others",
    "demo": "the library at work in one minute",
    "train": "run a recipe, with knobs changed by key.path=value; resume a run",
    "report": "one page about a run, or several side by side, to open in a browser",
    "recipes": "list the experiments that can be trained",
    "data": "list the datasets that are present, and get others by name",
    "reproduce": "test a claim of Liu (2020) on real data, measured beside published",
    "energy": "the hyperspherical energy of every layer of a checkpoint",
    "evaluate": "the open-set report of an embedder on your images, or on a list of pairs",
    "export": "an embedder as an ONNX graph or as a folder for the hub",
    "embed": "features of image files by a trained model",
    "gallery": "enrol, identify and verify identities, in a file or on a PostgreSQL server",
    "serve": "recognition over HTTP with a page: embeddings, persons, search",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; 0 is success, 1 a failure with its reason on stderr, 2 a wrong command line.

    With ``HYPERSPHERE_DEBUG=1`` a failure shows where it came from.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="hypersphere", description="Deep representation learning on the hypersphere.")
    parser.add_argument("--version", action="version", version=f"hypersphere {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    modules = {}
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == chosen:
            modules[name] = importlib.import_module(f".{name}", __package__)
            modules[name].configure(subparser)
    args, extra = parser.parse_known_args(arguments)
    if extra and (not hasattr(args, "overrides") or any(word.startswith("-") for word in extra)):
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    if extra:  # key=value behind an option, which argparse does not connect with those before it
        args.overrides = [*args.overrides, *extra]
    try:
        status = int(modules[args.command].run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read our output, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        return 128 + PIPE
    except (MemoryError, RuntimeError) as error:
        if os.environ.get("HYPERSPHERE_DEBUG") or not _out_of_memory(error):
            raise
        print(
            f"hypersphere {args.command}: the memory is not enough for what was asked: {_first(error)}", file=sys.stderr
        )
        return 1
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("HYPERSPHERE_DEBUG"):
            raise
        lost = isinstance(error, ConnectionError)  # perhaps the first process, which then says nothing
        if lost or os.environ.get("RANK", "0") == "0":  # of many processes that fail alike, one says why
            print(f"hypersphere {args.command}: {_said(error)}", file=sys.stderr)
        return 1


def _said(error: BaseException) -> str:
    """An error as a sentence: of the system's own its file and its words, without their number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, a CPU's or a GPU's."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _first(error: BaseException) -> str:
    """The first line of a message, without the place in torch's source."""
    return (str(error).splitlines() or ["out of memory"])[0].rpartition("] . ")[2] or "out of memory"


if __name__ == "__main__":
    raise SystemExit(main())
