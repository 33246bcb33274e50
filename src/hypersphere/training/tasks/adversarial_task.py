"""Training against FGSM, and accuracy under attack (4.6.2, C.1.2 and C.1.3 of Liu, 2020)."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data import PicturePreprocessing
from ...evaluation import adversarial_loss, bim, fgsm, pgd
from ...evaluation.attacks import predict_classes
from ..run_folder import stored_document
from ..weights import start_from
from .classification import Classification, TaskOptions


class Adversarial(Classification):
    """Classification whose loss is the mean over images and their FGSM examples, with accuracies under attack.

    Attacks change pixels in [0, 1], so ε and the step are in these units. The normalization of the inputs is part of the
    attacked network. The networks of the authors' code begin with (rgb − 127.5)/128 as well, because an operator of the angle
    needs centered inputs. Training attacks the loss of the head, including its margin; evaluation attacks the cross-entropy of
    the logits. The defaults are those of C.1.2: ε = 8, τ = 2 of 255 gray levels, N = 20.

    Args:
        epsilon: largest change of a pixel.
        step: change of a pixel in one iteration.
        iterations: iterations of BIM and PGD.
        attacked: weight of the attacked images in the training loss; 0 is natural training.
        attacked_images: number of measured images that are attacked at every evaluation.
        surrogate: folder of a run of this task. Its network is attacked to make the examples for the black-box accuracies
            (C.1.3, table 4.8); None leaves these accuracies out.

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
        surrogate: str | None = None,
        **options: Unpack[TaskOptions],
    ):
        preprocessing = options.get("preprocessing")
        if preprocessing is not None and not isinstance(preprocessing, PicturePreprocessing):
            raise ValueError(
                "preprocessing must have a mean and deviation per channel, so normalize must not be pixel_mean, got "
                f"{preprocessing!r}"
            )
        # Batches contain pixels in [0, 1], because attacks change pixels. The attacked networks begin with the normalization.
        self._to_pixels = None if preprocessing is None else preprocessing.with_statistics(0.0, 1.0)
        options["preprocessing"] = self._to_pixels
        super().__init__(model, head, train, measured, **options)
        self.preprocessing = preprocessing
        if not (0 < epsilon <= 1 and 0 < step <= 1 and 0 <= attacked <= 1):
            raise ValueError(
                f"epsilon and step must lie in (0, 1], attacked in [0, 1], got {epsilon}, {step}, {attacked}"
            )
        if min(iterations, attacked_images) < 1:
            raise ValueError(f"iterations and attacked_images must be ≥ 1, got {iterations} and {attacked_images}")
        sample = self.pixels(self.train_samples.batch(torch.arange(1))[0])
        if float(sample.min()) < 0 or float(sample.max()) > 1:
            raise ValueError("samples must be integer pixels or lie in [0, 1] for attacks of size ε")
        self.epsilon, self.step_size, self.iterations = epsilon, step, iterations
        self.attacked, self.attacked_images = attacked, attacked_images
        # In a tuple, so that it is no submodule: it is neither trained nor saved with this network.
        self._surrogate = None if surrogate is None else (load_surrogate(surrogate, tuple(sample.shape[1:])),)

    def pixels(self, raw: Tensor) -> Float[Tensor, "b c h w"]:
        """Return stored samples as pixels in [0, 1], the input of attacks."""
        return raw if self._to_pixels is None else self._to_pixels.normalize(raw)

    def build_pixel_network(self, network: nn.Module | None = None) -> nn.Module:
        """Return a network, by default that of the task, as a function of pixels in [0, 1]."""
        return PixelNetwork(self.model if network is None else network, self._normalize)

    def objectives(self, inputs: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]) -> dict[str, Tensor]:
        """Return ``(1 − attacked)·J(x, y) + attacked·J(x̃, y)`` of pixels."""
        if self.attacked == 0:
            return super().objectives(self._normalize(inputs), labels)
        head, body = self.model.classifier, self.build_pixel_network(Body(self.model))
        return {"objective": adversarial_loss(body, inputs, labels, self.epsilon, weight=self.attacked, loss=head)}

    def evaluate(self) -> dict[str, float]:
        """Return accuracies in percent: of all measured images, and of the attacked ones without attack, under FGSM, BIM and PGD."""
        count = min(self.attacked_images, len(self.measured_samples))
        network, correct = self.build_pixel_network(), dict[str, int]()
        for i, index in enumerate(torch.arange(count).split(128)):
            raw, labels = self.measured_samples.batch(index)
            x, y = self.pixels(raw.to(self.device)), labels.to(self.device)
            examples = {
                "unattacked": x,
                "fgsm": fgsm(network, x, y, self.epsilon),
                "bim": bim(network, x, y, self.epsilon, self.step_size, self.iterations),
                "pgd": pgd(network, x, y, self.epsilon, self.step_size, self.iterations, seed=i),
            }
            if self._surrogate is not None:
                other = self._surrogate[0].to(self.device)
                examples["black_box_fgsm"] = fgsm(other, x, y, self.epsilon)
                examples["black_box_bim"] = bim(other, x, y, self.epsilon, self.step_size, self.iterations)
            for name, images in examples.items():
                correct[name] = correct.get(name, 0) + int((predict_classes(network, images) == y).sum())
        return {**super().evaluate(), **{f"{name}_accuracy": 100 * number / count for name, number in correct.items()}}


class Body(nn.Module):
    """A network up to its features, for a loss that is a head."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Float[Tensor, "b d"]:
        """Return the features."""
        features: Tensor = self.model.features(x)
        return features


class PixelNetwork(nn.Module):
    """A network preceded by the normalization of its inputs, so that attacks see both."""

    def __init__(self, network: nn.Module, normalize: Callable[[Tensor], Tensor]):
        super().__init__()
        self.network, self.normalize = network, normalize

    def forward(self, x: Float[Tensor, "b c h w"]) -> Tensor:
        """Return the output of the network for the normalized pixels."""
        output: Tensor = self.network(self.normalize(x))
        return output


def load_surrogate(folder: str, shape: tuple[int, ...]) -> nn.Module:
    """Return the trained network of a run as a function of pixels in [0, 1].

    Args:
        folder: The folder of a run of :class:`Adversarial`; ``task.attacked=0`` is natural training.
        shape: The shape of an image, which must be that of the run's images.

    Raises:
        ValueError: If the folder contains no such run, or its images have another shape.
    """
    from ..build import build_task  # imported here because it imports this module
    from ..settings import from_document

    config = from_document(stored_document(folder))
    if config.task.target is not Adversarial:
        raise ValueError(
            f"surrogate must be the folder of a run of Adversarial, got one of {config.task.name}: {folder}"
        )
    with torch.random.fork_rng():
        # The file of final weights contains merged rotations, so the network is built without orthogonal training.
        task = build_task(config.replace({"task.surrogate": None}, orthogonal=None))
    assert isinstance(task, Adversarial)
    start_from(task.model, folder)
    surrogate_shape = tuple(task.pixels(task.train_samples.batch(torch.arange(1))[0]).shape[1:])
    if surrogate_shape != shape:
        raise ValueError(f"surrogate must be a network of images of shape {shape}, got {surrogate_shape}: {folder}")
    return task.build_pixel_network().eval().requires_grad_(False)
