"""Rotations as products of a few Householder reflections (HRA)."""

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast, normalize
from .rotation import Rotation

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class ReflectionRotation(Rotation):
    r"""R = H₁H₂⋯H_r with H_i = I − 2u_i u_iᵀ/‖u_i‖² (HRA; Yuan et al., 2024), r even.

    The vectors start in equal pairs, so that the two reflections of a pair cancel. A pair with unit vectors u and
    v = u − δ is computed as H_u H_v = I − 2u(δ + ‖δ‖²v)ᵀ + 2δvᵀ, which is the same matrix and exactly I at δ = 0. The
    product of all reflections is I + P Qᵀ, where P and Q have r columns. It costs as much as a LoRA of rank r.
    """

    def __init__(
        self, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(method, parts, n, like, generator)
        self.rank = choose_rank(method, n)
        self.raw = nn.Parameter(torch.empty(parts, n, self.rank, dtype=accumulation_dtype(like), device=like.device))
        self.reset(generator)

    @classmethod
    def explain_misfit(cls, method: "TuningMethod", n: int) -> str | None:
        """Return None, because reflections exist for every size."""
        return None

    @classmethod
    def describe(cls, method: "TuningMethod", n: int) -> str:
        """Describe the number of reflections."""
        return f"{choose_rank(method, n)} reflections"

    @property
    def cost(self) -> int:
        """Twice the number of reflections, for two thin products."""
        return 2 * self.rank

    @property
    def freedom(self) -> int:
        """The dimension of one unit vector per reflection."""
        return self.parts * self.rank * (self.n - 1)

    def factors(self) -> tuple[Float[Tensor, "parts n r"], Float[Tensor, "parts n r"]]:
        """Return P and Q of R = I + P Qᵀ."""
        units = normalize(self.raw.to(accumulation_dtype(self.raw)), dim=-2)
        p: list[Tensor] = []
        q: list[Tensor] = []
        for u, v in zip(units[..., 0::2].unbind(-1), units[..., 1::2].unbind(-1), strict=True):
            delta = u - v
            squared = delta.square().sum(-1, keepdim=True)
            left = 2 * torch.stack([-u, delta], -1)
            right = torch.stack([delta + squared * v, v], -1)
            if p:  # (I + P Qᵀ)(I + L Rᵀ) = I + [P, L + P QᵀL][Q, R]ᵀ
                left = left + torch.cat(p, -1) @ (torch.cat(q, -1).mT @ left)
            p.append(left)
            q.append(right)
        return torch.cat(p, -1), torch.cat(q, -1)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        with disable_autocast(rows.device.type):
            p, q = self.factors()
            wide = rows.to(p.dtype)
            change = (wide @ p) @ q.mT if transpose else (wide @ q) @ p.mT
            return (wide + change).to(rows.dtype)

    def rewind(self, t: float) -> None:
        """Rotate the second vector of each pair towards the first, which multiplies the rotation angle of the pair by t."""
        with torch.no_grad():
            u = normalize(self.raw[..., 0::2], dim=-2)
            v = normalize(self.raw[..., 1::2], dim=-2)
            cos = (u * v).sum(-2, keepdim=True)
            tangent = v - cos * u
            angle = t * torch.atan2(torch.linalg.vector_norm(tangent, dim=-2, keepdim=True), cos)
            self.raw[..., 0::2] = u
            self.raw[..., 1::2] = angle.cos() * u + angle.sin() * normalize(tangent, dim=-2)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw pairs of equal vectors from the distribution of a new Linear layer's weight, as in HRA."""
        with torch.no_grad():
            half = torch.rand(
                self.parts, self.n, self.rank // 2, dtype=self.raw.dtype, device=self.raw.device, generator=generator
            )
            self.raw.copy_(((2 * half - 1) / math.sqrt(self.n)).repeat_interleave(2, -1))


def choose_rank(method: "TuningMethod", n: int) -> int:
    """Return the number of reflections for ``n`` numbers: that of the method, at most the largest even number up to n."""
    return min(method.rank or 2, n - n % 2)
