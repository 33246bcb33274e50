"""TanhConv's magnitude."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry.fast_norms import MIN_NORM, normalize_rows, per_neuron
from .radius import WithRadius


class Tanh(WithRadius):
    r"""h = α·tanh(‖x‖/ρ) (eq. 4.6, C.1): a smooth version of :class:`Ball`. The values are less than α.

    ``weighted="tanh_product"`` is α·tanh(‖x‖‖w‖/ρ) (eq. 4.15), ``"product_of_tanh"`` is α·tanh(‖w‖/ρ)·tanh(‖x‖/ρ)
    (eq. 4.16). If the radius is learned, ρ below ‖x‖ or ‖x‖‖w‖ is multiplied by the mean patch norm, and ρ
    below ‖w‖ alone is not.

    Args:
        alpha: Height α, 1 in C.2 of Liu (2020).
        radius: ρ, or its initial value if it is learned, 1 in C.1–C.3.
        learnable_radius: Whether every neuron learns a ρ that multiplies the mean patch norm (:class:`Radius`), as in
            Liu (2020).
        weighted: How h depends on ‖w‖ (4.3.5); None if it does not.

    >>> Tanh(radius=2.0, learnable_radius=False).radial(torch.tensor([0.0, 2.0, 50.0]))
    tensor([0.0000, 0.7616, 1.0000])
    """

    shortest = MIN_NORM
    weightings = (None, "linear", "tanh_product", "product_of_tanh")

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return α·tanh(‖x‖/ρ)."""
        return self.alpha * torch.tanh(x_norm / self.radius(x_norm, dim))

    @property
    def gain_by_neuron(self) -> bool:
        """Whether the radius is learned and the gain depends only on ‖x‖ and ρ, which is not so for the tanh of the product."""
        return self.radius.learnable and self.weighted != "tanh_product"

    def gain_within(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return α·tanh(‖x‖/ρ)/‖x‖, which is α/ρ at 0."""
        x_norm = x_norm.clamp_min(MIN_NORM)
        return self.alpha * torch.tanh(x_norm / radius) / x_norm

    def gain_into(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], out: Float[Tensor, "..."]) -> None:
        """Write the gain with tanh u = −e/(2 + e), e = exp(−2u) − 1, as accurate as torch.tanh and twice as fast."""
        x_norm = x_norm.clamp_min(MIN_NORM)
        torch.mul(x_norm, -2 / radius, out=out).expm1_()
        out.div_(out + 2).mul_(-self.alpha / x_norm)

    def radius_slope(
        self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], gain: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Return −(α/ρ)·(1 − tanh²(‖x‖/ρ))."""
        tanh = gain * (x_norm.clamp_min(MIN_NORM) / self.alpha)
        return tanh.square_().sub_(1).mul_(self.alpha / radius)

    def forward(
        self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1
    ) -> Float[Tensor, "..."]:
        """Return h(‖w‖, ‖x‖) by the chosen weighting."""
        if self.weighted == "tanh_product":
            return self.alpha * torch.tanh(x_norm * w_norm / self.radius(x_norm, dim))
        if self.weighted == "product_of_tanh":
            return self.radial(x_norm, dim) * torch.tanh(w_norm / self.radius.rho(x_norm, dim))
        return super().forward(w_norm, x_norm, dim)

    def kernel(self, weight: Float[Tensor, "neurons *rest"]) -> Float[Tensor, "neurons *rest"]:
        """Return tanh(‖w‖/ρ)·ŵ for the product of two tanh, w for the tanh of the product."""
        if self.weighted != "product_of_tanh":
            return super().kernel(weight)
        unit_weight, w_norm = normalize_rows(weight)
        dim = -weight.ndim
        return (unit_weight * torch.tanh(per_neuron(w_norm, weight.ndim) / self.radius.rho(w_norm, dim))).to(
            weight.dtype
        )

    def ratio(self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return, for the tanh of the product, α·tanh(z/ρ)/z with z = ‖x‖‖w‖, because the kernel is w itself."""
        if self.weighted != "tanh_product":
            return super().ratio(w_norm, x_norm, dim)
        return self.gain_within(x_norm * w_norm, self.radius(x_norm, dim))
