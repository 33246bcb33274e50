"""Networks of other libraries as feature extractors: vision models of transformers, models of timm; and a projection."""

import json
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from .._extras import require


class Projected(nn.Module):
    """A linear map with batch normalization behind another network's features.

    Args:
        network: gives features (batch, ``in_features``), by its method ``features`` or its output; maps are averaged.
        in_features: the dimension of its features.
        feature_dim: the dimension behind the projection.

    >>> net = Projected(torch.nn.Conv2d(3, 12, 3), 12, 4)
    >>> net(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, network: nn.Module, in_features: int, feature_dim: int = 128):
        super().__init__()
        self.network = network
        self.projection = nn.Linear(in_features, feature_dim, bias=False)
        self.norm = nn.BatchNorm1d(feature_dim)
        self.feature_dim = feature_dim

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """The projected features."""
        method = getattr(self.network, "features", None)
        out: Tensor = method(x) if callable(method) and not isinstance(method, nn.Module) else self.network(x)
        return self.norm(self.projection(out.flatten(2).mean(2) if out.ndim > 2 else out))


class TransformersNetwork(nn.Module):
    """A vision model of ``transformers``, with random weights, from its configuration as JSON text.

    The model is without its classifier. Its features are what its own pooler gives; without one the mean over tokens or
    over positions. No code outside the installed library runs.

    >>> config = '{"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,'
    >>> config += ' "intermediate_size": 16, "image_size": 8, "patch_size": 4}'
    >>> TransformersNetwork(config)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, config: str):
        super().__init__()
        transformers = require("transformers", "hub")
        try:
            values = json.loads(config)
            made = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
            self.model: Any = transformers.AutoModel.from_config(made)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"config must be the JSON of a vision model of transformers: {error}") from error

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """The pooled features."""
        out = self.model(pixel_values=x)
        pooled = getattr(out, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        hidden: Tensor = out.last_hidden_state
        return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)


def timm_network(name: str, in_channels: int = 3) -> nn.Module:
    """Return the model of ``timm`` with this name, without its classifier and with random weights.

    Raises:
        ValueError: if timm has no model of this name.

    >>> net = timm_network("resnet18")  # doctest: +SKIP
    """
    timm = require("timm")
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, in_chans=in_channels)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"timm has no model {name!r}: {error}") from error
