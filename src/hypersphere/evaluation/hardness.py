"""Hardness of samples, from their angles to the class weights and from the confidence of the model."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import angle


def angular_visual_hardness(
    features: Float[Tensor, "n d"], weight: Float[Tensor, "c d"], labels: Int[Tensor, "n"]
) -> Float[Tensor, "n"]:
    r"""Return AVH = θ(w_y, x) / Σ_i θ(w_i, x) in [0, 1], which is small for an easy sample (1.1, Fig. 1.2).

    It does not depend on the length of the feature.

    >>> angular_visual_hardness(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1]))
    tensor([1.])
    """
    _check_labels(labels, len(features), len(weight))
    angles = angle(features, weight, pairwise=True)
    return angles.gather(-1, labels.unsqueeze(-1).long()).squeeze(-1) / angles.sum(-1)


def model_confidence(logits: Float[Tensor, "n c"], labels: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    r"""Return exp z_y / Σ_i exp z_i of the logits z = Wx (+ b), the probability of the true class (1.1).

    >>> model_confidence(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.5000])
    """
    _check_labels(labels, len(logits), logits.shape[-1])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.softmax(-1).gather(-1, labels.unsqueeze(-1).long()).squeeze(-1)


def _check_labels(labels: Tensor, n: int, classes: int) -> None:
    if labels.shape != (n,) or labels.is_floating_point():
        raise ValueError(f"labels must be {n} integers, got {labels.dtype} of shape {tuple(labels.shape)}")
    if n and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must be in [0, {classes - 1}], got {labels.min().item()} to {labels.max().item()}")
