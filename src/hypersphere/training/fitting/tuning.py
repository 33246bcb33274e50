"""The fine-tuning of a pretrained network: which parameters are trained, and how the head starts."""

import torch
from torch import nn

from ...geometry import normalize
from ...orthogonal import finetune
from ..datasets import Samples
from ..tasks import Recognition

LAST_LAYERS = 2  # layers with weight matrices that are trained with tune="last"
MAX_SAMPLES_PER_CLASS = 20  # whose mean direction is the initial weight of the class
RECURRENT = (nn.RNNBase, nn.RNNCellBase)  # layers that orthogonal fine-tuning leaves out


def tune_network(task: Recognition, tune: str) -> None:
    """Set which parameters of a pretrained network are trained. The head is always trained.

    Batch normalization keeps its statistics, because those of small batches are worse than those of the pretraining.

    Args:
        task: The task with the pretrained network.
        tune: "frozen", "last", "oft" (orthogonal fine-tuning, Qiu et al., 2023, arXiv:2306.07280) or "full".
    """
    task.keeps_statistics = True
    if tune == "oft":
        finetune(task.model, "oft", skip=RECURRENT)
        return
    if tune == "full":
        return
    layers = [m for m in task.backbone.modules() if any(p.ndim > 1 for p in m.parameters(recurse=False))]
    first_trained = layers[-LAST_LAYERS] if tune == "last" else None
    for module in task.backbone.modules():
        if module is first_trained:
            break
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


@torch.no_grad()
def imprint_head(task: Recognition, samples: Samples) -> None:
    """Start every class of the head from the mean direction of its samples (weight imprinting, Qi et al., 2018).

    With a random head, the gradients of the first steps would destroy the pretrained features.
    """
    weight = getattr(task.model.classifier, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or len(weight) != len(samples.classes):
        return  # a head with several centers per class, which starts at random
    task.eval()
    for label in range(len(weight)):
        rows = torch.nonzero(samples.labels == label).flatten()[:MAX_SAMPLES_PER_CLASS]
        features = normalize(task.embed_batch(samples.batch(rows)[0]).float())[:, : weight.shape[1]]
        weight[label] = normalize(features.mean(0, keepdim=True))[0] * weight[label].norm()
    task.train()
