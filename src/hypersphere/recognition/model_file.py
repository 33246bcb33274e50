"""Trained models as one safetensors file: tensors, the constructor that takes them, and how images are prepared. No pickle."""

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..evaluation.features import mirrored
from ..evaluation.modes import evaluating

FORMAT = "hypersphere-model/1"
# Layers that arguments may name, since a file cannot hold a class.
NAMED: dict[str, dict[str, type[nn.Module]]] = {
    "norm": {"batch": nn.BatchNorm2d},
    "activation": {"relu": nn.ReLU, "prelu": nn.PReLU},
}


@dataclass(frozen=True)
class Preprocessing:
    """How an image file becomes the input of a network: resized, scaled to [0, 1], (x − mean)/std.

    The defaults are the text's for faces (2.3): 112×96, (pixel − 127.5)/128. ``mean`` and ``std`` are one number, or one a
    channel. ``mirror`` appends the features of the mirror image.
    """

    size: tuple[int, int] = (112, 96)
    channels: int = 3
    mean: float | tuple[float, ...] = 127.5 / 255
    std: float | tuple[float, ...] = 128 / 255
    mirror: bool = False

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise ValueError(f"size must be (height, width), both ≥ 1, got {self.size!r}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {self.channels!r}")
        for name in ("mean", "std"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.channels:
                raise ValueError(f"{name} must be one number or {self.channels}, one a channel, got {value!r}")
        if not min(self.std if isinstance(self.std, tuple) else (self.std,)) > 0:
            raise ValueError(f"std must be a number > 0, got {self.std!r}")

    def __call__(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(x − mean)/std."""
        mean, std = (images.new_tensor(value).reshape(-1, 1, 1) for value in (self.mean, self.std))
        return (images - mean) / std


@dataclass(frozen=True)
class EmbeddingModel:
    """A network with its preprocessing: images in [0, 1] in, features out."""

    network: nn.Module
    preprocessing: Preprocessing

    @property
    def fingerprint(self) -> str:
        """Of the network's tensors."""
        return fingerprint(self.network)

    @torch.no_grad()
    def __call__(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """Features in evaluation mode, by the network's ``features`` method where it has one; its own mode is left as it was."""
        x = self.preprocessing(images)
        network = getattr(self.network, "features", self.network)
        with evaluating(self.network):
            features = mirrored(network, x) if self.preprocessing.mirror else network(x)
        if features.ndim != 2 or not features.is_floating_point():
            raise ValueError(
                f"the model must give features of shape (n, d), got {features.dtype} {tuple(features.shape)}"
            )
        return features


def build_network(constructor: str, arguments: Mapping[str, Any]) -> Any:
    """``hypersphere.models.<constructor>(**arguments)``, with layers by their names."""
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    layers = {key: NAMED[key][value] for key, value in plain.items() if key in NAMED and value in NAMED[key]}
    return _constructor(constructor)(**{**plain, **layers})


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of a model's tensors: names, dtypes, shapes and bytes. Two models agree when all of these do.

    >>> fingerprint(torch.nn.Linear(2, 2)) == fingerprint(torch.nn.Linear(2, 2))
    False
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):
            digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_model(
    model: nn.Module,
    path: str | Path,
    *,
    constructor: str,
    arguments: Mapping[str, Any] | None = None,
    preprocessing: Preprocessing | Mapping[str, Any] | None = None,
) -> None:
    """Write a model that ``hypersphere.models.<constructor>(**arguments)`` builds; arguments are what JSON can hold.

    ``norm="batch"`` and ``activation="relu"`` or ``"prelu"`` name layers.
    """
    _constructor(constructor)
    prepared = preprocessing if isinstance(preprocessing, Preprocessing) else _preprocessing(dict(preprocessing or {}))
    try:
        written = json.dumps(dict(arguments or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"arguments must be what JSON can hold: {error}") from error
    metadata = {
        "format": FORMAT,
        "constructor": constructor,
        "arguments": written,
        "preprocessing": json.dumps(asdict(prepared)),
    }
    # Cloned: tied tensors share memory, which the format cannot express.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    safetensors.torch.save_file(tensors, path, metadata)


def load_model(path: str | Path) -> EmbeddingModel:
    """Read what :func:`save_model` wrote. Nothing in the file is executed: it can name one function of ``hypersphere.models``."""
    metadata, tensors = read_safetensors(path)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model file of format {FORMAT}, got {metadata.get('format')!r}")
    try:
        arguments, prepared = json.loads(metadata["arguments"]), json.loads(metadata["preprocessing"])
        network = build_network(metadata["constructor"], arguments)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not say how its model is built: {error!r}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{metadata['constructor']} must build a module, got {type(network).__name__}")
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"the tensors of {path} do not fit its model: {error}") from error
    return EmbeddingModel(network.eval(), _preprocessing(prepared))


def read_safetensors(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a file; a file that is none is a ``ValueError``."""
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error


def _constructor(name: str) -> Any:
    models = importlib.import_module("hypersphere.models")
    if name not in models.__all__ or not callable(getattr(models, name, None)):
        raise ValueError(f"constructor must be one of hypersphere.models ({', '.join(models.__all__)}), got {name!r}")
    return getattr(models, name)


def _preprocessing(values: dict[str, Any]) -> Preprocessing:
    unknown = values.keys() - Preprocessing.__dataclass_fields__.keys()
    if unknown:
        raise ValueError(
            f"preprocessing knows {', '.join(Preprocessing.__dataclass_fields__)}, got {', '.join(sorted(unknown))}"
        )
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Preprocessing(**plain)
