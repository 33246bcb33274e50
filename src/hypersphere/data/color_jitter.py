"""Random changes of brightness, contrast, saturation and hue."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .augment import Augmentation, Uniforms, restore_dtype, to_floating_point

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601
# The matrix from RGB to YIQ: luma and two color axes. Hue is the angle in the plane of the two color axes.
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


class ColorJitter(Augmentation):
    """Random changes of brightness, contrast, saturation and hue, in this order.

    Brightness maps a pixel x to b·x, contrast to m + c·(x − m) with the mean luma m of the image, and saturation to
    y + s·(x − y) with the luma y of the pixel. The factors b, c and s are uniform in 1 ± ``brightness``, 1 ± ``contrast`` and
    1 ± ``saturation``. Hue rotates the colors in the YIQ plane by an angle that is uniform in ± ``hue`` radians. Saturation and
    hue change only RGB images. Integers are rounded and clamped to their range. Apply it before the normalization.

    >>> ColorJitter(brightness=0.5)(torch.full((1, 1, 1, 1), 100.0), torch.tensor([[0.0, 0.5, 0.5, 0.5]])).item()
    50.0
    """

    def __init__(self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0):
        if not all(0 <= value <= 1 for value in (brightness, contrast, saturation)) or not 0 <= hue <= math.pi:
            raise ValueError(
                "brightness, contrast and saturation must lie in 0 … 1 and hue in 0 … π, "
                f"got {brightness}, {contrast}, {saturation} and {hue}"
            )
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: three factors and an angle."""
        return 4

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Return the jittered images."""
        x, v = to_floating_point(batch), 2 * u.double() - 1
        limit = math.inf if batch.is_floating_point() else torch.iinfo(batch.dtype).max

        def factor(column: int, spread: float) -> Tensor:
            return (1 + spread * v[:, column]).to(x)[:, None, None, None]

        x = (x * factor(0, self.brightness)).clamp(max=limit)
        mean = _compute_luma(x).mean((2, 3), keepdim=True)
        x = (mean + factor(1, self.contrast) * (x - mean)).clamp(max=limit)
        if batch.shape[1] == 3:
            luma = _compute_luma(x)
            x = luma + factor(2, self.saturation) * (x - luma)
            if self.hue:
                x = torch.einsum("bij,bjhw->bihw", _build_hue_rotations(self.hue * v[:, 3]).to(x), x)
        return restore_dtype(x, batch)


def _compute_luma(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1 h w"]:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(_LUMA).reshape(3, 1, 1)).sum(1, keepdim=True)


def _build_hue_rotations(angle: Float[Tensor, "b"]) -> Float[Tensor, "b 3 3"]:
    """Return RGB matrices that rotate the hue by each angle (radians) and preserve luma."""
    basis = torch.tensor(_YIQ, dtype=angle.dtype)
    rotation = torch.zeros(len(angle), 3, 3, dtype=angle.dtype)
    rotation[:, 0, 0] = 1
    rotation[:, 1, 1] = rotation[:, 2, 2] = angle.cos()
    rotation[:, 2, 1] = angle.sin()
    rotation[:, 1, 2] = -angle.sin()
    return torch.linalg.inv(basis) @ rotation @ basis
