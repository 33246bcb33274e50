"""Minimum hyperspherical energy as a regularizer of a network."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import gather_rows, get_local, get_local_rows
from ..neurons import Selectors
from .hyperspherical import batch_energy, check_importance, mean_energies
from .kernels import Distance, Kernel, riesz_kernel
from .regularizer import NoLayersError, Regularizer
from .sharded import sharded_energy


class MHE(Regularizer):
    r"""λ_h·Σ_j E_s(layer j)/(N_j(N_j − 1)) + λ_o·E_s(output layer)/(N(N − 1))  (eq. 5.4).

    Hidden layers are in half space by default, the output layer always in full space, where opposite neurons are not
    redundant (5.3.4). λ_h is 1 in half space and 10 in full space, λ_o is 1, s is 2, all as in Liu (2020), D.1. What
    classifies may be a Linear layer or a margin head, in the model or beside it. Called with the labels of a batch,
    the output term is the data-dependent one, 1/(m(N−1))·Σ_i Σ_{j≠y_i} f_s(‖ŵ_{y_i} − ŵ_j‖) (5.3.6): a SphereFace head
    with this is SphereFace+ (5.8).

    Args:
        model: whose layers are regularized.
        hidden: λ_h; None takes the value of Liu (2020) for the space.
        output: λ_o.
        s: power of the kernel.
        half_space: energy of ±ŵ_i for the hidden layers.
        distance: ``"euclidean"``, or ``"angular"`` for A-MHE (5.3.5).
        skip, only, classifier: which layers, as in :class:`Regularizer`.
        kernel: a kernel object in place of ``s`` and ``distance``.
        data_dependent: False keeps the output term over all pairs of classes when labels are given.
        sample: the hidden mini-batch form (5.3.6): the energy of this number of neurons of each layer that has more, drawn
            anew with every :meth:`step`; its expectation is the energy of all.
        importance: β, by the name of a layer one constant for each of its neurons: the energy of β_i·ŵ_i (eq. D.10).
        seed: of the samples.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> mhe = MHE(net)
    >>> loss = mhe()  # + criterion(net(x), y)
    >>> loss.backward()
    >>> mhe
    MHE({0: 1, 2: 1}, skipped={})
    >>> head = hs.SphereFace(8, 100)
    >>> list(MHE(net, classifier=head).terms(torch.tensor([3, 14, 15])))
    ['hidden', 'output']
    """

    def __init__(
        self,
        model: nn.Module,
        hidden: float | None = None,
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
        sample: int | None = None,
        importance: Mapping[str, Sequence[float] | Tensor] | None = None,
        seed: int = 0,
    ):
        if hidden is None:
            hidden = 1.0 if half_space else 10.0
        super().__init__(model, hidden=hidden, output=output, only=only, skip=skip, classifier=classifier)
        if sample is not None and sample < 2:
            raise ValueError(f"sample must be a number of neurons ≥ 2, or None, got {sample!r}")
        self.kernel, self.half_space, self.data_dependent = (
            riesz_kernel(s, distance, kernel),
            half_space,
            data_dependent,
        )
        self.sample, self.seed, self.steps = sample, seed, 0
        self.importance = {name: self._weights_of(name, beta) for name, beta in (importance or {}).items()}

    def energy(self, neurons: Float[Tensor, "batch neurons dim"]) -> Float[Tensor, " batch"]:
        """Return the mean energy of each matrix of hidden neurons."""
        return mean_energies(neurons, self.kernel, self.half_space)

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean energy of each hidden layer, of a sample of its neurons if so asked."""
        generator = torch.Generator().manual_seed((self.seed << 32) + self.steps)
        values = {}
        for name, weight in weights.items():
            beta, n = self._beta(name, weight), weight.shape[1]
            if self.sample is not None and self.sample < n:
                chosen = torch.randperm(n, generator=generator)[: self.sample].to(weight.device)
                weight, beta = weight[:, chosen], None if beta is None else beta[chosen]
            values[name] = mean_energies(weight, self.kernel, self.half_space, importance=beta, population=n).mean()
        return values

    def output_value(self, weight: Float[Tensor, "1 classes dim"], labels: Int[Tensor, " samples"] | None) -> Tensor:
        """Return the mean energy of the output layer in full space, or what the classes of a batch have of it.

        Labels equal to the head's ``ignore_index`` are left out. With several centers for each class, those of the
        batch's classes meet all others.
        """
        assert self.classifier is not None
        beta = self._beta(self.classifier, weight)
        if labels is None or not self.data_dependent:
            return mean_energies(weight, self.kernel, importance=beta).mean()
        rows = self._rows(labels.to(weight.device))
        if rows.numel() == 0:
            return 0 * weight.sum()
        return batch_energy(weight[0], rows, self.kernel, importance=beta)

    def sharded_value(self, weight: Tensor, labels: Int[Tensor, " samples"] | None) -> Tensor:
        """Return the same where the classes are divided among processes, each of which brings the labels of its own batch.

        The rows of the batch's classes travel, and no others; without labels all do.
        """
        assert self.classifier is not None
        local = get_local(weight)
        total, beta = weight.numel() // weight.shape[-1], self._beta(self.classifier, local)
        if labels is None or not self.data_dependent:
            rows = torch.arange(total, device=local.device)
        else:
            rows = gather_rows(self._rows(labels.to(local.device)), weight.device_mesh.get_group())  # type: ignore[attr-defined]
        if rows.numel() == 0:
            return 0 * get_local_rows(weight).sum()
        rows, counts = rows.unique(return_counts=True)
        if rows[0] < 0 or rows[-1] >= total:
            raise ValueError(f"labels must be classes of the head, got rows {rows[0].item()} to {rows[-1].item()}")
        pairs = counts.sum() * (total - 1)
        return sharded_energy(weight, rows, counts.to(torch.float32), self.kernel, importance=beta) / pairs

    def _rows(self, labels: Int[Tensor, " samples"]) -> Int[Tensor, " rows"]:
        """Return the rows of the classes of a batch, as often as each occurs."""
        assert self.classifier is not None
        head = self._layers[self.classifier].module
        labels = labels[labels != getattr(head, "ignore_index", -100)]
        centers = int(getattr(head, "sub_centers", 1))
        return (labels[:, None] * centers + torch.arange(centers, device=labels.device)).flatten()

    def step(self) -> None:
        """Draw another sample of neurons from now on. Call once per training step."""
        self.steps += 1

    def get_extra_state(self) -> dict[str, Any]:
        """Return the number of steps, so that a resumed run draws what this one would have."""
        return {"steps": self.steps}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the number of steps."""
        self.steps = state["steps"]

    def _weights_of(self, name: str, beta: Sequence[float] | Tensor) -> Tensor:
        if name not in self._layers:
            known = ", ".join(self._layers)
            raise ValueError(f"importance must be given by the names of layers, {known}; got {name!r}")
        rows = self._layers[name].rows()
        if len(rows) > 1:
            raise ValueError(f"importance needs a layer whose neurons form one group; {name!r} has {len(rows)}")
        return check_importance(torch.as_tensor(beta, dtype=torch.float64), rows[0], self.kernel)

    def _beta(self, name: str, weight: Tensor) -> Tensor | None:
        beta = self.importance.get(name)
        return None if beta is None else beta.to(weight.device)


@torch.no_grad()
def layer_energies(
    model: nn.Module,
    s: float = 2,
    half_space: bool = False,
    distance: Distance = "euclidean",
    classifier: nn.Module | str | Literal[False] | None = None,
    *,
    kernel: Kernel | None = None,
) -> dict[str, float]:
    """Return the mean energy of every layer with two or more neurons, including the output layer, by name.

    The layers are those that :class:`MHE` regularizes. All of them, also the output layer, are measured in the same
    space. Nothing is differentiated.

    Args:
        model: The network.
        s: Power of the kernel.
        half_space: Whether to measure the energy of ±ŵ_i.
        distance: ``"euclidean"`` or ``"angular"``.
        classifier: A head that is kept outside the model, or a layer's name; see :class:`Regularizer`.
        kernel: A kernel in place of ``s`` and ``distance``.

    Returns:
        Energies by layer name; empty if the model has no such layer.

    Raises:
        ValueError: If ``classifier`` names no layer, or the kernel's arguments are invalid.

    >>> layer_energies(torch.nn.Sequential(torch.nn.Flatten())), layer_energies(torch.nn.Linear(3, 1))
    ({}, {})
    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> layer_energies(torch.nn.Sequential(layer))
    {'0': 0.5}
    """
    f = riesz_kernel(s, distance, kernel)
    try:
        layers = MHE(model, 1.0, classifier=classifier).weights()
    except NoLayersError:
        return {}
    return {name: mean_energies(weight, f, half_space).mean().item() for name, weight in layers.items()}
