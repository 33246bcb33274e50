"""A memory of earlier batches for any loss over pairs."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .pair_loss import PairLoss


class CrossBatchMemory(nn.Module):
    r"""L(batch) + w·L(batch, memory): the memory holds features of the last ``size`` samples, without gradients.

    Wang et al. (2020, arXiv:1912.06798): features change slowly after the first epochs, so those of earlier batches are useful
    references. Pairs with the memory need no second pass of the network. Use it if the batch is too small to contain hard
    negatives. With several processes, each of them stores the samples of all processes. The memory is part of the
    ``state_dict``, so training resumes exactly.

    Args:
        loss: Any loss over pairs, such as ``Contrastive()`` or ``SupCon()``.
        size: Number of samples in the memory.
        weight: w; 1 as in Wang et al.
        warmup: Number of training batches before the memory is used, because features change fast at the start. The memory is
            filled from the first batch on.

    Raises:
        ValueError: If a number is out of its range.

    >>> loss = CrossBatchMemory(hs.objectives.SupCon(), size=100)
    >>> for _ in range(3):
    ...     value = loss(torch.randn(8, 4), torch.arange(4).repeat(2))
    >>> value.ndim, len(loss)
    (0, 24)
    """

    features: Tensor
    labels: Tensor
    batches: Tensor

    def __init__(self, loss: PairLoss, size: int = 4096, weight: float = 1.0, warmup: int = 0):
        super().__init__()
        if size < 1 or warmup < 0:
            raise ValueError(f"size must be an integer ≥ 1 and warmup ≥ 0, got {size!r} and {warmup!r}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"weight must be a finite number ≥ 0, got {weight!r}")
        if not isinstance(loss, PairLoss):
            raise ValueError(f"loss must be a loss over pairs, such as SupCon(), got {loss!r}")
        self.loss, self.size, self.weight, self.warmup = loss, size, float(weight), warmup
        self.register_buffer("features", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, dtype=torch.long))
        self.register_buffer("batches", torch.tensor(0))

    def __len__(self) -> int:
        """Return the number of samples in the memory."""
        return len(self.labels)

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the loss of a batch. In training mode, add the batch to the memory.

        Args:
            features: The features.
            labels: The class of each sample.
        """
        value: Tensor = self.loss(features, labels)
        if len(self) and self.weight and int(self.batches) >= self.warmup:
            value = value + self.weight * self.loss(features, labels, self.features, self.labels)
        if self.training:
            self.remember(features, labels)
        return value

    @torch.no_grad()
    def remember(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> None:
        """Add a batch to the memory and remove the oldest samples.

        Args:
            features: The features of this process.
            labels: The class of each sample; ignored samples are not stored.
        """
        x, y = self.loss.select_samples(features.detach(), labels, "features", "labels")
        x, y, _ = self.loss.gather_samples(x, y)
        # Replace the tensors instead of changing them: the loss of this batch may still need the old ones for its backward pass.
        old = self.features if len(self) else x.new_empty(0, x.shape[1])
        self.features = torch.cat([old.to(x.dtype), x])[-self.size :].clone()
        self.labels = torch.cat([self.labels, y])[-self.size :].clone()
        self.batches = self.batches + 1

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **options: Any) -> None:
        """Accept a memory with another number of samples."""
        for name in ("features", "labels"):
            stored = state_dict.get(prefix + name)
            if stored is not None:
                setattr(self, name, stored.new_empty(stored.shape).to(self.batches.device))
        super()._load_from_state_dict(state_dict, prefix, *args, **options)

    def extra_repr(self) -> str:
        """Return the size and the weight."""
        return f"size={self.size}, weight={self.weight:g}, warmup={self.warmup}"
