"""The face network of dlib, a residual network without padding in its strided layers, and the reader of its file."""

import math
import pathlib
import re

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# Filters, number of blocks, and whether the first block halves height and width.
STAGES = ((32, 3, False), (64, 4, True), (128, 3, True), (256, 3, True), (256, 1, True))
MEAN = (122.782, 117.001, 104.298)  # mean pixel of the channels R, G and B, which dlib's network subtracts
TENSOR_VERSION = 2  # version of dlib's format of tensors
MAX_TENSOR_VALUES = 1 << 24  # a larger tensor means that the file is damaged
# Names of layers with a tensor, each preceded by a byte with its length.
LAYERS_WITH_TENSORS = re.compile(rb"\x05con_[45]|\x07affine_|\x04fc_[12]")


class DlibResNet(nn.Module):
    """The residual network with 29 convolutions that dlib publishes for faces of 150×150 pixels.

    Convolutions and poolings with stride 2 have no padding. If the two paths of a block differ in size or number of channels,
    the missing values are zero.

    >>> DlibResNet()(torch.rand(2, 3, 150, 150)).shape
    torch.Size([2, 128])
    """

    feature_dim = 128

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, stride=2)
        self.stem_scale = ChannelAffine(32)
        blocks, width = [], 32
        for filters, count, halves in STAGES:
            for i in range(count):
                blocks.append(DlibBlock(width, filters, halves and i == 0))
                width = filters
        self.blocks = nn.Sequential(*blocks)
        self.embedding = nn.Linear(width, self.feature_dim, bias=False)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 128"]:
        """Return features of RGB pixels in 0 … 255."""
        x = (x - x.new_tensor(MEAN)[:, None, None]) / 256
        x = F.max_pool2d(torch.relu(self.stem_scale(self.stem(x))), 3, stride=2)
        result: Tensor = self.embedding(self.blocks(x).mean((2, 3)))
        return result


class DlibBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut: the identity, or 2×2 average pooling if the block halves height and width.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        halves: Whether the first convolution has stride 2.

    >>> DlibBlock(32, 64, halves=True)(torch.rand(1, 32, 35, 35)).shape
    torch.Size([1, 64, 17, 17])
    """

    def __init__(self, in_channels: int, out_channels: int, halves: bool):
        super().__init__()
        self.halves = halves
        stride, padding = (2, 0) if halves else (1, 1)
        self.first = nn.Conv2d(in_channels, out_channels, 3, stride, padding)
        self.first_scale = ChannelAffine(out_channels)
        self.second = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.second_scale = ChannelAffine(out_channels)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Return the rectified sum of both paths."""
        y = self.second_scale(self.second(torch.relu(self.first_scale(self.first(x)))))
        skipped = F.avg_pool2d(x, 2) if self.halves else x
        shape = [max(a, b) for a, b in zip(y.shape[1:], skipped.shape[1:], strict=True)]
        return torch.relu(_pad_to(y, shape) + _pad_to(skipped, shape))


class ChannelAffine(nn.Module):
    """A factor and an offset per channel: batch normalization with fixed statistics.

    Args:
        channels: Number of channels.

    >>> ChannelAffine(3)(torch.ones(1, 3, 2, 2)).sum().item()
    12.0
    """

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Return w_c x + b_c."""
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def read_dlib_resnet(path: pathlib.Path) -> DlibResNet:
    """Read the network from a file that dlib wrote.

    The file contains the layers in the order of computation, each with a name, a tensor and settings. The settings are those
    of :class:`DlibResNet`, so only names and tensors are read. Nothing in the file is executed.

    Args:
        path: The file, ``dlib_face_recognition_resnet_model_v1.dat``.

    Raises:
        ValueError: If the layers are not those of this network.
    """
    content, network = path.read_bytes(), DlibResNet()
    position = 0
    layers: list[nn.Module] = [network.stem, network.stem_scale]
    for block in network.blocks:
        assert isinstance(block, DlibBlock)
        layers += [block.first, block.first_scale, block.second, block.second_scale]
    with torch.no_grad():
        for layer in (*layers, network.embedding):
            parameters = list(layer.parameters())
            values, position = _read_next_tensor(content, position, path)
            if len(values) != sum(parameter.numel() for parameter in parameters):
                raise ValueError(f"{path} does not contain dlib's face network: a tensor has {len(values)} values")
            for parameter, part in zip(parameters, values.split([p.numel() for p in parameters]), strict=True):
                if layer is network.embedding:  # dlib stores the transposed matrix
                    parameter.copy_(part.view(parameter.shape[1], -1).T)
                else:
                    parameter.copy_(part.view(parameter.shape))
    return network.eval()


def _pad_to(x: Float[Tensor, "b c h w"], shape: list[int]) -> Float[Tensor, "b d i j"]:
    """Append zeros to feature maps, up to a shape (channels, rows, columns)."""
    channels, rows, columns = (target - size for target, size in zip(shape, x.shape[1:], strict=True))
    return F.pad(x, (0, columns, 0, rows, 0, channels))


def _read_next_tensor(content: bytes, position: int, path: pathlib.Path) -> tuple[Float[Tensor, "n"], int]:
    """Return the tensor of the next layer that has one, and the position after it."""
    layer = LAYERS_WITH_TENSORS.search(content, position)
    if layer is None:
        raise ValueError(f"{path} does not contain dlib's face network: layers are missing after byte {position}")
    position = layer.end()
    numbers = []
    for _ in range(7 if b"fc_" in layer.group() else 5):  # a linear layer stores its two widths before the tensor
        number, position = _read_integer(content, position, path)
        numbers.append(number)
    version, *sizes = numbers[-5:]
    count = math.prod(sizes)
    if version != TENSOR_VERSION or not 0 < count <= MAX_TENSOR_VALUES or position + 4 * count > len(content):
        raise ValueError(f"{path} is damaged at byte {position}")
    values = torch.frombuffer(bytearray(content[position : position + 4 * count]), dtype=torch.float32)
    return values, position + 4 * count


def _read_integer(content: bytes, position: int, path: pathlib.Path) -> tuple[int, int]:
    """Return an integer and the position after it.

    The first byte contains the sign and the number of bytes that follow. They are in little-endian order.
    """
    size = content[position] & 0x0F if position < len(content) else 0
    if not 1 <= size <= 8 or position + 1 + size > len(content):
        raise ValueError(f"{path} is damaged at byte {position}")
    value = int.from_bytes(content[position + 1 : position + 1 + size], "little")
    return -value if content[position] & 0x80 else value, position + 1 + size
