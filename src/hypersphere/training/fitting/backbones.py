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
DECIDED = ("in_channels", "input_size", "num_classes", "in_features")  # by the pictures that are trained on
_RESAMPLE: dict[int, Literal["nearest", "bilinear", "bicubic"]] = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def backbone_call(text: str) -> Call:
    """Return the constructor call for a backbone name.

    Args:
        text: The name of a network of ``hypersphere.models``; ``package.module:callable``; a folder that holds a vision
            model of ``transformers``, or its ``config.json``; or, where timm is installed, the name of one of its models.

    Raises:
        ValueError: if it is none of these, with the nearest name that there is.

    >>> backbone_call("resnet20").name
    'resnet20'
    """
    known = find_builders(SampleNetwork, MODELS)
    if text in known:
        return Call(known[text])
    path = pathlib.Path(text)
    config = path / "config.json" if path.is_dir() else path
    if config.suffix == ".json" or path.is_dir():
        return Call(TransformersNetwork, {"config": json.dumps(_model_config(config))})
    if ":" in text:
        return Call(import_target(text, "backbone"))
    names = [name for name in known if "." not in name]
    try:
        timm = require("timm")
    except ImportError:
        timm = None
    if timm is not None and timm.is_model(text):
        return Call(timm_network, {"name": text})
    beside = "" if timm is not None else " (timm, whose names are taken too, is not installed)"
    raise ValueError(
        f"backbone must be one of {', '.join(names)}, package.module:callable, or the folder of a model of transformers, "
        f"got {text!r}{suggest(text, names)}{beside}"
    )


def processor_of(folder: str) -> PicturePreprocessing | None:
    """Return the image preprocessing of a folder of transformers, or None if it has no processor file.

    The fields of ``preprocessor_config.json`` that are read are size, crop_size, do_resize, do_center_crop, resample,
    image_mean, image_std, do_normalize and do_rescale.
    """
    path = pathlib.Path(folder)
    file = (path if path.is_dir() else path.parent) / "preprocessor_config.json"
    if not file.is_file():
        return None
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
        size = _size(given.get("crop_size")) if given.get("do_center_crop") else None
        size = size or _size(given.get("size"))
        if size is None:
            return None
        wanted: dict[str, Any] = {"size": size, "channels": 3}
        wanted["resize"] = (
            "cover" if "shortest_edge" in (given.get("size") or {}) or given.get("do_center_crop") else "stretch"
        )
        wanted["interpolation"] = _RESAMPLE.get(given.get("resample", 2), "bilinear")
        if given.get("do_normalize", True):
            wanted |= {"mean": tuple(given["image_mean"]), "std": tuple(given["image_std"])}
        else:
            wanted |= {"mean": 0.0, "std": 1.0}
        return PicturePreprocessing(**wanted)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} does not say how images are prepared: {error}") from error


def embedder_behind(weights: str | os.PathLike[str] | None) -> tuple[Call, Preprocessing] | None:
    """Return the backbone and the preprocessing of the embedder that ``weights=`` names, so that its weights fit.

    ``weights`` is the folder of a run or an embedder file. Return None for anything else, and for networks outside this library,
    because code that a file names is not executed.
    """
    if weights is None:
        return None
    path = pathlib.Path(weights)
    try:
        found = Embedder.load(path / "embedder.safetensors" if path.is_dir() else path)
    except ValueError:
        return None
    assert found.call is not None
    backbone = found.call
    while backbone.target in (Joined, Projected, WithDiscriminant):
        backbone = backbone.get("networks")[0] if backbone.target is Joined else backbone.get("network")
    if backbone.target is Descriptors:  # nothing in it is trained by steps
        return None
    kept = {name: value for name, value in backbone.arguments.items() if name not in DECIDED}
    return Call(backbone.target, kept), found.preprocessing


def weights_of(folder: str) -> str | None:
    """Return the file of weights beside a model of ``transformers``, or None if there is none."""
    path = pathlib.Path(folder)
    for name in ("model.safetensors", "pytorch_model.bin"):
        if path.is_dir() and (path / name).is_file():
            return str(path / name)
    return None


def load_folder_weights(body: nn.Module, folder: str) -> None:
    """Load the weights of a folder of ``transformers`` into the network that was built from its configuration.

    Raises:
        ValueError: If the weights cannot be read.
    """
    holder = next(module for module in body.modules() if isinstance(module, TransformersNetwork))
    transformers = require("transformers", "hub")
    bars = transformers.utils.logging
    enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # its progress bar would disturb the output of a fit
    try:
        stored = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"backbone: the weights in {folder} cannot be read: {error}") from error
    finally:
        if enabled:
            bars.enable_progress_bar()
    holder.model.load_state_dict(stored.state_dict())


def _model_config(file: pathlib.Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"backbone: there is no file {file}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"backbone: {file} is not JSON: {error}") from error
    if not isinstance(values, dict) or "model_type" not in values:
        raise ValueError(f"backbone: {file} is not the configuration of a model of transformers: it has no model_type")
    return values


def _size(given: Any) -> tuple[int, int] | None:
    if isinstance(given, int):
        return given, given
    if not isinstance(given, dict):
        return None
    if "shortest_edge" in given:
        return int(given["shortest_edge"]), int(given["shortest_edge"])
    return int(given["height"]), int(given["width"])
