"""A margin drawn anew for every sample."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..margins.margin import Context, Strength


class Drawn(Strength):
    r"""m ~ N(mean, std²) for each sample in training, ``mean`` in evaluation: ElasticFace (Boutros et al., 2022).

    Draws come from torch's random state and are cut off at ``mean`` ± 4·``std`` and at 0.

    >>> Drawn(0.5, 0.05).eval()(hs.objectives.margins.Context())
    tensor(0.5000)
    """

    draws = True

    def __init__(self, mean: float = 0.5, std: float = 0.05):
        super().__init__()
        if not (0 <= mean < math.inf and 0 <= std < math.inf):
            raise ValueError(f"mean and std must be numbers ≥ 0, got {mean!r} and {std!r}")
        self.mean, self.std = float(mean), float(std)
        self.least, self.most = max(0.0, mean - 4 * std), mean + 4 * std

    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """One draw per sample of the context, shaped as its norms are."""
        if not self.training or context.norms is None:
            return torch.tensor(self.mean)
        noise = torch.randn_like(context.norms)
        return (self.mean + self.std * noise).clamp(self.least, self.most)

    def extra_repr(self) -> str:
        """Mean and deviation."""
        return f"mean={self.mean:g}, std={self.std:g}"
