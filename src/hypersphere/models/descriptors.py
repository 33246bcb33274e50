"""Classical descriptors of pictures, each with a linear map behind it, and networks whose features are joined."""

import math
from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..geometry import normalize
from .network import read_features
from .patches import MIN_ELONGATION, PatchResponses

CELL = 8  # pixels of the side of a cell of LBP and HOG
ORIENTATIONS = 9  # bins of HOG, over half a turn
PATTERNS = 59  # bins of LBP: 58 uniform patterns and one for all others
TIE = 1e-5  # differences up to this are rounding, so that every runtime computes the same pattern
CLIP = 0.2  # largest entry of a normalized block of HOG (Dalal and Triggs, 2005)
MIN_HALF_SIDE = 16  # pixels of the shorter side from which on descriptors of the picture at half its size are added
MIN_POWER = 1e-8  # of a spectrum before its logarithm is taken
PATCH_RESPONSES = "patch responses"  # the name of the descriptor whose filters are learned


def describe_pictures(
    pictures: Float[Tensor, "n c h w"], names: Collection[str] | None = None
) -> dict[str, Float[Tensor, "n _"]]:
    """Compute descriptors of pictures.

    The descriptors are the pixels, HOG and LBP (:func:`oriented_gradients`, :func:`local_binary_patterns`), both also at
    half the size unless the pictures are very small, and, for pictures as long as spectra, mean, deviation and covariances of
    rows.

    Args:
        pictures: Pixels, usually in [0, 1].
        names: The descriptors to compute; all by default.

    Returns:
        Descriptors by name.

    >>> {name: found.shape[1] for name, found in describe_pictures(torch.rand(2, 1, 16, 16)).items()}
    {'pixels': 256, 'HOG': 36, 'LBP': 236, 'HOG at half size': 9, 'LBP at half size': 59}
    """
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "pixels": lambda x: x.flatten(1),
        "HOG": oriented_gradients,
        "LBP": local_binary_patterns,
        "HOG at half size": lambda x: oriented_gradients(F.avg_pool2d(x, 2)),
        "LBP at half size": lambda x: local_binary_patterns(F.avg_pool2d(x, 2)),
        "row statistics": row_statistics,
        "row covariances": row_covariances,
    }
    known = descriptor_sizes(pictures.shape[1], (pictures.shape[2], pictures.shape[3]))
    return {name: functions[name](pictures) for name in known if names is None or name in names}


