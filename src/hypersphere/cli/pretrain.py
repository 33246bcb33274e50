"""``hypersphere pretrain SOURCE -o FILE_OR_RUN key=value …``: train an embedder on pictures without labels."""

import argparse
import contextlib

from .._extras import require
from .settings_file import add_settings_option, read_overrides
from .source_options import add_source_options, read_source_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the source, the output and the settings."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="pictures: a folder, a table, tar shards or an .npz array; labels are not used",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings to change, such as teacher=0.99; --keys lists them"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE_OR_RUN",
        help="output folder, or a .safetensors file for the embedder (default: runs/SOURCE-pretrained)",
    )
    add_settings_option(parser)
    parser.add_argument("--fresh", action="store_true", help="delete the run in the output folder and start again")
    add_source_options(parser, "split")
    parser.add_argument("--keys", action="store_true", help="list every setting and the values it accepts, then exit")


def run(args: argparse.Namespace) -> int:
    """Pretrain to the end. Return 130 after an interruption; the same command resumes the run."""
    from ..training import PretrainSettings, pretrain
    from .train import is_main_process, list_keys, show_progress

    if args.keys:
        print("\n".join(list_keys(PretrainSettings())))
        return 0
    if args.source is None:
        raise ValueError("SOURCE is missing: give a folder of pictures, a table, tar shards or an .npz")
    console = require("rich.console").Console(
        quiet=args.quiet or not is_main_process(), soft_wrap=True, highlight=False, markup=False
    )
    try:
        with contextlib.ExitStack() as stack:
            file = pretrain(
                args.source,
                args.output,
                settings=[
                    *read_overrides(args),
                    *(f"{name}={value}" for name, value in read_source_options(args).items()),
                ],
                fresh=args.fresh,
                progress=lambda trainer: stack.enter_context(show_progress(trainer)),
                say=console.print,
            )
    except KeyboardInterrupt as stop:
        console.print(
            f"\n{str(stop) or 'stopped; all saved checkpoints are kept'}; type the same command again to resume"
        )
        return 130
    console.quiet = not is_main_process()
    console.print(f"embedder: {file}")
    console.print(f"next, train on labeled pictures: hypersphere fit PEOPLE weights={file}")
    return 0
