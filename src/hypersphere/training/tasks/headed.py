"""Any network with any head: what a task needs of a network is its features, wherever they come from."""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...models import Network


class Headed(nn.Module):
    """A module that gives features, and the head that classifies them; called like the networks of ``hypersphere.models``.

    >>> net = Headed(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    >>> net.features(torch.zeros(2, 4)).shape, net(torch.zeros(2, 4)).shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """

    def __init__(self, body: nn.Module, classifier: nn.Module | None):
        super().__init__()
        self.body = body
        self.classifier = classifier

    def features(self, x: Tensor) -> Float[Tensor, "b d"]:
        """The embedding of a batch."""
        return embedding(self.body, x)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or features without a head."""
        features = self.features(x)
        if self.classifier is None:
            return features
        return cast(Tensor, getattr(self.classifier, "logits", self.classifier)(features))


def with_head(model: nn.Module, head: nn.Module) -> nn.Module:
    """The network with its head: in the place a network of this library has for it, or beside any other module."""
    if isinstance(model, Network):
        model.classifier = head
        return model
    return Headed(model, head)


def embedding(model: nn.Module, x: Tensor) -> Float[Tensor, "b d"]:
    """Features of a batch by any network: its method ``features``, or its output.

    Outputs of ``transformers`` are pooled by the model's own pooler, or by the mean over tokens; maps (b, d, h, w) by the
    mean over positions.
    """
    method = getattr(model, "features", None)
    out: Any = method(x) if callable(method) and not isinstance(method, nn.Module) else model(x)
    if not isinstance(out, Tensor):
        pooled = getattr(out, "pooler_output", None)
        out = pooled if pooled is not None else getattr(out, "last_hidden_state", None)
        if out is None:
            raise ValueError(f"{type(model).__name__} must give features as a tensor, or as an output of transformers")
        if pooled is None and out.ndim == 3:
            out = out.mean(1)
    out = out.flatten(2).mean(2) if out.ndim > 2 else out
    if out.ndim != 2 or not out.is_floating_point():
        raise ValueError(f"{type(model).__name__} must give features of shape (batch, dim), got {tuple(out.shape)}")
    return cast(Tensor, out)


@torch.no_grad()
def feature_dim(model: nn.Module, sample: Tensor) -> int:
    """The dimension of a network's features: what it says, or what it gives for a batch."""
    known = getattr(model, "feature_dim", None)
    if isinstance(known, int):
        return known
    training = model.training
    model.eval()
    try:
        return int(embedding(model, sample).shape[1])
    finally:
        model.train(training)
