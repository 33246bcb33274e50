"""``hypersphere import MODEL.onnx -o embedder.safetensors``: a network of another framework as an embedder."""

import argparse
from pathlib import Path

from ..config import Call
from ..data import FacePreprocessing, PicturePreprocessing, Preprocessing
from ..models import GraphNetwork, import_onnx, read_input_shape
from ..recognition import Embedder

# How pixels in [0, 1] are normalized: mean and standard deviation.
NORMALIZATIONS: dict[str, tuple[float | tuple[float, ...], float | tuple[float, ...]]] = {
    "raw": (0.0, 1 / 255),
    "unit": (0.0, 1.0),
    "faces": (127.5 / 255, 128 / 255),
    "symmetric": (0.5, 0.5),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the model, the output file and the preprocessing."""
    parser.add_argument("model", type=Path, help="ONNX file")
    parser.add_argument("-o", "--output", type=Path, required=True, help="embedder file to write (.safetensors)")
    parser.add_argument("--faces", action="store_true", help="find and align faces in photographs before embedding")
    parser.add_argument(
        "--normalize",
        choices=NORMALIZATIONS,
        default="raw",
        help="expected pixel values: raw 0 … 255, unit 0 … 1, faces (x-127.5)/128, symmetric -1 … 1, imagenet (%(default)s)",
    )
    parser.add_argument(
        "--size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="input size, if the file does not contain it"
    )


def run(args: argparse.Namespace) -> int:
    """Import the network, compare it with onnxruntime, write the embedder and print what it is."""
    if args.output.suffix != ".safetensors" or not args.output.absolute().parent.is_dir():
        raise ValueError(f"--output must be a file .safetensors in an existing folder, got {args.output}")
    shape = read_input_shape(args.model)
    if len(shape) != 3:
        raise ValueError(
            f"{args.model} takes an input of shape {shape}; only networks of pictures (channels, h, w) are imported"
        )
    size = tuple(args.size) if args.size else shape[1:]
    if 0 in size:
        raise ValueError(f"{args.model} does not say the size of its input; give it with --size HEIGHT WIDTH")
    network = import_onnx(args.model)
    mean, std = NORMALIZATIONS[args.normalize]
    preprocessing: Preprocessing
    if args.faces:
        if not isinstance(mean, float) or not isinstance(std, float):
            raise ValueError("--faces takes one mean for all channels; choose another --normalize")
        preprocessing = FacePreprocessing(size=(size[0], size[1]), mean=mean, std=std)
    else:
        preprocessing = PicturePreprocessing(size=(size[0], size[1]), channels=shape[0] or 3, mean=mean, std=std)
    embedder = Embedder(
        network, preprocessing, Call(GraphNetwork, {"graph": network.graph}), {"imported": args.model.name}
    )
    embedder.save(args.output)
    count = sum(parameter.numel() for parameter in network.parameters())
    print(f"{args.output}: {count:,} parameters, input {shape}, fingerprint {embedder.fingerprint[:12]}")
    return 0
