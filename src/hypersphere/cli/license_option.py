"""The option ``--accept-license`` for pretrained models with a non-permissive license."""

import argparse


def add_license_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--accept-license NAME`` (also ``--accept-licence``) to a command that loads pretrained models.

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
        help="accept the non-permissive license of this pretrained model",
    )