class Descriptors(nn.Module):
    """Directions of classical descriptors, each behind a linear map such as PCA + LDA, one after the other.

    The maps are fitted in closed form by :func:`~hypersphere.evaluation.fit_descriptors`. A constructed module has random
    ones.

    Args:
        in_channels: Channels of the pictures.
        input_size: Height and width of the pictures.
        dims: Output dimension of the map of each descriptor, in the order of :func:`describe_pictures`; 0 leaves the
            descriptor out. A second round of as many numbers gives every descriptor a second map, and so on.
        weights: Share of each map in the cosine of two pictures; equal by default.
        filters: Number of filters of one more descriptor, the mean responses to patches in 4×4 cells. It is the last of each
            round of ``dims``; 0 leaves it out.
        logarithm: Take the logarithm of the input first, for spectra of power.

    >>> net = Descriptors(1, (16, 16), (4, 4, 0, 4, 0))
    >>> net(torch.rand(2, 1, 16, 16)).norm(dim=1).round(decimals=4).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        in_channels: int,
        input_size: tuple[int, int],
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        filters: int = 0,
        logarithm: bool = False,
    ):
        super().__init__()
        sizes = descriptor_sizes(in_channels, input_size)
        self.filters, self.logarithm = filters, logarithm
        self.patches: PatchResponses | None = None
        if filters:
            self.patches = PatchResponses(in_channels, input_size, filters)
            sizes[PATCH_RESPONSES] = self.patches.feature_dim
        shares = [1.0] * len(dims) if weights is None else list(weights)
        if not dims or len(dims) % len(sizes) or min(dims) < 0 or max(dims) < 1:
            listed = ", ".join(sizes)
            raise ValueError(f"dims must be {len(sizes)} integers ≥ 0, one for each of {listed}, got {tuple(dims)}")
        if len(shares) != len(dims) or min(shares) < 0 or not sum(shares) > 0:
            raise ValueError(f"weights must be {len(dims)} numbers ≥ 0, not all zero, got {weights!r}")
        names = list(sizes) * (len(dims) // len(sizes))
        kept = [(name, dim, share) for name, dim, share in zip(names, dims, shares, strict=True) if dim]
        total = sum(share for _, _, share in kept)
        self.parts = [(name, share / total) for name, _, share in kept]
        self.weights = {name: sum(share for own, share in self.parts if own == name) for name, _ in self.parts}
        self.maps = nn.ModuleList([nn.Linear(sizes[name], dim) for name, dim, _ in kept])
        self.in_channels, self.input_size = in_channels, (input_size[0], input_size[1])
        self.dims, self.shares = tuple(dims), tuple(shares)
        self.feature_dim = sum(dims)

    def forward(self, x: Float[Tensor, "b *c h w"]) -> Float[Tensor, "b d"]:
        """Return the directions, each scaled by the root of its weight, together of length 1; spectra need no channel."""
        pictures = x if x.ndim == 4 else x[:, None]
        if self.logarithm:
            pictures = take_logarithm(pictures)
        found = describe_pictures(pictures, self.weights)
        if self.patches is not None and PATCH_RESPONSES in self.weights:
            found[PATCH_RESPONSES] = self.patches(pictures)
        parts = zip(self.maps, self.parts, strict=True)
        return torch.cat([math.sqrt(share) * normalize(layer(found[name])) for layer, (name, share) in parts], 1)


class Joined(nn.Module):
    r"""The features of several networks side by side, so that the cosine is a weighted mean of their cosines.

    The features of every network are scaled to length 1, centered, and scaled to length 1 again. Then they are multiplied by the
    square root of the network's weight.

    Args:
        networks: Networks of the same input. Their features are those of their method ``features``, or their output.
        dims: The dimension of the features of each network.
        weights: Share of each network in the cosine of two samples; equal by default.

    >>> net = Joined((torch.nn.Flatten(), torch.nn.Flatten()), (4, 4), weights=(0.3, 0.7))
    >>> net(torch.rand(2, 1, 2, 2)).shape
    torch.Size([2, 8])
    """

    centers: Tensor

    def __init__(self, networks: Sequence[nn.Module], dims: Sequence[int], weights: Sequence[float] | None = None):
        super().__init__()
        shares = [1.0] * len(networks) if weights is None else list(weights)
        if not networks or len(dims) != len(networks):
            raise ValueError(f"dims must be one integer for each of {len(networks)} networks, got {tuple(dims)}")
        if len(shares) != len(networks) or min(shares) < 0 or not sum(shares) > 0:
            raise ValueError(f"weights must be {len(networks)} numbers ≥ 0, not all zero, got {weights!r}")
        self.networks, self.dims = nn.ModuleList(networks), tuple(dims)
        self.weights = [share / sum(shares) for share in shares]
        self.register_buffer("centers", torch.zeros(sum(dims)))
        self.feature_dim = sum(dims)

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """Return the joined features of a batch."""
        parts = [
            math.sqrt(weight) * normalize(normalize(read_features(network, x)) - center)
            for network, weight, center in zip(self.networks, self.weights, self.centers.split(self.dims), strict=True)
        ]
        return torch.cat(parts, 1)


def descriptor_sizes(in_channels: int, input_size: tuple[int, int]) -> dict[str, int]:
    """Return the length of every descriptor of pictures of one size, by its name.

    >>> descriptor_sizes(3, (8, 16))
    {'pixels': 384, 'HOG': 18, 'LBP': 118, 'row statistics': 48, 'row covariances': 300}
    """
    height, width = input_size
    sizes = {"pixels": in_channels * height * width, "HOG": _gradient_bins(height, width)}
    sizes["LBP"] = _cells(height - 2) * _cells(width - 2) * PATTERNS
    if min(height, width) >= MIN_HALF_SIDE:
        sizes["HOG at half size"] = _gradient_bins(height // 2, width // 2)
        sizes["LBP at half size"] = _cells(height // 2 - 2) * _cells(width // 2 - 2) * PATTERNS
    if max(height, width) >= MIN_ELONGATION * min(height, width):
        rows = in_channels * min(height, width)
        sizes["row statistics"] = 2 * rows
        sizes["row covariances"] = rows * (rows + 1) // 2
    return sizes


def take_logarithm(power: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return log(max(power, 10⁻⁸)).

    >>> take_logarithm(torch.tensor([0.0, 1.0])).round().tolist()
    [-18.0, 0.0]
    """
    return power.clamp_min(MIN_POWER).log()


