"""Classical image descriptors, each followed by a linear map, and a network that joins the features of several networks."""

import math
from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..geometry import normalize
from .network import read_features

CELL = 8  # side of a cell of LBP and HOG, in pixels
ORIENTATIONS = 9  # bins of HOG, over 180°
PATTERNS = 59  # bins of LBP: 58 uniform patterns and one for all others
ROUNDING = 1e-5  # smaller brightness differences count as equal, so that every runtime computes the same pattern
CLIP = 0.2  # upper limit of the entries of a normalized HOG block (Dalal and Triggs, 2005)
MIN_HALF_SIDE = 16  # shortest side, in pixels, of pictures with descriptors at half size
MIN_ELONGATION = 1.8  # ratio of the longer to the shorter side from which pictures are treated as spectrograms
MIN_POWER = 1e-8  # lower bound of a power spectrum, so that its logarithm is finite
PATCH_RESPONSES = "patch responses"  # name of the descriptor whose filters are learned
PATCH_CELLS = 4  # cells along each side of the picture; patch responses are averaged over a cell
RESPONSE_THRESHOLD = 0.5  # subtracted from patch responses; smaller responses become 0
MIN_RESPONSE = 1e-8  # lower bound of mean responses, so that the derivative of their square root is finite


def describe_pictures(
    pictures: Float[Tensor, "n c h w"], names: Collection[str] | None = None
) -> dict[str, Float[Tensor, "n _"]]:
    """Compute descriptors of pictures.

    The descriptors are the pixels, HOG (:func:`oriented_gradients`) and LBP (:func:`local_binary_patterns`). Pictures of at
    least 16×16 pixels also have HOG and LBP at half the size. Elongated pictures, such as spectrograms, also have
    :func:`row_statistics` and :func:`row_covariances`.

    Args:
        pictures: Pixel values, usually in [0, 1].
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
    sizes = compute_descriptor_sizes(pictures.shape[1], (pictures.shape[2], pictures.shape[3]))
    return {name: functions[name](pictures) for name in sizes if names is None or name in names}


class Descriptors(nn.Module):
    """A network of classical descriptors, each followed by a linear map such as PCA + LDA.

    The output of every map is scaled to length 1 and multiplied by the square root of its weight. The outputs are then
    concatenated. The maps are random at first; :func:`~hypersphere.evaluation.fit_descriptors` fits them in closed form.

    Args:
        in_channels: Channels of the pictures.
        input_size: Height and width of the pictures.
        dims: Output dimension of the map of each descriptor, in the order of :func:`describe_pictures`; 0 omits the
            descriptor. Twice as many numbers define a second map per descriptor, and so on.
        weights: Share of each map in the cosine of two pictures; equal by default.
        filters: Number of filters of :class:`PatchResponses`, the last descriptor in the order of ``dims``; 0 omits it.
        logarithm: Whether to take the logarithm of the input first, for power spectra.

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
        sizes = compute_descriptor_sizes(in_channels, input_size)
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
        used = [(name, dim, share) for name, dim, share in zip(names, dims, shares, strict=True) if dim]
        total = sum(share for _, _, share in used)
        self.parts = [(name, share / total) for name, _, share in used]
        self.weights = dict.fromkeys((name for name, _ in self.parts), 0.0)
        for name, share in self.parts:
            self.weights[name] += share
        self.maps = nn.ModuleList([nn.Linear(sizes[name], dim) for name, dim, _ in used])
        self.in_channels, self.input_size = in_channels, (input_size[0], input_size[1])
        self.dims, self.shares = tuple(dims), tuple(shares)
        self.feature_dim = sum(dims)

    def forward(self, x: Float[Tensor, "b *c h w"]) -> Float[Tensor, "b d"]:
        """Return the concatenated outputs, a vector of length 1. Spectrograms may have no channel axis."""
        pictures = x if x.ndim == 4 else x[:, None]
        if self.logarithm:
            pictures = take_logarithm(pictures)
        descriptors = describe_pictures(pictures, self.weights)
        if self.patches is not None and PATCH_RESPONSES in self.weights:
            descriptors[PATCH_RESPONSES] = self.patches(pictures)
        parts = zip(self.maps, self.parts, strict=True)
        return torch.cat([math.sqrt(share) * normalize(layer(descriptors[name])) for layer, (name, share) in parts], 1)


