"""``hypersphere serve EMBEDDER GALLERY`` or ``serve --album ALBUM``: serve recognition or an album over HTTP, with a web page."""

import argparse
import sys
from pathlib import Path

from ..recognition import Gallery
from ..recognition.stores import describe_location, is_server
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .gallery_options import GALLERY_HELP, add_key_option, check_key_option


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the model, the gallery, the address and the limits."""
    parser.add_argument("model", nargs="?", metavar="EMBEDDER", help=EMBEDDER_HELP)
    parser.add_argument(
        "gallery",
        nargs="?",
        metavar="GALLERY",
        help=f"{GALLERY_HELP}; created on the first enrollment",
    )
    add_key_option(parser)
    parser.add_argument(
        "--album",
        type=Path,
        metavar="ALBUM",
        help="serve this album of `hypersphere group` for review, instead of EMBEDDER and GALLERY",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; addresses that other machines can reach need keys (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8000,
        metavar="N",
        help="port to listen on; 0 chooses a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="file with the bearer keys of clients, one per line (default: the environment variable HYPERSPHERE_KEYS)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a limit; repeat the option for several. NAME is one of body_bytes, images, faces, pixels, "
        "recording_samples, decoding_seconds, sending_seconds, answer_seconds, per_minute, burst, at_once, connections, per_address",
    )
    add_embedder_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from ..recognition.service import AlbumAccess, BearerKeys, Limits, Recognizer, serve, serve_album
    from ..recognition.service.server import log_to_stderr

    if not 0 <= args.port < 65536:
        raise ValueError(f"--port must be between 0 and 65535, got {args.port}")
    if (args.album is None) != (args.gallery is not None) or (args.album is not None and args.model is not None):
        raise ValueError("serve needs an EMBEDDER and a GALLERY, or --album ALBUM alone")
    check_key_option(args)
    limits, keys = Limits.from_words(args.limit), BearerKeys.read(args.keys)
    if args.album is not None:
        access = AlbumAccess(args.album, limits)
        try:
            log_to_stderr()
            serve_album(access, args.host, args.port, keys)
        finally:
            access.close()
        return 0
    if is_server(args.gallery) or Path(args.gallery).exists():
        Gallery(args.gallery, create=False, key=args.key_file).close()  # fail before loading the model
    recognizer = Recognizer(load_embedder(args, args.model), args.gallery, limits, key=args.key_file)
    try:
        state = recognizer.gallery.state()
        if state != "ready":
            print(
                f"hypersphere serve: {_STATE_NOTES[state].format(gallery=describe_location(args.gallery))}",
                file=sys.stderr,
            )
        log_to_stderr()
        serve(recognizer, args.host, args.port, keys)
    finally:
        recognizer.close()
    return 0


_STATE_NOTES = {
    "empty": "nobody is enrolled in {gallery} yet; /v1/search returns error 409 until then",
    "not_calibrated": "{gallery} has no threshold yet; /v1/search returns error 409 until `hypersphere gallery calibrate` sets one",
    "other_model": "{gallery} holds features of another model; /v1/persons and /v1/search return error 409",
}
