"""Classification of uncertain directions: each feature is a von Mises–Fisher distribution."""

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from ...geometry import norm
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import Concentration
from ..margins.margin import Context


class VMFSoftmax(MarginSoftmax):
    r"""Softmax whose features are von Mises–Fisher distributions with a concentration learned per sample.

    The length of a feature determines its concentration κ = γ‖x‖ with a learned γ, so the network estimates for each sample how
    certain the direction is. :meth:`concentration` returns κ, and :meth:`probabilities` returns the softmax of expected scores,
    which become equal for κ → 0. The loss is an upper bound of the expected cross-entropy over the directions;
    :class:`~hypersphere.objectives.margins.Concentration` derives it. It follows Scott, Gallagher and Mozer (2021,
    arXiv:2103.15718), who use distributions of the class weights as well; here these are points. Use it if some samples are of
    poor quality and you need a confidence together with the class.

    Args:
        scale: β, the inverse temperature; 30 as in the other heads with a constant scale.
        gain: γ at the start; None is √d.

    >>> head = VMFSoftmax(16, 5)
    >>> x = torch.randn(3, 16)
    >>> head(x, torch.tensor([0, 1, 4])).ndim, bool((head.concentration(2 * x) > head.concentration(x)).all())
    (0, True)
    """

    margin: Concentration

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        scale: float = 30.0,
        gain: float | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = Concentration(scale, in_features, gain)
        super().__init__(in_features, num_classes, margin=margin, scale=scale, bias=bias, **options)

    @torch.no_grad()
    def concentration(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Return κ of each feature, from 0 for an unknown direction to 10⁶ for a certain one.

        Args:
            features: The features, with their lengths.
        """
        return self.margin.concentration(norm(features)).to(torch.promote_types(features.dtype, torch.float32))

    @torch.no_grad()
    def probabilities(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return the probability of each class, averaged over the distribution of the direction.

        Args:
            features: The features, with their lengths.

        >>> head = VMFSoftmax(8, 4)
        >>> head.probabilities(1e-6 * torch.randn(1, 8))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
        """
        bias = 0.0 if self.bias is None else self.bias
        cos = ((self.logits(features) - bias) / self.margin.scale).clamp(-1, 1)
        scores = self.margin.others(cos, Context(norms=norm(features).unsqueeze(1).to(cos.dtype)))
        return (self.margin.scale * scores + bias).softmax(1)
