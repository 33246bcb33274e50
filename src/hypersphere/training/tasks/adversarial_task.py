"""Training against FGSM, and accuracy under attack (4.6.2 and C.1.2 of Liu, 2020)."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...evaluation import adversarial_loss, bim, fgsm, pgd
from .classification import Classification, TaskOptions


class Adversarial(Classification):
    """Classification whose loss is half that of the images and half that of their FGSM neighbours, measured under attack.

    Inputs lie in [0, 1] (``normalize=unit``), so that ε and the attacks' bounds mean what they say. What is attacked
    is the head's own loss in training, margin included, and the cross-entropy of the logits in evaluation. The defaults are
    those of C.1.2: ε = 8, τ = 2 of 255 grey levels, N = 20.

    Args:
        epsilon: largest change of a pixel.
        step: change of a pixel in one iteration.
        iterations: of BIM and PGD.
        attacked: weight of the attacked images in the training loss; 0 is natural training.
        attacked_images: measured images that are attacked at every evaluation, the first ones.

    >>> from hypersphere.training import Adversarial, call
    >>> data = hs.data.InMemory(torch.rand(12, 1, 4, 4), torch.arange(12) % 3, ("a", "b", "c"))
    >>> task = Adversarial(torch.nn.Flatten(), call(hs.objectives.Softmax), data, iterations=2)
    >>> [name for name in task.evaluate() if name.endswith("_accuracy")]
    ['balanced_accuracy', 'unattacked_accuracy', 'fgsm_accuracy', 'bim_accuracy', 'pgd_accuracy']
    """

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        epsilon: float = 8 / 255,
        step: float = 2 / 255,
        iterations: int = 20,
        attacked: float = 0.5,
        attacked_images: int = 512,
        **options: Unpack[TaskOptions],
    ):
        super().__init__(model, head, train, measured, **options)
        if not (0 < epsilon <= 1 and 0 < step <= 1 and 0 <= attacked <= 1):
            raise ValueError(
                f"epsilon and step must lie in (0, 1], attacked in [0, 1], got {epsilon}, {step}, {attacked}"
            )
        if min(iterations, attacked_images) < 1:
            raise ValueError(f"iterations and attacked_images must be ≥ 1, got {iterations} and {attacked_images}")
        sample = self._normalize(self.train_samples.batch(torch.arange(1))[0])
        if float(sample.min()) < 0 or float(sample.max()) > 1:
            raise ValueError("inputs must lie in [0, 1] for attacks of size ε: set normalize=unit")
        self.epsilon, self.step_size, self.iterations = epsilon, step, iterations
        self.attacked, self.attacked_images = attacked, attacked_images

    def objectives(self, inputs: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]) -> dict[str, Tensor]:
        """``(1 − attacked)·J(x, y) + attacked·J(x̃, y)``."""
        if self.attacked == 0:
            return super().objectives(inputs, labels)
        head, body = self.model.classifier, Body(self.model)
        return {"objective": adversarial_loss(body, inputs, labels, self.epsilon, weight=self.attacked, loss=head)}

    def evaluate(self) -> dict[str, float]:
        """Accuracy in percent on the measured images, and on the first of them as they are and under FGSM, BIM and PGD."""
        count = min(self.attacked_images, len(self.measured_samples))
        right: dict[str, int] = {"unattacked": 0, "fgsm": 0, "bim": 0, "pgd": 0}
        for i, index in enumerate(torch.arange(count).split(128)):
            raw, labels = self.measured_samples.batch(index)
            x, y = self._normalize(raw.to(self.device)), labels.to(self.device)
            made = {
                "unattacked": x,
                "fgsm": fgsm(self.model, x, y, self.epsilon),
                "bim": bim(self.model, x, y, self.epsilon, self.step_size, self.iterations),
                "pgd": pgd(self.model, x, y, self.epsilon, self.step_size, self.iterations, seed=i),
            }
            for name, images in made.items():
                right[name] += int((self.model(images).argmax(1) == y).sum())
        return {**super().evaluate(), **{f"{name}_accuracy": 100 * number / count for name, number in right.items()}}


class Body(nn.Module):
    """A network up to its features, for a loss that is a head."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """The features."""
        features: Tensor = self.model.features(x)
        return features
