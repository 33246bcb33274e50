"""Images with values in [0, 1], as generative tasks need them."""

from jaxtyping import Float
from torch import Tensor

from ..datasets import Normalizer


def normalize_to_unit(images: Tensor, preprocessing: Normalizer | None, task: str) -> Float[Tensor, "n c h w"]:
    """Return stored images as inputs, which must lie in [0, 1].

    Args:
        images: Samples as the dataset gives them.
        preprocessing: How stored samples become inputs; None leaves them as they are.
        task: The name of the task, for the message.

    Raises:
        ValueError: If a value lies outside of [0, 1].
    """
    scaled = images if preprocessing is None else preprocessing.normalize(images)
    if float(scaled.min()) < 0 or float(scaled.max()) > 1:
        raise ValueError(f"inputs must lie in [0, 1] for the task {task}: set normalize=unit")
    return scaled
