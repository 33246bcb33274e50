"""Random mirroring of images."""

import torch
from jaxtyping import Shaped
from torch import Tensor

from .augment import Augmentation, Uniforms


class Flip(Augmentation):
    """Mirror images left to right with probability ``horizontal`` and upside down with probability ``vertical``.

    >>> Flip(1.0, 1.0)(torch.tensor([[[[1, 2], [3, 4]]]]), torch.zeros(1, 2)).tolist()
    [[[[4, 3], [2, 1]]]]
    """

    def __init__(self, horizontal: float = 0.5, vertical: float = 0.0):
        if not (0 <= horizontal <= 1 and 0 <= vertical <= 1):
            raise ValueError(f"horizontal and vertical must lie in 0 … 1, got {horizontal} and {vertical}")
        self.horizontal, self.vertical = horizontal, vertical

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: one per direction."""
        return 2

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Return the images, each mirrored with the given probabilities."""
        for column, probability, axis in ((0, self.horizontal, 3), (1, self.vertical, 2)):
            mirrored = (u[:, column] < probability).to(batch.device)
            batch = torch.where(mirrored[:, None, None, None], batch.flip(axis), batch)
        return batch