class PatchResponses(nn.Module):
    r"""Mean responses of filters to normalized patches, in 4×4 cells of the picture.

    Every patch is normalized in mean and contrast. The response r of a filter is its inner product with the patch plus a bias.
    Positive and negative responses are separate outputs: max(r − ½, 0) and max(−r − ½, 0), as in Coates and Ng (2011, "The
    importance of encoding versus training with sparse coding and vector quantization"). The module returns the square root of
    their mean over each cell. If one side of the pictures is much longer, as in spectrograms, every cell spans this whole side.
    The filters are random at first; :func:`~hypersphere.evaluation.fit_descriptors` learns them from pictures without labels.

    Args:
        in_channels: Channels of the pictures.
        input_size: Height and width of the pictures.
        filters: Number of filters.
        side: Height and width of a filter, reduced to two pixels less than the shorter side of the pictures if necessary.

    >>> PatchResponses(1, (16, 16), filters=10)(torch.rand(2, 1, 16, 16)).shape
    torch.Size([2, 320])
    """

    weight: Tensor
    bias: Tensor
    contrast: Tensor

    def __init__(self, in_channels: int, input_size: tuple[int, int], filters: int, side: int = 6):
        super().__init__()
        if filters < 1:
            raise ValueError(f"filters must be an integer ≥ 1, got {filters!r}")
        height, width = input_size
        side = min(side, height - 2, width - 2)
        if side < 2:
            raise ValueError(f"pictures of at least 4×4 pixels and filters of 2×2 are needed, got {height}×{width}")
        self.cells = (PATCH_CELLS, PATCH_CELLS)
        if max(input_size) >= MIN_ELONGATION * min(input_size):
            self.cells = (PATCH_CELLS, 1) if width > height else (1, PATCH_CELLS)
        self.cells = (min(self.cells[0], height - side + 1), min(self.cells[1], width - side + 1))
        self.side, self.feature_dim = side, 2 * filters * self.cells[0] * self.cells[1]
        self.register_buffer("weight", torch.randn(filters, in_channels, side, side) / side)
        self.register_buffer("bias", torch.zeros(filters))
        self.register_buffer("contrast", torch.tensor(0.1))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the mean responses.

        The patches are not extracted. For a patch p with mean m and s² = variance + ``contrast``, the response of a filter w
        with the bias b is w·(p − m)/s + b = (w·p − m Σw)/s + b, where w·p is a convolution and average pooling gives m and s.
        """
        count = self.weight[0].numel()
        mean = F.avg_pool2d(x.mean(1, keepdim=True), self.side, 1)
        power = F.avg_pool2d(x.square().mean(1, keepdim=True), self.side, 1)
        variance = (power - mean.square()).clamp(min=0) * (count / (count - 1))
        total = self.weight.sum((1, 2, 3))[:, None, None]
        response = (F.conv2d(x, self.weight) - mean * total) / (variance + self.contrast).sqrt()
        response = response + self.bias[:, None, None]
        members = [_assign_cells(side, cells, x) for side, cells in zip(response.shape[2:], self.cells, strict=True)]
        rows, columns = (part / part.sum(1, keepdim=True) for part in members)
        halves = [rows @ F.relu(sign * response - RESPONSE_THRESHOLD) @ columns.mT for sign in (1, -1)]
        return torch.cat(halves, 1).flatten(1).clamp(min=MIN_RESPONSE).sqrt()


class Joined(nn.Module):
    r"""The concatenated features of several networks. Their cosine is the weighted mean of the networks' cosines.

    The features of every network are scaled to length 1, centered, and scaled to length 1 again. They are then multiplied by
    the square root of the network's weight.

    Args:
        networks: Networks that accept the same input. The result of the method ``features`` is used, or the output if a network
            has no such method.
        dims: Feature dimension of each network.
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


