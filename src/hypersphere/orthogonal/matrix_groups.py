"""Parameter groups for optimizers of whole matrices and for AdamW."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..neurons import Classifier, has_transposed_weight, neuron_weights
from .layer_selection import ClassifierLike, find_classifier, find_parameter_owners


class MatrixGroups(NamedTuple):
    """Parameter groups by their optimizer: ``matrices`` for Muon or Pion, ``others`` for AdamW.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> groups = group_matrices(net)
    >>> [tuple(p.shape) for group in groups.others for p in group["params"]]
    [(2, 8), (8,), (2,)]
    """

    matrices: list[dict[str, Any]]
    others: list[dict[str, Any]]


def group_matrices(model: nn.Module, *, classifier: ClassifierLike = None, weight_decay: float = 0.01) -> MatrixGroups:
    """Return the trainable parameters of a model as groups: hidden matrices and convolutions, and everything else.

    Matrices are the weights of Linear and Conv layers, the Conv1D of transformers and the projections of
    ``nn.MultiheadAttention``, unless they are tied. They come in groups by how their neurons lie, which
    :class:`Muon` and :class:`Pion` read. Norms, biases, embeddings, the classifier, tied and unknown weights go to
    AdamW: those with two or more dimensions with weight decay, embeddings and the rest without.

    Args:
        model: the model, which is not changed.
        classifier: the layer that classifies, by name or as a module; False if there is none. By default it is the last
            margin head, else the last Linear layer unless that is the model.
        weight_decay: of the classifier and other matrices that go to AdamW.

    Returns:
        The :class:`MatrixGroups`; every parameter that requires a gradient is in exactly one group.

    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    >>> matrices, others = group_matrices(net)
    >>> [tuple(p.shape) for group in matrices for p in group["params"]]
    [(8, 3, 3, 3)]
    >>> from hypersphere.orthogonal import Muon
    >>> optimizers = [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=3e-4)]
    """
    head, _ = find_classifier(model, classifier)
    heads = {id(p) for p in model.get_submodule(head).parameters()} if head is not None else set()
    owners = find_parameter_owners(model)
    layout: dict[int, tuple[int, bool]] = {}
    for held in neuron_weights(model)[0].values():
        weight = held.module._parameters.get(held.parameter)
        plain = weight is not None and not parametrize.is_parametrized(held.module, held.parameter)
        if (
            plain
            and not isinstance(held.module, Classifier)
            and len(owners[id(weight)]) == 1
            and id(weight) not in heads
        ):
            layout[id(weight)] = (held.groups, has_transposed_weight(held.module))
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) for p in m.parameters()}
    matrices: dict[tuple[int, bool], list[Tensor]] = {}
    decayed: list[Tensor] = []
    free: list[Tensor] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in layout:
            matrices.setdefault(layout[id(parameter)], []).append(parameter)
        else:
            (decayed if parameter.ndim >= 2 and id(parameter) not in tables else free).append(parameter)
    others = [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]
    return MatrixGroups(
        [{"params": held, "parts": parts, "transposed": flipped} for (parts, flipped), held in matrices.items()],
        [group for group in others if group["params"]],
    )
