"""EfficientNet-Lite0: a small ImageNet backbone without squeeze-and-excitation (Tan and Le, 2019; Lite variant, 2020)."""

import re
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# Kernel, number of blocks, input and output channels, expansion, stride of the first block.
STAGES = (
    (3, 1, 32, 16, 1, 1),
    (3, 2, 16, 24, 6, 2),
    (5, 2, 24, 40, 6, 2),
    (3, 3, 40, 80, 6, 2),
    (5, 3, 80, 112, 6, 1),
    (5, 4, 112, 192, 6, 2),
    (3, 1, 192, 320, 6, 1),
)
EPS, MOMENTUM = 1e-3, 0.01
FEATURE_DIM = 1280


class SameConv2d(nn.Conv2d):
    """A convolution with the padding ``same`` of TensorFlow: the output side is ⌈side / stride⌉; odd padding is larger at the end."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Return the convolution of the padded input."""
        sides: list[int] = []
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(x, sides) if any(sides) else x)


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; with a shortcut if the shape does not change."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, expansion: int, stride: int):
        super().__init__()
        wide = in_channels * expansion
        self.expand = _block(in_channels, wide, 1) if expansion > 1 else nn.Identity()
        self.filter = _block(wide, wide, kernel, stride, groups=wide)
        self.project = nn.Sequential(
            SameConv2d(wide, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels, EPS, MOMENTUM)
        )
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, plus the input if there is a shortcut."""
        out: Tensor = self.project(self.filter(self.expand(x)))
        return out + x if self.shortcut else out


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 without its classifier: (b, 3, h, w) to (b, 1280). Pixels are (x − 127)/128.

    >>> EfficientNetLite0()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1280])
    """

    feature_dim = FEATURE_DIM

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for kernel, repeats, in_channels, out_channels, expansion, stride in STAGES:
            blocks.append(InvertedResidual(in_channels, out_channels, kernel, expansion, stride))
            more = range(repeats - 1)
            blocks.extend(InvertedResidual(out_channels, out_channels, kernel, expansion, 1) for _ in more)
        self.stem = _block(3, STAGES[0][2], 3, 2)
        self.blocks = nn.Sequential(*blocks)
        self.head = _block(STAGES[-1][3], FEATURE_DIM, 1)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d"]:
        """Return the features averaged over positions."""
        out: Tensor = self.head(self.blocks(self.stem(x)))
        return out.mean((2, 3))


def read_efficientnet_lite0(state: Mapping[str, Any]) -> EfficientNetLite0:
    """Return the network with the published weights.

    Args:
        state: The state dict of ``efficientnet_lite_pytorch``. The weights of its classifier are not used.

    Raises:
        ValueError: If tensors are missing or have other shapes.
    """
    network = EfficientNetLite0()
    names = {
        r"_conv_stem\.": "stem.0.",
        r"_bn0\.": "stem.1.",
        r"_conv_head\.": "head.0.",
        r"_bn1\.": "head.1.",
        r"_blocks\.(\d+)\._expand_conv\.": r"blocks.\1.expand.0.",
        r"_blocks\.(\d+)\._bn0\.": r"blocks.\1.expand.1.",
        r"_blocks\.(\d+)\._depthwise_conv\.": r"blocks.\1.filter.0.",
        r"_blocks\.(\d+)\._bn1\.": r"blocks.\1.filter.1.",
        r"_blocks\.(\d+)\._project_conv\.": r"blocks.\1.project.0.",
        r"_blocks\.(\d+)\._bn2\.": r"blocks.\1.project.1.",
    }
    renamed = {}
    for key, tensor in state.items():
        for pattern, replacement in names.items():
            new, count = re.subn(f"^{pattern}", replacement, key)
            if count:
                renamed[new] = tensor
    try:
        network.load_state_dict(renamed)
    except RuntimeError as error:
        raise ValueError(
            f"these are not the weights of EfficientNet-Lite0: {str(error).splitlines()[1].strip()}"
        ) from error
    return network


def _block(in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = SameConv2d(in_channels, out_channels, kernel, stride, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels, EPS, MOMENTUM), nn.ReLU6())
