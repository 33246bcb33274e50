"""Values of ``backbone=``: a network of this library, your own callable, a model of transformers or of timm."""

import json
import os
import pathlib
from typing import Any, Literal

from torch import nn

from ..._extras import require
from ...config import Call, find_builders, import_target, suggest
from ...data import PicturePreprocessing, Preprocessing
from ...models import Descriptors, Joined, Projected, TransformersNetwork, WithDiscriminant, timm_network
from ...recognition import Embedder
from .sample_network import SampleNetwork

MODELS = ("hypersphere.models",)
DATA_ARGUMENTS = ("in_channels", "input_size", "num_classes", "in_features")  # follow from the training pictures
INTERPOLATIONS: dict[int, Literal["nearest", "bilinear", "bicubic"]] = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def find_backbone(text: str) -> Call:
    """Return the constructor call for a backbone name.

    Args:
        text: The name of a network of ``hypersphere.models``; ``package.module:callable``; a folder that holds a vision
            model of ``transformers``, or its ``config.json``; or, where timm is installed, the name of one of its models.

    Raises:
        ValueError: If it is none of these. The message contains the most similar name.

    >>> find_backbone("resnet20").name
    'resnet20'
    """
    builders = find_builders(SampleNetwork, MODELS)
    if text in builders:
        return Call(builders[text])
    path = pathlib.Path(text)
    config = path / "config.json" if path.is_dir() else path
    if config.suffix == ".json" or path.is_dir():
        return Call(TransformersNetwork, {"config": json.dumps(_read_model_config(config))})
    if ":" in text:
        return Call(import_target(text, "backbone"))
    names = [name for name in builders if "." not in name]
    try:
        timm = require("timm")
    except ImportError:
        timm = None
    if timm is not None and timm.is_model(text):
        return Call(timm_network, {"name": text})
    missing = "" if timm is not None else " (timm, whose model names are accepted too, is not installed)"
    raise ValueError(
        f"backbone must be one of {', '.join(names)}, package.module:callable, or the folder of a model of transformers, "
        f"got {text!r}{suggest(text, names)}{missing}"
    )


def read_processor(folder: str) -> PicturePreprocessing | None:
    """Return the image preprocessing of a folder of transformers, or None if it has no processor file.

    The fields of ``preprocessor_config.json`` that are read are size, crop_size, do_center_crop, resample, image_mean,
    image_std and do_normalize.
    """
    path = pathlib.Path(folder)
    file = (path if path.is_dir() else path.parent) / "preprocessor_config.json"
    if not file.is_file():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        crop_size = _parse_size(config.get("crop_size")) if config.get("do_center_crop") else None
        size = crop_size or _parse_size(config.get("size"))
        if size is None:
            return None
        covers = "shortest_edge" in (config.get("size") or {}) or config.get("do_center_crop")
        normalizes = config.get("do_normalize", True)
        return PicturePreprocessing(
            size=size,
            channels=3,
            resize="cover" if covers else "stretch",
            interpolation=INTERPOLATIONS.get(config.get("resample", 2), "bilinear"),
            mean=tuple(config["image_mean"]) if normalizes else 0.0,
            std=tuple(config["image_std"]) if normalizes else 1.0,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} does not say how images are prepared: {error}") from error


def read_trained_backbone(weights: str | os.PathLike[str]) -> tuple[Call, Preprocessing] | None:
    """Return the backbone and the preprocessing of the embedder that ``weights=`` names, so that its weights fit.

    Args:
        weights: The folder of a run, or an embedder file.

    Returns:
        None for anything else, and for networks outside this library, because code that a file names is not executed.
    """
    path = pathlib.Path(weights)
    try:
        embedder = Embedder.load(path / "embedder.safetensors" if path.is_dir() else path)
    except ValueError:
        return None
    assert embedder.call is not None
    backbone = embedder.call
    while backbone.target in (Joined, Projected, WithDiscriminant):
        backbone = backbone.get("networks")[0] if backbone.target is Joined else backbone.get("network")
    if backbone.target is Descriptors:  # it has no parameters that are trained in steps
        return None
    arguments = {name: value for name, value in backbone.arguments.items() if name not in DATA_ARGUMENTS}
    return Call(backbone.target, arguments), embedder.preprocessing


def has_folder_weights(folder: str) -> bool:
    """Return whether a folder of ``transformers`` holds the weights of its model."""
    return any((pathlib.Path(folder) / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))


def load_folder_weights(body: nn.Module, folder: str) -> None:
    """Load the weights of a folder of ``transformers`` into the network that was built from its configuration.

    Raises:
        ValueError: If the weights cannot be read.
    """
    network = next(module for module in body.modules() if isinstance(module, TransformersNetwork))
    transformers = require("transformers", "hub")
    logging = transformers.utils.logging
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # it would disturb the output of a fit
    try:
        stored = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"backbone: the weights in {folder} cannot be read: {error}") from error
    finally:
        if enabled:
            logging.enable_progress_bar()
    network.model.load_state_dict(stored.state_dict())


def _read_model_config(file: pathlib.Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"backbone: there is no file {file}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"backbone: {file} is not JSON: {error}") from error
    if not isinstance(values, dict) or "model_type" not in values:
        raise ValueError(f"backbone: {file} is not the configuration of a model of transformers: it has no model_type")
    return values


def _parse_size(size: Any) -> tuple[int, int] | None:
    """Return height and width from a size of a processor file: a number, the shortest edge, or both sides."""
    if isinstance(size, int):
        return size, size
    if not isinstance(size, dict):
        return None
    if "shortest_edge" in size:
        return int(size["shortest_edge"]), int(size["shortest_edge"])
    return int(size["height"]), int(size["width"])
