"""Help texts and options of the commands that open a gallery."""

import argparse

from ..recognition.stores.protection import KEY_VARIABLE

GALLERY_HELP = "gallery file, or postgresql://user@host/database#name"


def add_key_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--key-file``."""
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help=f"file with the key that encrypts the gallery (default: the key in the variable {KEY_VARIABLE})",
    )


def check_key_option(args: argparse.Namespace) -> None:
    """Raise a ``ValueError`` if ``--key-file`` is given to a command that opens no gallery."""
    if args.key_file is not None and not args.gallery:
        raise ValueError("--key-file needs a gallery, and no gallery is given")
