"""Compressive MHE: the energy of neurons projected to few dimensions, where it is easier to minimize."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..neurons import Selectors
from .kernels import Distance, Kernel
from .mhe import MHE
from .projections import Projection, RandomProjection


class CoMHE(MHE):
    r"""Σ_{i≠j} f_s(‖g(ŵ_i) − g(ŵ_j)‖) with g(v) = Pv/‖Pv‖ for the hidden layers  (eq. 6.3); MHE for the output layer.

    The defaults are half space and λ_h = λ_o = 1, in both spaces (E.1). Call :meth:`step` once per training step; it
    redraws or updates the bases when they are due. The ``state_dict`` has the bases, the counters and the state of the
    generator, so training resumes exactly. All processes of a distributed run draw the same bases, from the seed of the
    projection.

    Args:
        projection: The projection g; by default a random projection to 30 dimensions.
        shared: Whether layers of equal dimension share a basis (6.3.6).

    For the other arguments see :class:`MHE`.

    >>> net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    >>> comhe = CoMHE(net, RandomProjection(dim=8, count=2, every=100))
    >>> loss = comhe()  # + criterion(net(x), y)
    >>> loss.backward()
    >>> comhe.step()
    """

    def __init__(
        self,
        model: nn.Module,
        projection: Projection | None = None,
        hidden: float = 1.0,
        output: float = 1.0,
        s: float = 2,
        half_space: bool = True,
        distance: Distance = "euclidean",
        skip: Selectors = (),
        *,
        only: Selectors | None = None,
        classifier: nn.Module | str | Literal[False] | None = None,
        kernel: Kernel | None = None,
        data_dependent: bool = True,
        shared: bool = True,
    ):
        super().__init__(
            model,
            hidden,
            output,
            s,
            half_space,
            distance,
            skip,
            only=only,
            classifier=classifier,
            kernel=kernel,
            data_dependent=data_dependent,
        )
        self.projection = RandomProjection() if projection is None else projection
        for name, weight in self._get_hidden_weights().items():
            kernel_size = getattr(self._layers[name].module, "kernel_size", ())
            self.projection.bind(name, weight, area=math.prod(kernel_size), shared=shared)

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the energy of the projected neurons of each hidden layer."""
        return self.projection.energies(weights, self.energy)

    @torch.no_grad()
    def step(self) -> None:
        """Redraw or update the bases that are due. Call once per training step."""
        super().step()
        self.projection.step(self._get_hidden_weights(), self.energy)

    def _get_hidden_weights(self) -> dict[str, Tensor]:
        return {name: layer.rows() for name, layer in self._layers.items() if name != self.classifier}
