"""``hypersphere completion SHELL``: print a completion script."""

import argparse

from .._extras import require

SHELLS = ("bash", "zsh")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.add_argument("shell", choices=SHELLS, help="shell to print the script for")


def run(args: argparse.Namespace) -> int:
    """Print the script, which completes all commands and their options."""
    from .main import COMMANDS, build_parser

    parser, _ = build_parser(COMMANDS)
    print(require("shtab", "completion").complete(parser, shell=args.shell))
    return 0
