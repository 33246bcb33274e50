"""Any loss over pairs against class proxies."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .ntxent import NTXent
from .pair_loss import PairLoss
from .proxy import ProxyLoss


class Proxies(ProxyLoss):
    r"""Any loss over pairs, between features and one proxy per class: ``loss(features, labels, weight, arange(C))``.

    ``Proxies(d, C, loss=NTXent(0.05))`` is the normalized softmax, ``loss=Triplet(mining="hard")`` the proxy triplet
    loss, ``loss=Circle(0.25, 256)`` the class form of the circle loss.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        loss: the loss over pairs; its own ``chunk`` and ``gather`` apply. None is :class:`NTXent` with its defaults.
        ignore_index: label of samples that do not count.

    >>> head = Proxies(8, 10, loss=hs.objectives.Circle(m=0.25, gamma=256))
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 9, 9])).shape, head.predict(torch.randn(4, 8)).shape
    (torch.Size([]), torch.Size([4]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        loss: PairLoss | None = None,
        ignore_index: int = -100,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_classes, ignore_index=ignore_index, device=device, dtype=dtype)
        self.loss = NTXent() if loss is None else loss

    def compute_loss_of_samples(
        self, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], weight: Float[Tensor, "ck d"]
    ) -> Float[Tensor, ""]:
        """Return the loss against the proxies."""
        return self.loss.compare(x, labels, weight, torch.arange(self.num_classes, device=x.device), None)
