"""The options of commands that load an embedder."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..recognition import Embedder

EMBEDDER_HELP = "embedder file, run folder, hub folder or id, or a name from `hypersphere models`"


def add_embedder_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust`` and ``--accept-license`` to a command that loads an embedder.

    >>> parser = argparse.ArgumentParser()
    >>> add_embedder_options(parser)
    >>> parser.parse_args(["--trust"])
    Namespace(trust=True, accept_licence=None)
    """
    parser.add_argument(
        "--trust", action="store_true", help="allow the embedder to import and run your own Python code"
    )
    add_license_option(parser)


def add_license_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--accept-license NAME`` (also ``--accept-licence``) to a command that downloads pretrained models.

    >>> parser = argparse.ArgumentParser()
    >>> add_license_option(parser)
    >>> parser.parse_args(["--accept-license", "w600k-mbf"]).accept_licence
    'w600k-mbf'
    """
    parser.add_argument(
        "--accept-license",
        "--accept-licence",
        dest="accept_licence",
        metavar="NAME",
        help="accept the non-permissive license of the pretrained model NAME",
    )


def load_embedder(args: argparse.Namespace, name: str, device: Any = None) -> "Embedder":
    """Load an embedder with the options of :func:`add_embedder_options`."""
    from ..recognition import load

    return load(name, trust=args.trust, accept_licence=args.accept_licence, device=device)
