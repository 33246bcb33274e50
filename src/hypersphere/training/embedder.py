"""What is kept of training where features are all that counts: a file that ``hypersphere embed`` and galleries take."""

import pathlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..data import Normalize
from ..recognition.model_file import Preprocessing, build_network, save_model
from .config import Config


def save_embedder(
    config: Config,
    weights: Mapping[str, Tensor],
    shape: tuple[int, ...],
    normalize: Normalize | None,
    path: str | pathlib.Path,
) -> bool:
    """Write the network up to its features, with how images are prepared; False where such a file cannot say it.

    It can for images of the library's convolutional networks with plain layers, and normalizations by channel.
    """
    if len(shape) != 3 or normalize is None or normalize.mean.numel() not in (1, shape[0]) or not _plain(config):
        return False
    arguments: dict[str, Any] = {
        "num_classes": None,
        "width": config.model.width,
        "in_channels": shape[0],
        "input_size": list(shape[1:]),
    }
    arguments |= {
        key: getattr(config.model, key) for key in ("table", "feature_dim") if getattr(config.model, key) is not None
    }
    for key in ("norm", "activation"):
        chosen = getattr(config.model, key)
        if chosen != "default":
            arguments[key] = None if chosen == "none" else chosen
    network: nn.Module = build_network(config.model.name, arguments)
    network.load_state_dict({name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")})
    mean, std = (_values(value, shape[0]) for value in (normalize.mean, normalize.scale))
    prepared = Preprocessing((shape[1], shape[2]), shape[0], mean, std, mirror=config.task == "faces")
    save_model(network, path, constructor=config.model.name, arguments=arguments, preprocessing=prepared)
    return True


def _plain(config: Config) -> bool:
    return (
        config.task != "gan"
        and config.model.operator.magnitude == "none"
        and config.model.name not in ("mlp", "gcn", "pointnet")
    )


def _values(value: Tensor, channels: int) -> tuple[float, ...]:
    """Of pixels from 0 to 1, one number a channel."""
    return tuple((value.flatten().expand(channels) / 255).tolist())