def compute_descriptor_sizes(in_channels: int, input_size: tuple[int, int]) -> dict[str, int]:
    """Return the length of every descriptor by name, for pictures of one size.

    >>> compute_descriptor_sizes(3, (8, 16))
    {'pixels': 384, 'HOG': 18, 'LBP': 118, 'row statistics': 48, 'row covariances': 300}
    """
    height, width = input_size
    sizes = {"pixels": in_channels * height * width, "HOG": _count_gradient_bins(height, width)}
    sizes["LBP"] = _count_cells(height - 2) * _count_cells(width - 2) * PATTERNS
    if min(height, width) >= MIN_HALF_SIDE:
        sizes["HOG at half size"] = _count_gradient_bins(height // 2, width // 2)
        sizes["LBP at half size"] = _count_cells(height // 2 - 2) * _count_cells(width // 2 - 2) * PATTERNS
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

    The pattern of a pixel has one bit for each of its eight neighbors: whether the neighbor is at least as bright. Each
    uniform pattern, with at most two changes around the circle, has its own bin. All others share one bin, so there are 59
    (Ahonen et al., 2006, "Face description with local binary patterns"). Square roots are taken because the inner product of
    the square roots of two histograms is their Bhattacharyya coefficient.

    >>> local_binary_patterns(torch.zeros(1, 1, 10, 10)).shape
    torch.Size([1, 59])
    """
    gray = pictures.mean(1)
    if min(gray.shape[1:]) < 3:
        gray = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    center = gray[:, 1:-1, 1:-1]
    height, width = center.shape[1:]
    neighbors = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    codes = torch.zeros_like(center, dtype=torch.long)
    for bit, (row, column) in enumerate(neighbors):
        codes = codes + (gray[:, row : row + height, column : column + width] >= center - ROUNDING).long() * 2**bit
    patterns = _number_uniform_patterns(gray.device)[codes]
    # Count by comparison and two matrix products, because ONNX has no bincount.
    members = (patterns[:, None] == torch.arange(PATTERNS, device=gray.device)[:, None, None]).to(gray.dtype)
    rows, columns = (_assign_cells(side, _count_cells(side), gray) for side in (height, width))
    counts = (rows @ members @ columns.mT).flatten(2).mT
    return (counts / counts.sum(2, keepdim=True)).sqrt().flatten(1)


def oriented_gradients(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n bins"]:
    r"""Return histograms of oriented gradients in cells of about 8×8 pixels, normalized in blocks of 2×2 cells.

    There are nine orientation bins over 180°. Each pixel divides the length of its gradient between the two nearest bins (Dalal
    and Triggs, 2005). Blocks are scaled to length 1, clipped at 0.2 and scaled to length 1 again.

    >>> oriented_gradients(torch.rand(2, 1, 16, 16)).shape
    torch.Size([2, 36])
    """
    gray = F.pad(pictures.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    horizontal = (gray[:, :, 1:-1, 2:] - gray[:, :, 1:-1, :-2])[:, 0]
    vertical = (gray[:, :, 2:, 1:-1] - gray[:, :, :-2, 1:-1])[:, 0]
    length = (horizontal.square() + vertical.square()).sqrt()
    # The orientation in units of bins. Adding a full turn makes it positive and does not change the cyclic distance below.
    orientation = (torch.atan2(vertical, horizontal) / math.pi + 2) * ORIENTATIONS
    bins = torch.arange(ORIENTATIONS, device=gray.device, dtype=gray.dtype)[:, None, None]
    distance = (orientation[:, None] - bins).remainder(ORIENTATIONS)
    distance = torch.minimum(distance, ORIENTATIONS - distance)
    votes = length[:, None] * (1 - distance).clamp(min=0)
    rows, columns = (_average_cells(side, gray) for side in votes.shape[2:])
    cells = rows @ votes @ columns.mT
    block_height, block_width = (min(2, side) for side in cells.shape[2:])
    height, width = cells.shape[2] - block_height + 1, cells.shape[3] - block_width + 1
    corners = [cells[:, :, i : i + height, j : j + width] for i in range(block_height) for j in range(block_width)]
    blocks = torch.stack(corners, 2).flatten(1, 2).flatten(2)  # (n, orientations × cells of a block, blocks)
    blocks = blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)
    blocks = blocks.clamp(max=CLIP)
    return (blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)).mT.flatten(1)


def row_statistics(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n _"]:
    """Return the mean and standard deviation of each row along the longer side: of each frequency of a spectrogram.

    >>> row_statistics(torch.zeros(2, 1, 8, 20)).shape
    torch.Size([2, 16])
    """
    axis = 3 if pictures.shape[3] >= pictures.shape[2] else 2
    mean = pictures.mean(axis, keepdim=True)
    count = pictures.shape[axis]
    deviation = ((pictures - mean).square().sum(axis) / max(count - 1, 1)).sqrt()
    return torch.cat([mean.squeeze(axis).flatten(1), deviation.flatten(1)], 1)


def row_covariances(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n _"]:
    """Return the covariances between rows along the longer side: between the frequencies of a spectrogram.

    The result is the upper triangle of the covariance matrix. Entries off the diagonal are multiplied by √2, so that the
    distance between two results is the Frobenius distance between the matrices.

    >>> row_covariances(torch.rand(2, 1, 8, 20)).shape
    torch.Size([2, 36])
    """
    rows = pictures if pictures.shape[3] >= pictures.shape[2] else pictures.mT
    x = rows.flatten(1, 2)
    x = x - x.mean(2, keepdim=True)
    covariance = x @ x.mT / max(x.shape[2] - 1, 1)
    # The indices come from a list, because ONNX has no triu_indices.
    count = int(x.shape[1])
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    indices = torch.tensor([i * count + j for i, j in pairs], device=x.device)
    scale = torch.tensor([1.0 if i == j else math.sqrt(2) for i, j in pairs], device=x.device, dtype=x.dtype)
    return covariance.flatten(1).index_select(1, indices) * scale


def _assign_cells(side: int, cells: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return a matrix with one row per cell: 1 for its pixels and 0 elsewhere. Every pixel belongs to one cell."""
    cell_of_pixel = torch.arange(side, device=like.device) * cells // side
    return (cell_of_pixel == torch.arange(cells, device=like.device)[:, None]).to(like.dtype)


def _average_cells(side: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return a matrix with one row per cell, which averages over the pixels of the cell.

    Neighboring cells share a pixel if the side is not a multiple of the number of cells.
    """
    cells = _count_cells(side)
    index, pixel = torch.arange(cells, device=like.device)[:, None], torch.arange(side, device=like.device)
    inside = (pixel >= index * side // cells) & (pixel < ((index + 1) * side + cells - 1) // cells)
    weights = inside.to(like.dtype)
    return weights / weights.sum(1, keepdim=True)


def _count_cells(side: int) -> int:
    return max(1, round(side / CELL))


def _count_gradient_bins(height: int, width: int) -> int:
    rows, columns = _count_cells(height), _count_cells(width)
    block = min(2, rows) * min(2, columns)
    return ORIENTATIONS * block * max(1, rows - 1) * max(1, columns - 1)


def _number_uniform_patterns(device: torch.device) -> Int[Tensor, "256"]:
    """Return the bin of each of the 256 patterns: one bin per uniform pattern, and one for all others."""
    # The bits come from a list, because ONNX has no shifts.
    bits = [[code >> i & 1 for i in range(8)] for code in range(256)]
    uniform = [sum(row[i] != row[i - 1] for i in range(8)) <= 2 for row in bits]
    bins = [sum(uniform[:code]) if uniform[code] else PATTERNS - 1 for code in range(256)]
    return torch.tensor(bins, device=device)
