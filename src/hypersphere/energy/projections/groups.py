"""Group CoMHE: the energy within groups of channels (6.3.5)."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from .projection import Projection


class ChannelGroups(Projection):
    r"""The mean energy over groups of ``size`` channels, where P_c selects the channels of group c  (eq. 6.9).

    A group has consecutive channels, 8 in Liu (2020, 6.6.1). If ``stochastic``, it has random channels, which are drawn
    again every ``every`` steps. The last group may be smaller. The channels of a Linear layer are its input features.

    >>> ChannelGroups(size=4, stochastic=True)
    ChannelGroups(size=4, stochastic=True, every=1)
    """

    arguments = ("size", "stochastic", "every")

    def __init__(self, size: int = 8, stochastic: bool = False, every: int | None = 1, seed: int = 0):
        super().__init__(every=every if stochastic else None, seed=seed)
        if size < 1:
            raise ValueError(f"size must be a number of channels ≥ 1, got {size!r}")
        self.size, self.stochastic = size, stochastic

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return the number of channels if their order is random."""
        return {"order": dim // area} if self.stochastic else {}

    def draw(self, part: str, size: int) -> Int[Tensor, " channels"]:
        """Draw a random order."""
        return torch.randperm(size, generator=self.generator)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the parts of the neurons in each group. The last group is padded with zeros, which changes no angle."""
        result = {}
        for name, weight in weights.items():
            channels = weight.unflatten(-1, (-1, self._areas[name]))
            if self.stochastic:
                channels = channels[:, :, self.basis(name, weight, "order")]
            missing = -channels.shape[2] % self.size
            if missing:
                channels = F.pad(channels, (0, 0, 0, missing))
            result[name] = [channels.unflatten(2, (-1, self.size)).flatten(3).permute(2, 0, 1, 3)]
        return result