def local_binary_patterns(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n bins"]:
    r"""Return square roots of histograms of uniform local binary patterns in cells of about 8×8 pixels.

    The pattern of a pixel has one bit per neighbor of the eight around it: whether it is at least as bright. Patterns
    with at most two changes around the circle have a bin each, the others share one: 59 bins (Ahonen et al., 2006, "Face
    description with local binary patterns"). The cosine of square roots is the Bhattacharyya coefficient.

    >>> local_binary_patterns(torch.zeros(1, 1, 10, 10)).shape
    torch.Size([1, 59])
    """
    gray = pictures.mean(1)
    if min(gray.shape[1:]) < 3:
        gray = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    center = gray[:, 1:-1, 1:-1]
    height, width = center.shape[1:]
    around = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    codes = torch.zeros_like(center, dtype=torch.long)
    for bit, (row, column) in enumerate(around):
        codes = codes + (gray[:, row : row + height, column : column + width] >= center - TIE).long() * 2**bit
    patterns = _uniform_patterns(gray.device)[codes]
    # Counting by comparison and two matrix products, because ONNX has no bincount.
    members = (patterns[:, None] == torch.arange(PATTERNS, device=gray.device)[:, None, None]).to(gray.dtype)
    rows, columns = (_partition(side, gray) for side in (height, width))
    counts = (rows @ members @ columns.mT).flatten(2).mT
    return (counts / counts.sum(2, keepdim=True)).sqrt().flatten(1)


def oriented_gradients(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n bins"]:
    r"""Return histograms of oriented gradients in cells of about 8×8 pixels, normalized in blocks of 2×2 cells.

    Each pixel votes for the two nearest of nine orientations over half a turn with the length of its gradient (Dalal and
    Triggs, 2005). Blocks are scaled to length 1, clipped at 0.2 and scaled again.

    >>> oriented_gradients(torch.rand(2, 1, 16, 16)).shape
    torch.Size([2, 36])
    """
    gray = F.pad(pictures.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = (gray[:, :, 1:-1, 2:] - gray[:, :, 1:-1, :-2])[:, 0]
    down = (gray[:, :, 2:, 1:-1] - gray[:, :, :-2, 1:-1])[:, 0]
    length = (across.square() + down.square()).sqrt()
    place = (torch.atan2(down, across) / math.pi + 2) * ORIENTATIONS  # positive, so that the distance below is simple
    bins = torch.arange(ORIENTATIONS, device=gray.device, dtype=gray.dtype)[:, None, None]
    distance = (place[:, None] - bins).remainder(ORIENTATIONS)
    distance = torch.minimum(distance, ORIENTATIONS - distance)
    votes = length[:, None] * (1 - distance).clamp(min=0)
    rows, columns = (_windows(side, gray) for side in votes.shape[2:])
    cells = rows @ votes @ columns.mT
    tall, broad = (min(2, side) for side in cells.shape[2:])
    height, width = cells.shape[2] - tall + 1, cells.shape[3] - broad + 1
    corners = [cells[:, :, i : i + height, j : j + width] for i in range(tall) for j in range(broad)]
    blocks = torch.stack(corners, 2).flatten(1, 2).flatten(2)  # (n, orientations × cells of a block, blocks)
    blocks = blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)
    blocks = blocks.clamp(max=CLIP)
    return (blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)).mT.flatten(1)


def row_statistics(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n _"]:
    """Return mean and deviation along the longer side: of every frequency over time, for a spectrum.

    >>> row_statistics(torch.zeros(2, 1, 8, 20)).shape
    torch.Size([2, 16])
    """
    axis = 3 if pictures.shape[3] >= pictures.shape[2] else 2
    mean = pictures.mean(axis, keepdim=True)
    count = pictures.shape[axis]
    deviation = ((pictures - mean).square().sum(axis) / max(count - 1, 1)).sqrt()
    return torch.cat([mean.squeeze(axis).flatten(1), deviation.flatten(1)], 1)


def row_covariances(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n _"]:
    """Return the covariances of rows along the longer side: which frequencies of a spectrum are loud together.

    The upper triangle of the covariance matrix, with the entries off the diagonal multiplied by √2, so that lengths of
    differences are those of the matrices (Frobenius norm).

    >>> row_covariances(torch.rand(2, 1, 8, 20)).shape
    torch.Size([2, 36])
    """
    rows = pictures if pictures.shape[3] >= pictures.shape[2] else pictures.mT
    x = rows.flatten(1, 2)
    x = x - x.mean(2, keepdim=True)
    covariance = x @ x.mT / max(x.shape[2] - 1, 1)
    # The places are lists, because ONNX has no triu_indices.
    count = int(x.shape[1])
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    places = torch.tensor([i * count + j for i, j in pairs], device=x.device)
    scale = torch.tensor([1.0 if i == j else math.sqrt(2) for i, j in pairs], device=x.device, dtype=x.dtype)
    return covariance.flatten(1).index_select(1, places) * scale


def _partition(side: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return one row per cell: 1 for its pixels. Every pixel belongs to one cell."""
    cells = _cells(side)
    owner = torch.arange(side, device=like.device) * cells // side
    return (owner == torch.arange(cells, device=like.device)[:, None]).to(like.dtype)


def _windows(side: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return one row per cell: the mean over its pixels. Cells overlap by a pixel if the side is not a multiple of their number."""
    cells = _cells(side)
    index, pixel = torch.arange(cells, device=like.device)[:, None], torch.arange(side, device=like.device)
    inside = (pixel >= index * side // cells) & (pixel < ((index + 1) * side + cells - 1) // cells)
    weights = inside.to(like.dtype)
    return weights / weights.sum(1, keepdim=True)


def _cells(side: int) -> int:
    return max(1, round(side / CELL))


def _gradient_bins(height: int, width: int) -> int:
    rows, columns = _cells(height), _cells(width)
    block = min(2, rows) * min(2, columns)
    return ORIENTATIONS * block * max(1, rows - 1) * max(1, columns - 1)


def _uniform_patterns(device: torch.device) -> Int[Tensor, "256"]:
    """Return the bin of each of 256 patterns: one for each with at most two changes around the circle, one for all others."""
    # A list, because ONNX has no shifts.
    bits = [[code >> place & 1 for place in range(8)] for code in range(256)]
    uniform = [sum(row[i] != row[i - 1] for i in range(8)) <= 2 for row in bits]
    bins = [sum(uniform[:code]) if uniform[code] else PATTERNS - 1 for code in range(256)]
    return torch.tensor(bins, device=device)
