"""Minimum hyperspherical energy as a regulariser of a network."""

from collections.abc import Iterable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from ..neurons import Selector
from .hyperspherical import mean_energies
from .kernels import Distance, riesz_kernel
from .regularizer import Regularizer


class MHE(Regularizer):
    r"""λ_h·Σ_j E_s(layer j)/(N_j(N_j − 1)) + λ_o·E_s(output layer)/(N(N − 1))  (eq. 5.4).

    Hidden layers in half space by default, the output layer always in full space, where opposite neurons are not
    redundant (5.3.4). λ_h is 1 in half space and 10 in full space, λ_o is 1, s is 2 (D.1).

    Args:
        model: whose Linear and Conv layers are regularised.
        hidden: λ_h; None takes the text's value for the space.
        output: λ_o.
        s: power of the kernel.
        half_space: energy of ±ŵ_i for the hidden layers.
        distance: ``"euclidean"``, or ``"angular"`` for A-MHE (5.3.5).
        skip: layers to leave out: names, patterns, types, modules or predicates.
        classifier: the name of the output layer, by default the last Linear; False if there is none.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> mhe = MHE(net)
    >>> loss = mhe()  # + criterion(net(x), y)
    >>> loss.backward()
    >>> mhe
    MHE({0: 1, 2: 1}, skipped={})
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float | None = None,
        output: float = 1.0,
        s: float = 2,
        half_space: bool = True,
        distance: Distance = "euclidean",
        skip: Iterable[Selector] = (),
        *,
        classifier: str | Literal[False] | None = None,
    ):
        if hidden is None:
            hidden = 1.0 if half_space else 10.0
        super().__init__(model, hidden=hidden, output=output, skip=skip, classifier=classifier)
        self.kernel, self.half_space = riesz_kernel(s, distance), half_space

    def energy(self, neurons: Float[Tensor, "batch neurons dim"]) -> Float[Tensor, " batch"]:
        """The mean energy of each matrix of hidden neurons."""
        return mean_energies(neurons, self.kernel, self.half_space)

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The mean energy of each hidden layer."""
        return {name: self.energy(weight).mean() for name, weight in weights.items()}

    def output_value(self, weight: Tensor) -> Tensor:
        """The mean energy of the output layer, in full space."""
        return mean_energies(weight, self.kernel).mean()
