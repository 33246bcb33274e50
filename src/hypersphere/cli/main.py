"""Entry point of the ``hypersphere`` command: run the subcommand and print user errors as one line."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import __version__

PIPE = 13  # SIGPIPE; a shell reports 128 + signal for a process that the signal ended

# name → summary. Each command has a module of the same name in this package with `configure(parser)` and `run(args) -> int`;
# only the requested one is imported, so that `hypersphere --help` is fast.
COMMANDS = {
    "fit": "train an embedder on pictures sorted by identity and measure it on other identities",
    "demo": "recognize letters of alphabets that were not in the training set, in one minute",
    "train": "train a recipe of Liu (2020), with settings changed by key.path=value; resume a run",
    "models": "list pretrained models with their license and source",
    "import": "convert an ONNX network of another framework to an embedder",
    "report": "write an HTML page about one run, or several side by side",
    "recipes": "list the recipes: experiments of Liu (2020) to train",
    "data": "check your pictures; list and fetch public datasets",
    "energy": "measure the hyperspherical energy of every layer of a checkpoint",
    "evaluate": "measure an embedder on your pictures or on a list of pairs",
    "export": "write an embedder as an ONNX graph or as a folder for the Hugging Face hub",
    "embed": "write the features of pictures to a file",
    "gallery": "enroll, identify and verify people, in a file or on a PostgreSQL server",
    "serve": "recognize people over HTTP, with a web page",
}

EXAMPLES = {
    "fit": "hypersphere fit people/ -o run head=ArcFace head.m=0.3",
    "demo": "hypersphere demo -o runs/demo",
    "train": "hypersphere train mhe-cifar10 --size smoke energy.s=1",
    "models": "hypersphere models sface",
    "import": "hypersphere import network.onnx -o embedder.safetensors --faces --normalize faces",
    "report": "hypersphere report runs/a runs/b -o both.html",
    "recipes": "hypersphere recipes mhe-cifar10",
    "data": "hypersphere data check people/",
    "energy": "hypersphere energy model.safetensors --against earlier.safetensors",
    "evaluate": "hypersphere evaluate run/embedder.safetensors people/ -o report/",
    "export": "hypersphere export run/embedder.safetensors --onnx embedder.onnx",
    "embed": "hypersphere embed sface photos/ -o features.safetensors",
    "gallery": "hypersphere gallery identify known.db sface party.jpg",
    "serve": "hypersphere serve sface known.db",
}

MODULES = {"import": "import_model"}  # commands whose name is a Python keyword


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. Return 0 on success, 1 after a failure (its reason is on stderr), 2 for a wrong command line.

    With ``HYPERSPHERE_DEBUG=1`` a failure prints its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    parser = argparse.ArgumentParser(
        prog="hypersphere", description="Recognition by angles: train, measure and serve embedders on the hypersphere."
    )
    parser.add_argument("--version", action="version", version=f"hypersphere {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    modules = {}
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary, epilog=f"example: {EXAMPLES[name]}")
        if name == chosen:
            module = MODULES.get(name, name)
            modules[name] = importlib.import_module(f".{module}", __package__)
            modules[name].configure(subparser)
    args, extra = parser.parse_known_args(arguments)
    if extra and (not hasattr(args, "overrides") or any(word.startswith("-") for word in extra)):
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    if extra:  # key=value after an option, which argparse does not add to those before it
        args.overrides = [*args.overrides, *extra]
    try:
        status = int(modules[args.command].run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        return 128 + PIPE
    except (MemoryError, RuntimeError) as error:
        from ..training.errors import is_out_of_memory

        if os.environ.get("HYPERSPHERE_DEBUG") or not is_out_of_memory(error):
            raise
        print(f"hypersphere {args.command}: not enough memory: {_first_line(error)}", file=sys.stderr)
        return 1
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("HYPERSPHERE_DEBUG"):
            raise
        lost = isinstance(error, ConnectionError)  # perhaps the lost process is the first, which then prints nothing
        if lost or os.environ.get("RANK", "0") == "0":  # many processes fail for one reason: print it once
            print(f"hypersphere {args.command}: {_describe(error)}", file=sys.stderr)
        return 1


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
