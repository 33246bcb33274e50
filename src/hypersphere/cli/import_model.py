"""``hypersphere import MODEL -o embedder.safetensors``: convert a network of another framework to an embedder."""

import argparse
from pathlib import Path

from torch import nn

from ..config import Call
from ..data import FacePreprocessing, PicturePreprocessing, Preprocessing
from ..models import INSIGHTFACE_ARCHITECTURES, GraphNetwork, import_onnx, read_input_shape, read_insightface
from ..recognition import Embedder

# How pixels in [0, 1] are normalized: mean and standard deviation.
NORMALIZATIONS: dict[str, tuple[float | tuple[float, ...], float | tuple[float, ...]]] = {
    "raw": (0.0, 1 / 255),
    "unit": (0.0, 1.0),
    "faces": (127.5 / 255, 128 / 255),
    "symmetric": (0.5, 0.5),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
STATE_DICT_ENDINGS = (".pth", ".pt")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the model, the output file and the preprocessing."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="ONNX file, or state dict of insightface (.pth, .pt)")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="embedder file to write (.safetensors)"
    )
    parser.add_argument(
        "--faces",
        action="store_true",
        help="detect and align faces before embedding; always on for insightface",
    )
    parser.add_argument(
        "--normalize",
        choices=NORMALIZATIONS,
        help="pixel values that the network expects: raw = 0 to 255, unit = 0 to 1, faces = (x - 127.5) / 128, symmetric = "
        "-1 to 1, imagenet = mean and standard deviation of ImageNet (default: raw; symmetric for insightface)",
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="input size, if the ONNX file does not contain it",
    )
    parser.add_argument(
        "--architecture",
        choices=INSIGHTFACE_ARCHITECTURES,
        help="expected architecture of a state dict (default: recognized from its tensors)",
    )


def run(args: argparse.Namespace) -> int:
    """Import the network, write the embedder and print its size, input shape and fingerprint."""
    if args.output.suffix != ".safetensors" or not args.output.absolute().parent.is_dir():
        raise ValueError(f"--output must be a file .safetensors in an existing folder, got {args.output}")
    is_state_dict = args.model.suffix.lower() in STATE_DICT_ENDINGS
    network, call, size, channels = (_read_state_dict if is_state_dict else _read_onnx)(args)
    mean, std = NORMALIZATIONS[args.normalize or ("symmetric" if is_state_dict else "raw")]
    preprocessing: Preprocessing
    if args.faces or is_state_dict:
        if not isinstance(mean, float) or not isinstance(std, float):
            raise ValueError("faces take one mean for all channels; choose another --normalize")
        preprocessing = FacePreprocessing(size=size, mean=mean, std=std)
    else:
        preprocessing = PicturePreprocessing(size=size, channels=channels, mean=mean, std=std)
    embedder = Embedder(network, preprocessing, call, {"imported": args.model.name})
    embedder.save(args.output)
    count = sum(parameter.numel() for parameter in network.parameters())
    shape = (channels, *size)
    print(f"{args.output}: {count:,} parameters, input {shape}, fingerprint {embedder.fingerprint[:12]}")
    return 0


def _read_onnx(args: argparse.Namespace) -> tuple[nn.Module, Call, tuple[int, int], int]:
    """Return the network, its constructor call, the input size and the channels; compare it with onnxruntime."""
    if args.architecture is not None:
        raise ValueError("--architecture is for state dicts (.pth, .pt); an ONNX file contains its architecture")
    shape = read_input_shape(args.model)
    if len(shape) != 3:
        raise ValueError(
            f"{args.model} takes an input of shape {shape}; only networks of pictures (channels, h, w) are imported"
        )
    height, width = args.size or shape[1:]
    if 0 in (height, width):
        raise ValueError(f"{args.model} does not contain the size of its input; give it with --size HEIGHT WIDTH")
    network = import_onnx(args.model)
    return network, Call(GraphNetwork, {"graph": network.graph}), (height, width), shape[0] or 3


def _read_state_dict(args: argparse.Namespace) -> tuple[nn.Module, Call, tuple[int, int], int]:
    """Return the network of insightface, its constructor call, the input size and the channels."""
    if args.size is not None:
        raise ValueError("--size is for ONNX files; the tensors of a state dict fix the size")
    network = read_insightface(args.model, args.architecture)
    side = network.settings["input_size"]
    return network, Call(type(network), network.settings), (side, side), 3
