"""Networks of other libraries as feature extractors (transformers, timm), and linear maps of the features of any network."""

import json
import re
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from .._extras import require
from ..geometry import normalize
from .network import read_features

# Vision architectures without code from the hub, and configuration keys that only set sizes and constants of the network.
TRANSFORMERS_ARCHITECTURES = frozenset(
    """
    beit bit convnext convnextv2 deit dinov2 dinov3_vit efficientnet focalnet hiera levit mobilenet_v1
    mobilenet_v2 mobilevit mobilevitv2 poolformer pvt pvt_v2 regnet resnet segformer siglip_vision_model
    swiftformer swin swinv2 van vit vit_mae vit_msn
    """.split()  # noqa: SIM905
)
TRANSFORMERS_KEYS = frozenset(
    """
    apply_layernorm attention_bias attention_dropout attention_probs_dropout_prob batch_norm_eps
    classifier_dropout_prob conv_kernel_size decoder_hidden_size decoder_intermediate_size
    decoder_num_attention_heads decoder_num_hidden_layers depth_coefficient depth_multiplier depths
    downsample_in_bottleneck downsample_in_first_stage drop_path_rate dropout embed_dim embedding_size
    encoder_stride expand_ratio global_padding groups_width hidden_act hidden_dropout_prob hidden_size
    hidden_sizes image_size initializer_range intermediate_size layer_norm_eps layer_scale_init_value layer_type
    layerscale_value mask_ratio min_depth mlp_bias mlp_dim mlp_ratio mlp_ratios neck_hidden_sizes norm_eps
    norm_pix_loss num_attention_heads num_blocks num_channels num_encoder_blocks num_groups num_heads
    num_hidden_layers num_register_tokens num_stages output_stride patch_size patch_sizes pooler_act
    pooler_output_size pretrained_window_sizes qkv_bias reshape_hidden_states rope_theta sr_ratios strides
    use_absolute_embeddings use_absolute_position_embeddings use_layer_scale use_mask_token use_mean_pooling
    use_relative_position_bias use_shared_relative_position_bias use_swiglu_ffn value_bias width_coefficient
    width_factor window_size
    """.split()  # noqa: SIM905
)
# Other keys that `to_json_string` writes. They do not change the features and are ignored.
TRANSFORMERS_NOTES = frozenset(
    """
    _name_or_path architectures chunk_size_feed_forward dtype id2label is_encoder_decoder label2id
    output_attentions output_hidden_states problem_type return_dict torch_dtype transformers_version
    """.split()  # noqa: SIM905
)


def _check_transformers_config(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the architecture and the accepted keys of a configuration. Raise a ``ValueError`` for any other key."""
    if not isinstance(values, dict) or values.get("model_type") not in TRANSFORMERS_ARCHITECTURES:
        known = ", ".join(sorted(TRANSFORMERS_ARCHITECTURES))
        model_type = values.get("model_type") if isinstance(values, dict) else values
        raise ValueError(f"model_type must be one of {known}, got {model_type!r}")
    unknown = sorted(set(values) - TRANSFORMERS_KEYS - TRANSFORMERS_NOTES - {"model_type"})
    if unknown:
        raise ValueError(
            f"the keys {', '.join(unknown)} are not accepted, because they can make transformers fetch or run code"
        )
    return values["model_type"], {key: value for key, value in values.items() if key in TRANSFORMERS_KEYS}


class Projected(nn.Module):
    """A trained linear map and batch normalization after the features of another network.

    Args:
        network: The network; :func:`read_features` reads its features.
        in_features: Dimension of its features.
        feature_dim: Dimension after the projection.

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
        """Return the projected features of a batch."""
        return self.norm(self.projection(read_features(self.network, x)))


class WithDiscriminant(nn.Module):
    """A linear map of the directions of another network's features, such as a discriminant fitted to training features.

    Args:
        network: The network; :func:`read_features` reads its features.
        in_features: Dimension of its features.
        feature_dim: Dimension after the map.

    >>> net = WithDiscriminant(torch.nn.Conv2d(3, 12, 3), 12, 4)
    >>> net(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, network: nn.Module, in_features: int, feature_dim: int = 128):
        super().__init__()
        self.network = network
        self.projection = nn.Linear(in_features, feature_dim)
        self.feature_dim = feature_dim

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """Return the mapped features of a batch."""
        mapped: Tensor = self.projection(normalize(read_features(self.network, x)))
        return mapped


class TransformersNetwork(nn.Module):
    """A vision model of ``transformers`` without its classifier, built with random weights from its configuration.

    Its features are the output of its own pooler, or the mean over tokens or positions if it has none. A configuration
    may come from a file that somebody else wrote. Therefore only the architectures and keys listed in this module are
    accepted: others can make ``transformers`` fetch code or weights.

    Args:
        config: The configuration as JSON text, as ``config.to_json_string()`` writes it.

    Raises:
        ValueError: If the text is not JSON, or names an architecture or a key that is not on the list.

    >>> config = '{"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,'
    >>> config += ' "intermediate_size": 16, "image_size": 8, "patch_size": 4}'
    >>> TransformersNetwork(config)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(self, config: str):
        super().__init__()
        transformers = require("transformers", "hub")
        try:
            kind, values = _check_transformers_config(json.loads(config))
            self.model: Any = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **values))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"config must be the JSON of a vision model of transformers: {error}") from error

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """Return the pooled features of a batch."""
        return read_features(self.model, x)


def timm_network(name: str, in_channels: int = 3) -> nn.Module:
    """Return the model of ``timm`` with this name, without its classifier and with random weights.

    Args:
        name: A plain model name. Names with a source, such as ``hf-hub:owner/model``, are refused because timm would download.
        in_channels: The number of input channels.

    Raises:
        ValueError: If the name is not plain, or timm has no model of this name.

    >>> net = timm_network("resnet18")  # doctest: +SKIP
    """
    if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
        raise ValueError(f"name must be the plain name of a timm model, such as resnet18, got {name!r}")
    timm = require("timm")
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, in_chans=in_channels)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"timm has no model {name!r}: {error}") from error
