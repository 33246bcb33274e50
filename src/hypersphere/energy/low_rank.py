"""Low-rank bilateral CoMHE: layers parametrized by two small matrices, and the energy of these matrices (E.6)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..geometry import disable_autocast
from .hyperspherical import mean_energies
from .kernels import Distance, Kernel, choose_kernel


class LowRankBilateral(nn.Module):
    r"""W̃ = Y₂(P₁Y₂)⁻¹Y₁ with learned Y₁ (r × n), Y₂ (m × r) and a fixed random P₁ (r × m)  (eq. E.23).

    The columns of W̃ are the n neurons of m dimensions; the weight of the layer has them in rows. The layer has r(m + n)
    parameters instead of mn. The original weight is kept exactly if its rank is at most r, otherwise approximately.
    Register the parametrization with :func:`low_rank_bilateral`.

    >>> form = LowRankBilateral((6, 8), rank=2, dtype=torch.float64)
    >>> weight = torch.randn(6, 2).double() @ torch.randn(2, 8).double()
    >>> y1, y2 = form.right_inverse(weight)
    >>> torch.allclose(form(y1, y2), weight)
    True
    """

    projection: Tensor

    def __init__(self, shape: tuple[int, ...] | torch.Size, rank: int, seed: int = 0, dtype: torch.dtype | None = None):
        super().__init__()
        self.shape, n, m = tuple(shape), shape[0], math.prod(shape[1:])
        if not 1 <= rank <= min(m, n):
            raise ValueError(f"rank must be between 1 and {min(m, n)} for {n} neurons of {m} dimensions, got {rank!r}")
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("projection", torch.randn(rank, m, generator=generator, dtype=dtype) / math.sqrt(rank))
        self._mixing = torch.randn(n, rank, generator=generator, dtype=dtype) / math.sqrt(rank)

    def forward(
        self, y1: Float[Tensor, "rank neurons"], y2: Float[Tensor, "dim rank"]
    ) -> Float[Tensor, "neurons *dims"]:
        """Return the weight of the layer."""
        with disable_autocast(y1.device.type):
            return (y2 @ torch.linalg.solve(self.projection @ y2, y1)).T.reshape(self.shape)

    def right_inverse(self, weight: Float[Tensor, "neurons *dims"]) -> tuple[Tensor, Tensor]:
        """Return Y₁ = P₁W and Y₂ = WP₂ of a given weight."""
        columns = weight.flatten(1).T
        return self.projection @ columns, columns @ self._mixing.to(columns)


def low_rank_bilateral(layer: nn.Module, rank: int, seed: int = 0) -> nn.Module:
    """Parametrize the weight of a Linear or Conv layer by :class:`LowRankBilateral`, and return the layer.

    >>> layer = low_rank_bilateral(torch.nn.Linear(64, 32, bias=False), rank=4)
    >>> sum(p.numel() for p in layer.parameters())
    384
    """
    weight = layer.weight
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        raise ValueError(f"layer must have a weight of two or more dimensions, got {type(layer).__name__}")
    form = LowRankBilateral(weight.shape, rank, seed, weight.dtype).to(weight.device)
    return parametrize.register_parametrization(layer, "weight", form)


class LowRankEnergy(nn.Module):
    r"""Sum of λ_h·(E_s of the columns of Y₁ + E_s of the columns of Y₂) over all layers in the low-rank form  (E.6).

    ``hidden`` is λ_h. For the other arguments see :class:`~hypersphere.energy.MHE`.

    >>> net = torch.nn.Sequential(low_rank_bilateral(torch.nn.Linear(64, 32), rank=4), torch.nn.Linear(32, 10))
    >>> LowRankEnergy(net)().requires_grad
    True
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float = 1.0,
        s: float = 2,
        half_space: bool = True,
        distance: Distance = "euclidean",
        *,
        kernel: Kernel | None = None,
    ):
        super().__init__()
        if not 0 <= hidden < math.inf:
            raise ValueError(f"hidden must be a number ≥ 0, got {hidden!r}")
        lists = {name: m for name, m in model.named_modules() if isinstance(m, parametrize.ParametrizationList)}
        self._lists = {name: m for name, m in lists.items() if len(m) == 1 and isinstance(m[0], LowRankBilateral)}
        if not self._lists:
            raise ValueError(
                f"{type(model).__name__} has no layer in the low-rank form: use low_rank_bilateral(layer, rank) first"
            )
        self.hidden, self.kernel, self.half_space = hidden, choose_kernel(s, distance, kernel), half_space

    def per_layer(self) -> dict[str, Float[Tensor, ""]]:
        """Return the energy of the two factors of each layer, by the name of its parametrization."""
        return {
            name: self._energy(m.get_parameter("original0").T) + self._energy(m.get_parameter("original1").T)
            for name, m in self._lists.items()
        }

    def terms(self, labels: Tensor | None = None) -> dict[str, Float[Tensor, ""]]:
        """Return the weighted sum over the layers as the only term ``"hidden"``; labels are ignored."""
        return {"hidden": self.hidden * torch.stack(list(self.per_layer().values())).sum()}

    def forward(self, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the weighted sum over the layers."""
        return self.terms()["hidden"]

    def step(self) -> None:
        """Do nothing, because there are no schedules."""

    def _energy(self, points: Tensor) -> Tensor:
        return mean_energies(points.unsqueeze(0), self.kernel, self.half_space).squeeze(0)
