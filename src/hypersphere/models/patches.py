"""Responses of filters that were learned from patches of pictures without labels."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

MIN_ELONGATION = 1.8  # ratio of the sides from which on pictures are treated as spectra
CELLS = 4  # cells along a side; responses are averaged over each cell
THRESHOLD = 0.5  # responses up to this are zero
LEAST = 1e-8  # lower bound of mean responses, so that the slope of their root is finite


class PatchResponses(nn.Module):
    r"""Mean responses of filters to normalized patches, in 4×4 cells of the picture.

    Mean and contrast of every patch are normalized. The response r of a filter is its inner product with the patch. Positive and
    negative responses are separate: max(r − ½, 0) and max(−r − ½, 0), as in Coates and Ng (2011, "The importance of encoding
    versus training with sparse coding and vector quantization"). The output is the root of the mean over each cell. If one side
    of the pictures is much longer, as in spectra, cells span this whole side. A constructed module has random filters;
    ``fit_descriptors`` learns them.

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
        self.cells = (CELLS, CELLS)
        if max(input_size) >= MIN_ELONGATION * min(input_size):
            self.cells = (CELLS, 1) if width > height else (1, CELLS)
        self.cells = (min(self.cells[0], height - side + 1), min(self.cells[1], width - side + 1))
        self.side, self.feature_dim = side, 2 * filters * self.cells[0] * self.cells[1]
        self.register_buffer("weight", torch.randn(filters, in_channels, side, side) / side)
        self.register_buffer("bias", torch.zeros(filters))
        self.register_buffer("contrast", torch.tensor(0.1))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the responses.

        The patch is never formed: for a patch p with mean m and deviation s, a filter w responds with
        w·(p − m)/s = (w·p − m Σw)/s, and w·p is a convolution.
        """
        count = self.weight[0].numel()
        mean = F.avg_pool2d(x.mean(1, keepdim=True), self.side, 1)
        power = F.avg_pool2d(x.square().mean(1, keepdim=True), self.side, 1)
        variance = (power - mean.square()).clamp(min=0) * (count / (count - 1))
        total = self.weight.sum((1, 2, 3))[:, None, None]
        found = (F.conv2d(x, self.weight) - mean * total) / (variance + self.contrast).sqrt() + self.bias[:, None, None]
        rows, columns = (_cell_means(side, cells, x) for side, cells in zip(found.shape[2:], self.cells, strict=True))
        halves = [rows @ F.relu(sign * found - THRESHOLD) @ columns.mT for sign in (1, -1)]
        return torch.cat(halves, 1).flatten(1).clamp(min=LEAST).sqrt()


def _cell_means(side: int, cells: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return one row per cell, which computes the mean over its positions. Each position belongs to one cell."""
    owner = torch.arange(side, device=like.device) * cells // side
    members = (owner == torch.arange(cells, device=like.device)[:, None]).to(like.dtype)
    return members / members.sum(1, keepdim=True)
