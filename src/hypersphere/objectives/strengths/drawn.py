"""A margin that is drawn for every sample in every step."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..margins.margin import Context, Strength


class Drawn(Strength):
    r"""m ~ N(mean, std²) for each sample in training, ``mean`` in evaluation: ElasticFace (Boutros et al., 2022).

    The numbers are drawn from torch's random state and limited to ``mean`` ± 4·``std`` and to m ≥ 0. A sample has the same m
    in all hooks, blocks of classes and processes of a forward pass, and in its backward pass.

    >>> Drawn(0.5, 0.05).eval()(hs.objectives.margins.Context())
    tensor(0.5000)
    """

    draws = True
    constant = True

    def __init__(self, mean: float = 0.5, std: float = 0.05):
        super().__init__()
        if not (0 <= mean < math.inf and 0 <= std < math.inf):
            raise ValueError(f"mean and std must be numbers ≥ 0, got {mean!r} and {std!r}")
        self.mean, self.std = float(mean), float(std)
        self.least, self.most = max(0.0, mean - 4 * std), mean + 4 * std

    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return the number of each sample, drawn by the head or, if the context has none, drawn here."""
        noise = None if context.noise is None else context.noise.get(self)
        if noise is None and context.norms is not None:
            noise = torch.randn_like(context.norms)
        if noise is None or not self.training:
            return torch.tensor(self.mean)
        return (self.mean + self.std * noise).clamp(self.least, self.most)

    def extra_repr(self) -> str:
        """Return the mean and the standard deviation."""
        return f"mean={self.mean:g}, std={self.std:g}"
