"""White-box attacks within an ℓ∞ ball: FGSM, BIM and PGD (C.1.2), and adversarial training with FGSM."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.streams import NOISE, Stream
from ..models.network import evaluation_mode

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Bounds: TypeAlias = tuple[float, float]
EPSILON, STEP, ITERATIONS = 8 / 255, 2 / 255, 20  # C.1.2: ε = 8, τ = 2, N = 20 of 255 gray levels


def fgsm(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    epsilon: float = EPSILON,
    *,
    bounds: Bounds = (0.0, 1.0),
    loss: Loss = F.cross_entropy,
) -> Float[Tensor, "n ..."]:
    r"""Attack with one step that increases the loss: x̃ = clip(x + ε·sign ∇ₓ J(x, y)), so that ‖x̃ − x‖_∞ ≤ ε (C.1.2).

    All attacks run the model in evaluation mode and restore the mode of each module. Parameters receive no gradient.

    Args:
        model: Network that returns logits.
        images: Images within ``bounds``.
        labels: Their classes.
        epsilon: Radius ε of the ball.
        bounds: Smallest and largest pixel value.
        loss: Loss J of logits and labels.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> model.weight.data = torch.eye(2)
    >>> fgsm(model, torch.tensor([[0.5, 0.5]]), torch.tensor([0]), epsilon=0.25)
    tensor([[0.2500, 0.7500]])
    """
    return bim(model, images, labels, epsilon, epsilon, 1, bounds=bounds, loss=loss)


def bim(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    epsilon: float = EPSILON,
    step: float = STEP,
    iterations: int = ITERATIONS,
    *,
    bounds: Bounds = (0.0, 1.0),
    loss: Loss = F.cross_entropy,
    start: Float[Tensor, "n ..."] | None = None,
) -> Float[Tensor, "n ..."]:
    r"""Attack with the basic iterative method: ``iterations`` signed gradient steps of length ``step``.

    After each step, the image is clipped to the ball and to the bounds. ``start`` is the starting point, by default the
    images. The other arguments are those of :func:`fgsm`.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> model.weight.data = torch.eye(2)
    >>> bim(model, torch.tensor([[0.5, 0.5]]), torch.tensor([0]), epsilon=0.25, step=0.1, iterations=2)
    tensor([[0.3000, 0.7000]])
    """
    check_images(images, epsilon, bounds)
    if not step > 0 or iterations < 1:
        raise ValueError(f"step must be > 0 and iterations ≥ 1, got {step!r} and {iterations!r}")
    images = images.detach()
    x = images if start is None else start
    with evaluation_mode(model):
        for _ in range(iterations):
            x = x + step * input_gradient(model, x, labels, loss).sign()
            x = (images + (x - images).clamp(-epsilon, epsilon)).clamp(*bounds)
    return x


def pgd(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    epsilon: float = EPSILON,
    step: float = STEP,
    iterations: int = ITERATIONS,
    *,
    restarts: int = 1,
    seed: int = 0,
    bounds: Bounds = (0.0, 1.0),
    loss: Loss = F.cross_entropy,
) -> Float[Tensor, "n ..."]:
    """Attack with :func:`bim` from uniformly random points of the ball.

    For each image, the result is that of the first of ``restarts`` attacks that fools the model, or of the last. ``seed``
    determines the random points. The other arguments are those of :func:`bim`.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> model.weight.data = torch.eye(2)
    >>> pgd(model, torch.tensor([[0.5, 0.5]]), torch.tensor([0]), epsilon=0.25, step=0.1, iterations=10)
    tensor([[0.2500, 0.7500]])
    """
    if restarts < 1:
        raise ValueError(f"restarts must be an integer ≥ 1, got {restarts!r}")
    best, fooled = images.detach(), torch.zeros(len(images), dtype=torch.bool, device=images.device)
    for restart in range(restarts):
        start = random_noise(images, epsilon, bounds=bounds, seed=seed, index=restart + 1)
        x = bim(model, images, labels, epsilon, step, iterations, bounds=bounds, loss=loss, start=start)
        best = torch.where(fooled.view(-1, *[1] * (x.ndim - 1)), best, x)
        fooled = predict_classes(model, best) != labels
    return best


def random_noise(
    images: Float[Tensor, "n ..."],
    epsilon: float = EPSILON,
    *,
    bounds: Bounds = (0.0, 1.0),
    seed: int = 0,
    index: int = 0,
) -> Float[Tensor, "n ..."]:
    """Return a uniformly random point of the ball of each image: an attack without gradient, which should be the weakest.

    The noise depends only on ``seed``, ``index`` and the shape.

    >>> images = torch.full((2, 3), 0.5)
    >>> noisy = random_noise(images, epsilon=0.1)
    >>> bool(((noisy - images).abs() <= 0.1).all()), torch.equal(noisy, random_noise(images, epsilon=0.1))
    (True, True)
    """
    check_images(images, epsilon, bounds)
    noise = (2 * Stream(seed, NOISE, index).uniforms(images.numel()) - 1).view(images.shape).to(images)
    return (images.detach() + epsilon * noise).clamp(*bounds)


def adversarial_loss(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    epsilon: float = EPSILON,
    *,
    weight: float = 0.5,
    bounds: Bounds = (0.0, 1.0),
    loss: Loss = F.cross_entropy,
) -> Float[Tensor, ""]:
    r"""Return the loss of FGSM adversarial training: (1 − weight)·J(x, y) + weight·J(x̃, y), with the FGSM image x̃ of the current model.

    x̃ is computed in evaluation mode, without an update of BatchNorm statistics. The loss is computed in the current mode of
    the model. x̃ is treated as a constant in its gradient.

    >>> model, images, labels = torch.nn.Linear(4, 2), torch.rand(8, 4), torch.arange(8) % 2
    >>> loss = adversarial_loss(model, images, labels, epsilon=0.1)
    >>> loss.backward()
    >>> bool(loss > torch.nn.functional.cross_entropy(model(images), labels))
    True
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be between 0 and 1, got {weight!r}")
    adversarial = fgsm(model, images, labels, epsilon, bounds=bounds, loss=loss)
    return (1 - weight) * loss(model(images), labels) + weight * loss(model(adversarial), labels)


def input_gradient(model: nn.Module, x: Tensor, labels: Tensor, loss: Loss = F.cross_entropy) -> Tensor:
    """Return ∇ₓ J. Parameters and other inputs of the graph receive no gradient."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        # A mean over the batch would divide the gradient by the batch size and underflow in half precision.
        (gradient,) = torch.autograd.grad(loss(model(x), labels) * len(x), x)
    return gradient


@torch.no_grad()
def predict_classes(model: nn.Module, images: Tensor, batch: int = 512) -> Int[Tensor, "n"]:
    """Return the predicted class of each image in evaluation mode."""
    with evaluation_mode(model):
        return torch.cat([model(part).argmax(1) for part in images.split(batch)])


def check_images(images: Tensor, epsilon: float, bounds: Bounds) -> None:
    """Raise ``ValueError`` if images lie outside their bounds, or if the ball or the bounds are empty."""
    low, high = bounds
    if not low < high or not epsilon > 0:
        raise ValueError(f"epsilon must be > 0 and bounds increasing, got {epsilon!r} and {bounds!r}")
    if not ((images >= low) & (images <= high)).all():
        raise ValueError(
            f"images must lie within bounds {bounds}, got {images.min().item():g} to {images.max().item():g}"
        )
