"""Group CoMHE: the energy within groups of channels (6.3.5)."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from .projection import Projection


class ChannelGroups(Projection):
    r"""The mean energy over groups of ``size`` channels, P_c keeping those of group c  (eq. 6.9).

    Groups are of consecutive channels, 8 in Liu (2020, 6.6.1), or of channels drawn anew every ``every`` steps if
    ``stochastic``. The last group may be smaller; the features of a Linear layer are its channels.

    >>> ChannelGroups(size=4, stochastic=True)
    ChannelGroups(size=4, stochastic=True, every=1)
    """

    def __init__(self, size: int = 8, stochastic: bool = False, every: int | None = 1, seed: int = 0):
        super().__init__(every=every if stochastic else None, seed=seed)
        if size < 1:
            raise ValueError(f"size must be a number of channels ≥ 1, got {size!r}")
        self.size, self.stochastic = size, stochastic

    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return an order of the channels, where it is random."""
        return {"order": dim // area} if self.stochastic else {}

    def draw(self, part: str, size: int) -> Int[Tensor, " channels"]:
        """Draw a random order."""
        return torch.randperm(size, generator=self.generator)

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the neurons cut into groups; zeros fill the last one up, which changes no angle."""
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

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"size={self.size}, stochastic={self.stochastic}, every={self.every}"
