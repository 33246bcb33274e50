"""Filters learned from patches of pictures without labels."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize
from ..models.patches import PatchResponses

PATCHES = 20_000  # from which filters are learned
ROUNDS = 10  # of k-means
WHITEN = 0.1  # added to the variances of patches, as a share of their mean
CONTRAST = 0.1  # added to the variance of each patch, as a share of the mean variance of all patches


def fit_patches(
    pictures: Float[Tensor, "n c h w"], filters: int = 150, side: int = 6, *, seed: int = 0
) -> PatchResponses:
    """Learn filters by k-means on directions of whitened patches (Coates and Ng, 2012, "Learning feature representations with k-means").

    No labels are used.

    Args:
        pictures: Pictures as the network receives them.
        filters: Number of filters.
        side: Height and width of a filter, reduced for very small pictures.
        seed: Seed of the patches.

    >>> fit_patches(torch.rand(10, 1, 16, 16), filters=20).feature_dim
    640
    """
    channels, height, width = pictures.shape[1:]
    network = PatchResponses(channels, (height, width), filters, side)
    side = network.side
    generator = torch.Generator().manual_seed(seed)
    patches = _draw_patches(pictures, side, generator)
    network.contrast.copy_(CONTRAST * patches.var(1).mean().clamp_min(1e-6))
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.var(1, keepdim=True) + network.contrast).sqrt()
    mean = patches.mean(0)
    spread, basis = torch.linalg.eigh(torch.cov(patches.T))
    scale = (spread.clamp(min=0) + WHITEN * spread.mean().clamp_min(1e-6)).rsqrt()
    whiten = (basis * scale) @ basis.T
    directions = normalize((patches - mean) @ whiten)
    centers = directions[torch.randint(len(directions), (filters,), generator=generator)].clone()
    for _ in range(ROUNDS):
        nearest = (directions @ centers.T).argmax(1)
        total = torch.zeros_like(centers).index_add_(0, nearest, directions)
        found = total.norm(dim=1) > 1e-6  # centers without a patch stay
        centers[found] = normalize(total[found])
    weight = centers @ whiten
    network.weight.copy_(weight.unflatten(1, (channels, side, side)))
    network.bias.copy_(-weight @ mean)
    return network.eval()


def _draw_patches(pictures: Tensor, side: int, generator: torch.Generator) -> Float[Tensor, "k _"]:
    """Return patches from random places of random pictures, as rows."""
    height, width = pictures.shape[2:]
    count = min(PATCHES, len(pictures) * (height - side + 1) * (width - side + 1))
    which = torch.randint(len(pictures), (count,), generator=generator)
    top = torch.randint(height - side + 1, (count,), generator=generator)
    left = torch.randint(width - side + 1, (count,), generator=generator)
    offset = torch.arange(side)
    rows, columns = top[:, None, None] + offset[:, None], left[:, None, None] + offset
    return pictures[which[:, None, None], :, rows, columns].permute(0, 3, 1, 2).flatten(1)
