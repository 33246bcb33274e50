"""Parameter groups for matrix optimizers and AdamW."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..neurons import Classifier, has_transposed_weight, neuron_weights
from .layer_selection import ClassifierLike, find_classifier, find_parameter_owners


class MatrixGroups(NamedTuple):
    """Parameter groups for Muon or Pion (``matrices``) and for AdamW (``others``).

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> groups = group_matrices(net)
    >>> [tuple(p.shape) for group in groups.others for p in group["params"]]
    [(2, 8), (8,), (2,)]
    """

    matrices: list[dict[str, Any]]
    others: list[dict[str, Any]]


def group_matrices(model: nn.Module, *, classifier: ClassifierLike = None, weight_decay: float = 0.01) -> MatrixGroups:
    """Divide the trainable parameters of a model into hidden matrices and all others.

    ``matrices`` contains the weights of Linear and Conv layers, of ``Conv1D`` layers of transformers and of the projections
    in ``nn.MultiheadAttention``, unless they are tied. They are grouped by the layout of their neurons, which
    :class:`Muon` and :class:`Pion` need to know. ``others`` contains normalization parameters, biases, embeddings, the
    classifier, tied weights and the weights of unknown layers. In ``others``, weights with two or more dimensions get weight
    decay; embeddings and parameters with fewer dimensions do not.

    Args:
        model: The model. It is not changed.
        classifier: The classification layer, by name or as a module; False if there is none. By default it is the last
            margin head, otherwise the last Linear layer unless that is the model itself.
        weight_decay: Weight decay of the classifier and of the other weights with two or more dimensions in ``others``.

    Returns:
        The :class:`MatrixGroups`. Every parameter that requires a gradient is in exactly one group.

    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    >>> matrices, others = group_matrices(net)
    >>> [tuple(p.shape) for group in matrices for p in group["params"]]
    [(8, 3, 3, 3)]
    >>> from hypersphere.orthogonal import Muon
    >>> optimizers = [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=3e-4)]
    """
    head, _ = find_classifier(model, classifier)
    classifier_ids = {id(p) for p in model.get_submodule(head).parameters()} if head is not None else set()
    owners = find_parameter_owners(model)
    layouts: dict[int, tuple[int, bool]] = {}
    for neurons in neuron_weights(model)[0].values():
        weight = neurons.module._parameters.get(neurons.parameter)
        is_plain = weight is not None and not parametrize.is_parametrized(neurons.module, neurons.parameter)
        if (
            is_plain
            and not isinstance(neurons.module, Classifier)
            and len(owners[id(weight)]) == 1
            and id(weight) not in classifier_ids
        ):
            layouts[id(weight)] = (neurons.groups, has_transposed_weight(neurons.module))
    embedding_ids = {
        id(p) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) for p in m.parameters()
    }
    matrices: dict[tuple[int, bool], list[Tensor]] = {}
    decayed: list[Tensor] = []
    undecayed: list[Tensor] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in layouts:
            matrices.setdefault(layouts[id(parameter)], []).append(parameter)
        else:
            (decayed if parameter.ndim >= 2 and id(parameter) not in embedding_ids else undecayed).append(parameter)
    others = [{"params": decayed, "weight_decay": weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    return MatrixGroups(
        [
            {"params": weights, "parts": parts, "transposed": transposed}
            for (parts, transposed), weights in matrices.items()
        ],
        [group for group in others if group["params"]],
    )
