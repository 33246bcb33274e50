"""How much of a pretrained network learns: nothing, its last layers, rotations of its layers, or everything."""

import torch
from torch import nn

from ...geometry import normalize
from ...orthogonal import finetune
from ..datasets import Samples
from ..tasks import Recognition

LAST_LAYERS = 2  # with weight matrices, that learn with tune="last"
MAX_PER_CLASS = 20  # samples whose mean direction a class starts from
RECURRENT = (nn.RNNBase, nn.RNNCellBase)  # have no rotations


def tune_network(task: Recognition, how: str) -> None:
    """Set which parameters of a pretrained network learn. The head always does.

    Batch normalization keeps its statistics: those of small batches are worse than those of the pretraining.

    Args:
        task: The task with the pretrained network.
        how: "frozen", "last", "oft" (orthogonal fine-tuning, Qiu et al., 2023, arXiv:2306.07280) or "full".
    """
    task.keeps_statistics = True
    if how == "oft":
        finetune(task.model, "oft", skip=RECURRENT)
        return
    learning = {"frozen": 0, "last": LAST_LAYERS}.get(how)
    if learning is None:
        return
    matrices = [m for m in task.backbone.modules() if any(p.ndim > 1 for p in m.parameters(recurse=False))]
    first = matrices[-learning] if learning else None
    for module in task.backbone.modules():
        if module is first:
            break
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


@torch.no_grad()
def imprint_head(task: Recognition, samples: Samples) -> None:
    """Start every class of the head from the mean direction of its samples (weight imprinting, Qi et al., 2018).

    A head that starts at random would first destroy the pretrained features.
    """
    weight = getattr(task.model.classifier, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or len(weight) != len(samples.classes):
        return  # a head with several centers per class, which starts at random
    task.eval()
    for label in range(len(weight)):
        rows = torch.nonzero(samples.labels == label).flatten()[:MAX_PER_CLASS]
        features = normalize(task.embed_batch(samples.batch(rows)[0]).float())[:, : weight.shape[1]]
        weight[label] = normalize(features.mean(0, keepdim=True))[0] * weight[label].norm()
    task.train()
