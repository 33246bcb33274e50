"""Entry point of the ``hypersphere`` command: run the subcommand and print user errors as one line."""

import argparse
import contextlib
import difflib
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from .. import __version__
from .terminal import add_verbosity, escape_controls, escaped_output, log_messages

SIGPIPE = 13  # shells report the exit status 128 + signal number for a process that a signal ended


class Command(NamedTuple):
    """A subcommand: its group in the help, a one-line summary, an example, and its module if the name differs.

    The module defines ``configure(parser)`` and ``run(args) -> int``. Only the module of the requested command is imported,
    so that ``hypersphere --help`` is fast.
    """

    group: str
    summary: str
    example: str
    module: str | None = None


FIRST_STEPS, RECOGNIZE, TRAIN, RESEARCH = "First steps", "Recognize", "Train on your own data", "Research"
COMMANDS = {
    "demo": Command(
        FIRST_STEPS,
        "train a small embedder and recognize letters of new alphabets, in one minute",
        "hypersphere demo -o runs/demo",
    ),
    "models": Command(
        FIRST_STEPS, "list pretrained embedders with their license and source", "hypersphere models sface"
    ),
    "completion": Command(
        FIRST_STEPS,
        "print a script that lets your shell complete commands and options",
        'eval "$(hypersphere completion bash)"',
    ),
    "gallery": Command(
        RECOGNIZE,
        "enroll, identify and verify people; a gallery is a file or on a PostgreSQL server",
        "hypersphere gallery identify known.db sface party.jpg",
    ),
    "group": Command(
        RECOGNIZE,
        "group unlabeled photographs by person into an album",
        "hypersphere group photos/ -o family.album",
    ),
    "album": Command(
        RECOGNIZE,
        "list, name, correct and export the groups of an album",
        "hypersphere album export family.album --table groups.csv",
    ),
    "serve": Command(
        RECOGNIZE,
        "recognize people over HTTP with a web page, or review an album in the browser",
        "hypersphere serve sface known.db",
    ),
    "embed": Command(
        RECOGNIZE, "write the features of pictures to a file", "hypersphere embed sface photos/ -o features.safetensors"
    ),
    "evaluate": Command(
        RECOGNIZE,
        "measure an embedder on your pictures or on a list of pairs",
        "hypersphere evaluate run/embedder.safetensors people/ -o report/",
    ),
    "data": Command(TRAIN, "check your pictures; list and fetch public datasets", "hypersphere data check people/"),
    "fit": Command(
        TRAIN,
        "train an embedder on pictures sorted by identity and measure it on other identities",
        "hypersphere fit people/ -o run head=ArcFace head.m=0.3",
    ),
    "pretrain": Command(
        TRAIN,
        "train an embedder on unlabeled pictures, as a starting point for `fit`",
        "hypersphere pretrain photos/ -o photos.safetensors teacher=0.99",
    ),
    "report": Command(
        TRAIN,
        "write an HTML page about one training run, or several side by side",
        "hypersphere report runs/a runs/b -o both.html",
    ),
    "export": Command(
        TRAIN,
        "write an embedder as an ONNX graph or as a folder for the Hugging Face hub",
        "hypersphere export run/embedder.safetensors --onnx embedder.onnx",
    ),
    "import": Command(
        TRAIN,
        "convert a network from an ONNX file or from insightface to an embedder",
        "hypersphere import network.onnx -o embedder.safetensors --faces --normalize faces",
        "import_model",
    ),
    "recipes": Command(
        RESEARCH,
        "list the experiments of the dissertation (Liu, 2020) that `train` can run",
        "hypersphere recipes mhe-cifar10",
    ),
    "train": Command(
        RESEARCH,
        "run an experiment of Liu (2020), with your own settings if you like, or resume a run",
        "hypersphere train mhe-cifar10 --size smoke energy.s=1",
    ),
    "energy": Command(
        RESEARCH,
        "measure the hyperspherical energy of every layer of a checkpoint",
        "hypersphere energy model.safetensors --against earlier.safetensors",
    ),
}


DRAW_PROGRESS = {"fit", "pretrain", "train", "demo"}  # commands whose progress bars write escape sequences


class GroupedParser(argparse.ArgumentParser):
    """A parser whose help lists the commands by group."""

    def format_help(self) -> str:
        """Return the usage, the commands by group, and the options."""
        width = max(map(len, COMMANDS)) + 2
        lines = [f"usage: {self.prog} COMMAND …", "", str(self.description), ""]
        for group in (FIRST_STEPS, RECOGNIZE, TRAIN, RESEARCH):
            listed = [(name, command) for name, command in COMMANDS.items() if command.group == group]
            lines += [f"{group}:", *(f"  {name:<{width}}{command.summary}" for name, command in listed), ""]
        lines += [f"`{self.prog} COMMAND --help` explains one command, `{self.prog} --version` prints the version.", ""]
        lines.append(f"example: {COMMANDS['demo'].example}")
        return "\n".join(lines) + "\n"


