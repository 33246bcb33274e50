"""Entry point of the ``hypersphere`` command: run the subcommand and print user errors as one line."""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from .. import __version__
from .terminal import add_verbosity, escape_controls, escaped_output, log_messages

PIPE = 13  # SIGPIPE; a shell reports 128 + signal for a process that the signal ended


class Command(NamedTuple):
    """A subcommand: the group it is listed in, one line about it, an example, and its module if the name differs.

    The module has ``configure(parser)`` and ``run(args) -> int``. Only the module of the requested command is imported,
    so that ``hypersphere --help`` is fast.
    """

    group: str
    summary: str
    example: str
    module: str | None = None


RECOGNIZE, TRAIN, RESEARCH, HELP = "Recognize", "Train on your own data", "Research", "First steps"
COMMANDS = {
    "demo": Command(
        HELP,
        "recognize letters of alphabets that were not in the training set, in one minute",
        "hypersphere demo -o runs/demo",
    ),
    "models": Command(HELP, "list pretrained models with their license and source", "hypersphere models sface"),
    "completion": Command(
        HELP,
        "print a script that completes commands and options in your shell",
        'eval "$(hypersphere completion bash)"',
    ),
    "gallery": Command(
        RECOGNIZE,
        "enroll, identify and verify people, in a file or on a PostgreSQL server",
        "hypersphere gallery identify known.db sface party.jpg",
    ),
    "group": Command(
        RECOGNIZE,
        "group photographs by person without labels; names and corrections are kept",
        "hypersphere group photos/ -o family.album",
    ),
    "album": Command(
        RECOGNIZE,
        "list, name, correct and export the groups of an album",
        "hypersphere album export family.album --table groups.csv",
    ),
    "serve": Command(
        RECOGNIZE, "recognize people over HTTP, with a web page; or review an album", "hypersphere serve sface known.db"
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
        "train an embedder on unlabeled pictures, as a start for `fit`",
        "hypersphere pretrain photos/ -o photos.safetensors teacher=0.99",
    ),
    "report": Command(
        TRAIN,
        "write an HTML page about one run, or several side by side",
        "hypersphere report runs/a runs/b -o both.html",
    ),
    "export": Command(
        TRAIN,
        "write an embedder as an ONNX graph or as a folder for the Hugging Face hub",
        "hypersphere export run/embedder.safetensors --onnx embedder.onnx",
    ),
    "import": Command(
        TRAIN,
        "convert a network of another framework (ONNX, insightface) to an embedder",
        "hypersphere import network.onnx -o embedder.safetensors --faces --normalize faces",
        "import_model",
    ),
    "recipes": Command(
        RESEARCH, "list the experiments of Liu (2020) that `train` can run", "hypersphere recipes mhe-cifar10"
    ),
    "train": Command(
        RESEARCH,
        "train a recipe of Liu (2020), with settings changed by key.path=value; resume a run",
        "hypersphere train mhe-cifar10 --size smoke energy.s=1",
    ),
    "energy": Command(
        RESEARCH,
        "measure the hyperspherical energy of every layer of a checkpoint",
        "hypersphere energy model.safetensors --against earlier.safetensors",
    ),
}


DRAW_PROGRESS = {"fit", "pretrain", "train", "demo"}  # commands that write escape sequences of their own


class GroupedParser(argparse.ArgumentParser):
    """A parser whose help lists the commands by group."""

    def format_help(self) -> str:
        """Return the usage, the commands by group, and the options."""
        width = max(map(len, COMMANDS)) + 2
        lines = [f"usage: {self.prog} COMMAND …", "", str(self.description), ""]
        for group in (HELP, RECOGNIZE, TRAIN, RESEARCH):
            listed = [(name, command) for name, command in COMMANDS.items() if command.group == group]
            lines += [f"{group}:", *(f"  {name:<{width}}{command.summary}" for name, command in listed), ""]
        lines.append(f"`{self.prog} COMMAND --help` explains one command, `{self.prog} --version` prints the version.")
        return "\n".join(lines) + "\n"


def build_parser(names: Collection[str]) -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """Return the parser of the whole command line.

    Args:
        names: The commands whose modules are imported and whose options are added; the others have a summary only.

    Returns:
        The parser, and the modules of these commands by name.

    >>> parser, modules = build_parser(["models"])
    >>> sorted(modules), parser.parse_args(["models"]).command
    (['models'], 'models')
    """
    parser = GroupedParser(
        prog="hypersphere", description="Recognition by angles: train, measure and serve embedders on the hypersphere."
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
    """Run one subcommand. Return 0 on success, 1 after a failure (its reason is on stderr), 2 for a wrong command line.

    With ``HYPERSPHERE_DEBUG=1`` a failure prints its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    parser, modules = build_parser({next((a for a in arguments if not a.startswith("-")), "")})
    args, extra = parser.parse_known_args(arguments)
    if extra and (not hasattr(args, "overrides") or any(word.startswith("-") for word in extra)):
        parser.error(f"unrecognized arguments: {' '.join(extra)}{_hint_settings(arguments, extra, args)}")
    if extra:  # key=value after an option, which argparse does not add to those before it
        args.overrides = [*args.overrides, *extra]
    try:
        with contextlib.nullcontext() if args.command in DRAW_PROGRESS else escaped_output(), log_messages(args):
            status = int(modules[args.command].run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        return 128 + PIPE
    except (MemoryError, RuntimeError) as error:
        from ..files import is_out_of_memory

        if os.environ.get("HYPERSPHERE_DEBUG") or not is_out_of_memory(error):
            raise
        print(f"hypersphere {args.command}: not enough memory: {_first_line(error)}", file=sys.stderr)
        return 1
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("HYPERSPHERE_DEBUG"):
            raise
        lost = isinstance(error, ConnectionError)  # perhaps the lost process is the first, which then prints nothing
        if lost or os.environ.get("RANK", "0") == "0":  # many processes fail for one reason: print it once
            print(f"hypersphere {args.command}: {escape_controls(_describe(error))}", file=sys.stderr)
        return 1


def _hint_settings(arguments: Sequence[str], unknown: Sequence[str], args: argparse.Namespace) -> str:
    """Return how to write a setting that was written like an option.

    >>> _hint_settings(["fit", "people", "--steps", "100"], ["--steps"], argparse.Namespace(overrides=["100"]))
    '; settings are written KEY=VALUE, such as steps=100'
    """
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None or not hasattr(args, "overrides"):
        return ""
    key, equals, value = option.lstrip("-").replace("-", "_").partition("=")
    after = [*arguments[list(arguments).index(option) + 1 :], "…"][0]
    return f"; settings are written KEY=VALUE, such as {key}={value if equals else after}"


def _describe(error: BaseException) -> str:
    """Return the message of an error; for an error of the system, the file and the reason without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def _first_line(error: BaseException) -> str:
    """Return the first line of a message, without the location in the source of PyTorch."""
    return (str(error).splitlines() or ["out of memory"])[0].rpartition("] . ")[2] or "out of memory"


if __name__ == "__main__":
    raise SystemExit(main())
