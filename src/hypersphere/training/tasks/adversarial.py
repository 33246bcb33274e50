"""Training against FGSM, and accuracy under attack (4.6.2, C.1.2)."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from ... import models
from ...data import InMemory
from ...evaluation import adversarial_loss, bim, fgsm, pgd
from ...objectives import MarginSoftmax
from ..config import Config
from ..datasets import prepared
from .classification import Classification


class Adversarial(Classification):
    """Classification whose training loss is half that of the images and half that of their FGSM neighbours, measured under attack.

    Images lie in [0, 1] (``data.normalize=unit``), so that ε and the attacks' bounds mean what they say. What is attacked is the head's
    own loss in training, margin included, and the cross-entropy of the logits in evaluation.
    """

    def __init__(self, config: Config):
        if config.data.normalize != "unit":
            raise ValueError(
                f"data.normalize must be unit for the task adversarial, whose ε is a part of [0, 1], got {config.data.normalize}"
            )
        super().__init__(config)

    def objective(self, inputs: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]) -> Tensor:
        """``(1 − weight)·J(x, y) + weight·J(x̃, y)``."""
        head, attack = self.model.classifier, self.config.attack
        assert isinstance(head, MarginSoftmax)
        if attack.weight == 0:
            return super().objective(inputs, labels)
        return adversarial_loss(Body(self.model), inputs, labels, attack.epsilon, weight=attack.weight, loss=head)

    def evaluate(self) -> dict[str, float]:
        """Accuracy in percent on the measured images, and on the first of them as they are and under FGSM, BIM and PGD."""
        attack, count = self.config.attack, self.config.attack.images
        some = InMemory(self.measured.data[:count], self.measured.labels[:count], self.measured.classes)
        right: dict[str, int] = {"unattacked": 0, "fgsm": 0, "bim": 0, "pgd": 0}
        for i, (part, labels) in enumerate(zip(some.data.split(128), some.labels.split(128), strict=True)):
            x, y = prepared(part.to(self.device), self.normalize), labels.to(self.device)
            made = {
                "unattacked": x,
                "fgsm": fgsm(self.model, x, y, attack.epsilon),
                "bim": bim(self.model, x, y, attack.epsilon, attack.step, attack.iterations),
                "pgd": pgd(self.model, x, y, attack.epsilon, attack.step, attack.iterations, seed=i),
            }
            for name, images in made.items():
                right[name] += int((self.model(images).argmax(1) == y).sum())
        return {
            **super().evaluate(),
            **{f"{name}_accuracy": 100 * number / len(some) for name, number in right.items()},
        }


class Body(nn.Module):
    """A network up to its features, for a loss that is a head."""

    def __init__(self, model: models.Network):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """The features."""
        return self.model.features(x)
