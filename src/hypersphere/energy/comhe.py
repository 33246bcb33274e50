"""Compressive MHE: the energy of neurons after a projection to few dimensions, where it is easier to lower."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..neurons import Selectors
from .kernels import Distance, Kernel
from .mhe import MHE
from .projections import Projection, RandomProjection


class CoMHE(MHE):
    r"""Σ_{i≠j} f_s(‖g(ŵ_i) − g(ŵ_j)‖), g(v) = Pv/‖Pv‖, for the hidden layers  (eq. 6.3); MHE for the output layer.

    Half space by default; λ_h = λ_o = 1 in both spaces (E.1). Layers of equal dimension share their basis (6.3.6); ``shared=False``
    gives each its own. Call :meth:`step` once per training step: it redraws or learns the bases when they are due.
    Bases, counters and the state of the generator are in the ``state_dict``, so training resumes exactly. All processes
    of a distributed run draw the same bases, from the projection's seed. ``projection`` is 30-dimensional and random
    unless given; the other arguments are those of :class:`MHE`.

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
        for name, weight in self._hidden().items():
            kernel_size = getattr(self._layers[name].module, "kernel_size", ())
            self.projection.bind(name, weight, area=math.prod(kernel_size), shared=shared)

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the energy of each hidden layer's projected neurons."""
        return self.projection.energies(weights, self.energy)

    @torch.no_grad()
    def step(self) -> None:
        """Redraw or learn the bases that are due. Call once per training step."""
        super().step()
        self.projection.step(self._hidden(), self.energy)

    def _hidden(self) -> dict[str, Tensor]:
        return {name: layer.rows() for name, layer in self._layers.items() if name != self.classifier}
