"""``hypersphere serve EMBEDDER GALLERY``: recognition over HTTP, with a page at ``/``."""

import argparse
import sys
from pathlib import Path

from ..recognition import Embedder, Gallery
from ..recognition.stores.store import SERVER


def configure(parser: argparse.ArgumentParser) -> None:
    """The model, the gallery, and where to listen."""
    parser.add_argument("model", type=Path, metavar="EMBEDDER", help="embedder file that makes the features")
    parser.add_argument(
        "gallery",
        metavar="GALLERY",
        help="the gallery's file, which the first enrolment makes, or postgresql://user@host/database#name",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; others than loopback need a key")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for a free one (%(default)s)")
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="file of bearer keys, one a line; by default those in HYPERSPHERE_KEYS",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a limit: body_bytes, images, pixels, sending_seconds, answer_seconds, per_minute, burst, at_once",
    )
    parser.add_argument("--trust", action="store_true", help="import your own code that the embedder names")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from ..recognition.service import BearerKeys, Engine, Limits, serve
    from ..recognition.service.serving import log_to_stderr

    if not 0 <= args.port < 65536:
        raise ValueError(f"--port must lie in 0 … 65535, got {args.port}")
    limits, keys = Limits.from_words(args.limit), BearerKeys.read(args.keys)
    if args.gallery.startswith(SERVER) or Path(args.gallery).exists():
        Gallery(args.gallery, create=False).close()  # one that cannot be used is said at once
    engine = Engine(Embedder.load(args.model, trust=args.trust), args.gallery, limits)
    try:
        state = engine.desk.state()
        if state != "ready":
            print(f"hypersphere serve: {_NOTES[state].format(gallery=args.gallery)}", file=sys.stderr)
        log_to_stderr()
        serve(engine, args.host, args.port, keys)
    finally:
        engine.close()
    return 0


_NOTES = {
    "empty": "nobody is enrolled in {gallery} yet; /v1/search answers 409 until then",
    "not_calibrated": "{gallery} has no threshold yet; /v1/search answers 409 until `hypersphere gallery calibrate`",
    "other_model": "{gallery} holds features of another model; /v1/persons and /v1/search answer 409",
}
