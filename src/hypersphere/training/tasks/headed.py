"""Any network with any head: what a task needs of a network is its features, wherever they come from."""

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from ...models import Network
from ...recognition.networks import embedding


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
