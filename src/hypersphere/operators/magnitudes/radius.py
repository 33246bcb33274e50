r"""The operator radius ρ, fixed or learned (4.3.6, C.1–C.3)."""

import copy
import math
from abc import abstractmethod
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry.fast_norms import MIN_NORM, per_neuron
from .magnitude import Magnitude, Weighting, check_positive

Self = TypeVar("Self", bound="WithRadius")


class Radius(nn.Module):
    r"""A constant ρ, or ρ·E‖x‖ with one learned ρ per neuron (C.1).

    The mean patch norm E‖x‖ works like the statistics of BatchNorm. In training it is the mean of the batch, and
    gradients flow through it. In evaluation it is a running mean (``momentum`` 0.1), which is 1 before the first batch.
    The parameter is log ρ, and ρ is clamped to [10⁻³, 10³], so it stays positive. Every neuron has its own mean, as in
    Liu (2020, C.1); neurons that see the same patches have the same mean. Each process of a DistributedDataParallel group
    uses the mean of its own batch, and the buffers of the first process are broadcast, as for BatchNorm.

    >>> Radius(2.0)(torch.tensor([5.0, 7.0]))
    tensor(2.)
    >>> radius = Radius(1.0, learnable=True)
    >>> radius.bind(neurons=1)
    >>> radius(torch.tensor([[5.0], [7.0]])).detach()
    tensor([6.])
    """

    log_rho: nn.Parameter | None
    running_norm: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, radius: float = 1.0, learnable: bool = False, momentum: float = 0.1):
        super().__init__()
        self.start, self.learnable, self.momentum = check_positive("radius", radius), learnable, momentum
        self.register_parameter("log_rho", None)
        self.register_buffer("running_norm", None)
        self.register_buffer("num_batches_tracked", None)

    def bind(self, neurons: int) -> None:
        """Give each neuron its own ρ and mean."""
        self.log_rho = nn.Parameter(torch.full((neurons,), math.log(self.start)))
        self.running_norm = torch.ones(neurons)
        self.num_batches_tracked = torch.tensor(0)

    def rho(self, like: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return ρ without the mean norm, shaped for the neurons' axis ``dim``."""
        if not self.learnable:
            return like.new_full((), self.start)
        if self.log_rho is None:
            raise ValueError(
                "a learned radius needs the number of neurons: pass the magnitude to a layer, call for_neurons(n) first, "
                "or set learnable_radius=False"
            )
        return per_neuron(self.log_rho.to(like.dtype).clamp(math.log(1e-3), math.log(1e3)).exp(), -dim)

    def forward(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return ρ, or ρ·E‖x‖ of these patch norms, shaped for the neurons' axis ``dim``."""
        rho = self.rho(x_norm, dim)
        if self.log_rho is None:
            return rho
        return rho * per_neuron(self._update_mean(x_norm, dim).to(rho.dtype), -dim).clamp_min(MIN_NORM)

    def _update_mean(self, x_norm: Tensor, dim: int) -> Tensor:
        """Return E‖x‖ for each neuron; in training, also update the running mean."""
        assert self.running_norm is not None
        assert self.num_batches_tracked is not None
        if not self.training or x_norm.numel() == 0:
            return self.running_norm
        others = [axis for axis in range(x_norm.ndim) if axis != x_norm.ndim + dim]
        mean = x_norm.mean(others).expand(self.running_norm.shape)
        with torch.no_grad():
            self.running_norm.lerp_(mean.detach().to(self.running_norm.dtype), self.momentum)
            self.num_batches_tracked.add_(1)
        return mean

    def extra_repr(self) -> str:
        """Return the initial ρ and whether it is learned."""
        return f"{self.start:g}, learnable={self.learnable}"


class WithRadius(Magnitude):
    """A magnitude with an operator radius ρ: Ball, Tanh and Seg. h/‖x‖ is homogeneous in ‖x‖ and ρ together.

    Attributes:
        degree: The degree k of h/‖x‖: multiplying both ‖x‖ and ρ by c multiplies it by c^k.
        shortest: Smaller ‖x‖ have the gain of a patch of this length.
    """

    alpha: float
    degree: ClassVar[int] = -1
    shortest: ClassVar[float] = 0.0

    def __init__(
        self, alpha: float = 1.0, radius: float = 1.0, *, learnable_radius: bool = True, weighted: Weighting = None
    ):
        super().__init__(weighted)
        self.alpha, self.radius = check_positive("alpha", alpha), Radius(radius, learnable_radius)

    @property
    def gain_by_neuron(self) -> bool:
        """Whether h/‖x‖ is :meth:`gain_within` of ‖x‖ and the ρ of each neuron."""
        return self.radius.learnable

    @abstractmethod
    def gain_within(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return h/‖x‖ for a given ρ; the two broadcast."""

    def gain_into(self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], out: Float[Tensor, "..."]) -> None:
        """Write :meth:`gain_within` into ``out`` without a graph. Subclasses override it to save time."""
        out.copy_(self.gain_within(x_norm, radius))

    @abstractmethod
    def radius_slope(
        self, x_norm: Float[Tensor, "..."], radius: Float[Tensor, "..."], gain: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Return ρ·∂(h/‖x‖)/∂ρ from ‖x‖, ρ and h/‖x‖ as a new tensor of the size of ``gain``, without a graph."""

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return h/‖x‖ with the layer's own ρ."""
        return self.gain_within(x_norm, self.radius(x_norm, dim))

    def for_neurons(self: Self, neurons: int) -> Self:
        """Return a copy with its own radii if they are learned, otherwise self."""
        if not self.radius.learnable:
            return self
        own = copy.deepcopy(self)
        own.radius.bind(neurons)
        return own