def build_parser(names: Collection[str]) -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """Return the parser of the whole command line.

    Args:
        names: Commands whose modules are imported and whose options are added. The other commands get only a summary.

    Returns:
        The parser, and the modules of ``names`` by name.

    >>> parser, modules = build_parser(["models"])
    >>> sorted(modules), parser.parse_args(["models"]).command
    (['models'], 'models')
    """
    parser = GroupedParser(
        prog="hypersphere",
        description="Recognize people, products or characters by the angle between feature vectors.\n"
        "An embedder is a network that computes the feature vector of a picture or recording.",
    )
    parser.add_argument("--version", action="version", version=f"hypersphere {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    modules = {}
    for name, command in COMMANDS.items():
        text = command.summary
        subparser = subparsers.add_parser(name, help=text, description=text, epilog=f"example: {command.example}")
        if name in names:
            modules[name] = importlib.import_module(f".{command.module or name}", __package__)
            modules[name].configure(subparser)
            add_verbosity(subparser)
    return parser, modules


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. Return 0 on success and 1 on failure; the reason is printed to stderr.

    An invalid command line exits with status 2. With ``HYPERSPHERE_DEBUG=1`` a failure prints its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    name = next((a for a in arguments if not a.startswith("-")), "")
    parser, modules = build_parser({name})
    if name and name not in COMMANDS:
        parser.error(f"there is no command {name}; {_suggest_command(name)}`hypersphere --help` lists the commands")
    args, extra = parser.parse_known_args(arguments)
    if extra and (not hasattr(args, "overrides") or any(word.startswith("-") for word in extra)):
        hint = _hint_settings(arguments, extra, args) or f"; `hypersphere {name} --help` lists the options"
        parser.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
    if extra:  # KEY=VALUE after an option: argparse does not append it to `overrides`
        args.overrides = [*args.overrides, *extra]
    try:
        with contextlib.nullcontext() if args.command in DRAW_PROGRESS else escaped_output(), log_messages(args):
            status = int(modules[args.command].run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard buffered output
        return 128 + SIGPIPE
    except (MemoryError, RuntimeError) as error:
        from ..files import is_out_of_memory

        if os.environ.get("HYPERSPHERE_DEBUG") or not is_out_of_memory(error):
            raise
        print(f"hypersphere {args.command}: not enough memory: {_extract_reason(error)}", file=sys.stderr)
        return 1
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("HYPERSPHERE_DEBUG"):
            raise
        lost_process = isinstance(error, ConnectionError)  # rank 0 itself may be gone, so let every rank print
        if lost_process or os.environ.get("RANK", "0") == "0":  # all ranks fail for the same reason: print it once
            print(f"hypersphere {args.command}: {escape_controls(_describe(error))}", file=sys.stderr)
        return 1


def _suggest_command(name: str) -> str:
    """Return ``"did you mean …? "`` with the most similar command, or an empty string if none is similar.

    >>> _suggest_command("galery")
    'did you mean gallery? '
    """
    similar = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"did you mean {similar[0]}? " if similar else ""


def _hint_settings(arguments: Sequence[str], unknown: Sequence[str], args: argparse.Namespace) -> str:
    """Return a hint with the correct spelling if a setting was written like an option, otherwise an empty string.

    >>> _hint_settings(["fit", "people", "--steps", "100"], ["--steps"], argparse.Namespace(overrides=["100"]))
    '; settings are written KEY=VALUE, such as steps=100'
    """
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None or not hasattr(args, "overrides"):
        return ""
    key, equals, value = option.lstrip("-").replace("-", "_").partition("=")
    next_word = [*arguments[list(arguments).index(option) + 1 :], "…"][0]
    return f"; settings are written KEY=VALUE, such as {key}={value if equals else next_word}"


def _describe(error: BaseException) -> str:
    """Return the message of an error. For an ``OSError``, return the file and the reason without the error number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def _extract_reason(error: BaseException) -> str:
    """Return the first line of an out-of-memory message, without its location in the source of PyTorch."""
    return (str(error).splitlines() or ["out of memory"])[0].rpartition("] . ")[2] or "out of memory"


if __name__ == "__main__":
    raise SystemExit(main())
