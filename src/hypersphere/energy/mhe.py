"""Minimum hyperspherical energy (MHE) as a regularizer of a network."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import gather_rows, get_local, get_local_rows
from ..neurons import Selectors
from .hyperspherical import batch_energy, check_importance, mean_energies
from .kernels import Distance, Kernel, choose_kernel
from .regularizer import NoLayersError, Regularizer
from .sharded import sharded_energy


class MHE(Regularizer):
    r"""λ_h·Σ_j E_s(layer j)/(N_j(N_j − 1)) + λ_o·E_s(output layer)/(N(N − 1))  (eq. 5.4).

    By default hidden layers use half space. The output layer always uses full space, because opposite class weights
    are not redundant (5.3.4). The defaults are those of Liu (2020), D.1: s = 2, λ_o = 1, and λ_h = 1 in half space or 10
    in full space. The output layer is a Linear layer or a margin head, inside or outside the model. If called with the
    labels of a batch, the output term is the data-dependent energy 1/(m(N−1))·Σ_i Σ_{j≠y_i} f_s(‖ŵ_{y_i} − ŵ_j‖)
    (5.3.6). With a SphereFace head this is SphereFace+ (5.8).

    Args:
        model: The model whose layers are regularized.
        hidden: λ_h; None takes the value of Liu (2020) for the space.
        output: λ_o.
        s: Power of the kernel.
        half_space: Whether hidden layers use the energy of ±ŵ_i.
        distance: ``"euclidean"``, or ``"angular"`` for A-MHE (5.3.5).
        skip, only, classifier: Selection of layers, see :class:`Regularizer`.
        kernel: A kernel object in place of ``s`` and ``distance``.
        data_dependent: Whether to use the data-dependent output term if labels are given. False always uses the energy
            over all pairs of classes.
        sample: Number of neurons drawn from each hidden layer that has more (5.3.6); None uses all. A new sample is drawn
            after every :meth:`step`. The expected value is the energy of all neurons.
        importance: β as a mapping from layer names to one constant per neuron, for the energy of β_i·ŵ_i (eq. D.10).
        seed: Seed of the samples.

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
        self.kernel = choose_kernel(s, distance, kernel)
        self.half_space, self.data_dependent = half_space, data_dependent
        self.sample, self.seed, self.steps = sample, seed, 0
        self.importance = {name: self._check_importance(name, beta) for name, beta in (importance or {}).items()}

    def energy(self, neurons: Float[Tensor, "batch neurons dim"]) -> Float[Tensor, " batch"]:
        """Return the mean energy of each matrix of hidden neurons."""
        return mean_energies(neurons, self.kernel, self.half_space)

    def hidden_values(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean energy of each hidden layer, or of a sample of its neurons."""
        generator = torch.Generator().manual_seed((self.seed << 32) + self.steps)
        values = {}
        for name, weight in weights.items():
            beta, n = self._get_importance(name, weight), weight.shape[1]
            if self.sample is not None and self.sample < n:
                chosen = torch.randperm(n, generator=generator)[: self.sample].to(weight.device)
                weight, beta = weight[:, chosen], None if beta is None else beta[chosen]
            values[name] = mean_energies(weight, self.kernel, self.half_space, importance=beta, population=n).mean()
        return values

    def output_value(self, weight: Float[Tensor, "1 classes dim"], labels: Int[Tensor, " samples"] | None) -> Tensor:
        """Return the mean energy of the output layer in full space, data-dependent if labels are given.

        Labels equal to the head's ``ignore_index`` are ignored. With several centers per class, all centers of the
        batch's classes are compared with all other centers.
        """
        assert self.classifier is not None
        beta = self._get_importance(self.classifier, weight)
        if labels is None or not self.data_dependent:
            return mean_energies(weight, self.kernel, importance=beta).mean()
        rows = self._find_rows(labels.to(weight.device))
        if rows.numel() == 0:
            return 0 * weight.sum()
        return batch_energy(weight[0], rows, self.kernel, importance=beta)

    def sharded_value(self, weight: Tensor, labels: Int[Tensor, " samples"] | None) -> Tensor:
        """Return :meth:`output_value` for classes that are sharded among processes; each passes the labels of its batch.

        Only the rows of the classes of all batches are communicated, or all rows without labels.
        """
        assert self.classifier is not None
        local = get_local(weight)
        total, beta = weight.numel() // weight.shape[-1], self._get_importance(self.classifier, local)
        if labels is None or not self.data_dependent:
            rows = torch.arange(total, device=local.device)
        else:
            rows = gather_rows(self._find_rows(labels.to(local.device)), weight.device_mesh.get_group())  # type: ignore[attr-defined]
        if rows.numel() == 0:
            return 0 * get_local_rows(weight).sum()
        rows, counts = rows.unique(return_counts=True)
        if rows[0] < 0 or rows[-1] >= total:
            raise ValueError(f"labels must be classes of the head, got rows {rows[0].item()} to {rows[-1].item()}")
        pairs = counts.sum() * (total - 1)
        return sharded_energy(weight, rows, counts.to(torch.float32), self.kernel, importance=beta) / pairs

    def _find_rows(self, labels: Int[Tensor, " samples"]) -> Int[Tensor, " rows"]:
        """Return the rows of the class of each label; a class that occurs twice has its rows twice."""
        assert self.classifier is not None
        head = self._layers[self.classifier].module
        labels = labels[labels != getattr(head, "ignore_index", -100)]
        centers = int(getattr(head, "sub_centers", 1))
        return (labels[:, None] * centers + torch.arange(centers, device=labels.device)).flatten()

    def step(self) -> None:
        """Switch to a new sample of neurons. Call once per training step."""
        self.steps += 1

    def get_extra_state(self) -> dict[str, Any]:
        """Return the number of steps, so that a resumed run draws the same samples."""
        return {"steps": self.steps}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the number of steps."""
        self.steps = state["steps"]

    def _check_importance(self, name: str, beta: Sequence[float] | Tensor) -> Tensor:
        if name not in self._layers:
            known = ", ".join(self._layers)
            raise ValueError(f"importance must have names of layers as keys ({known}), got {name!r}")
        rows = self._layers[name].rows()
        if len(rows) > 1:
            raise ValueError(f"importance needs a layer whose neurons form one group; {name!r} has {len(rows)}")
        return check_importance(torch.as_tensor(beta, dtype=torch.float64), rows[0], self.kernel)

    def _get_importance(self, name: str, weight: Tensor) -> Tensor | None:
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

    The layers are those that :class:`MHE` regularizes. All layers, including the output layer, are measured in the same
    space. The result has no gradient.

    Args:
        model: The network.
        s: Power of the kernel.
        half_space: Whether to measure the energy of ±ŵ_i.
        distance: ``"euclidean"`` or ``"angular"``.
        classifier: A head outside the model, or the name of a layer; see :class:`Regularizer`.
        kernel: A kernel in place of ``s`` and ``distance``.

    Returns:
        Energies by layer name; empty if the model has no such layer.

    Raises:
        ValueError: If ``classifier`` is not the name of a layer, or the arguments of the kernel are invalid.

    >>> layer_energies(torch.nn.Sequential(torch.nn.Flatten())), layer_energies(torch.nn.Linear(3, 1))
    ({}, {})
    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> layer_energies(torch.nn.Sequential(layer))
    {'0': 0.5}
    """
    f = choose_kernel(s, distance, kernel)
    try:
        layers = MHE(model, 1.0, classifier=classifier).weights()
    except NoLayersError:
        return {}
    return {name: mean_energies(weight, f, half_space).mean().item() for name, weight in layers.items()}
