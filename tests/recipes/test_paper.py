"""The paper size of every recipe beside the dissertation, value by value.

What stands here was read from Liu (2020): 2.2.7 and tables 2.1, 2.7; 2.3.6; 3.4.1 and table B.1; 4.6, C.1, C.2; D.1; 6.6.1, E.1;
F.3 with tables F.1–F.3; where it is silent, from what the recipe's docstring names. Nothing is computed from the recipes.
"""

from typing import Any

import pytest
import torch
from torch import nn

from hypersphere import recipes
from hypersphere.config import encode, flatten

NONE = None
SGD = {"optimizer": "SGD", "optimizer.momentum": 0.9}
ADAM = {"optimizer": "Adam"}


def steps(count: int, batch: int, rate: float, decay: float, *milestones: int, gamma: float = 0.1) -> dict[str, Any]:
    """Batch, rate, steps, milestones and decay."""
    found: dict[str, Any] = {"steps": count, "batch_size": batch, "optimizer.lr": rate, "optimizer.weight_decay": decay}
    if milestones:
        return {**found, "schedule": "StepRate", "schedule.milestones": list(milestones), "schedule.gamma": gamma}
    return {**found, "schedule": "ConstantRate"}


D1 = (20000, 30000, 37500)
CROP = {"augment": "CropFlip", "augment.pad": 4, "augment.horizontal": True, "augment.vertical": False}
BOTH = {**CROP, "augment.vertical": True}
MIRROR = {**CROP, "augment.pad": 0}
LSOFTMAX = {**SGD, **steps(18000, 256, 0.1, 5e-4, 12000, 15000), "head": "LSoftmax", "head.m": 4, "augment": NONE}
LSOFTMAX |= {"head.annealing.start": 1000.0, "head.annealing.floor": 0.0, "normalize": "pixel_mean"}
CIFAR_LAMBDA = {"head.annealing.rate": 1e-5, "head.annealing.power": 45.0}
SPHEREFACE = {"head": "SphereFace", "head.m": 4, "head.annealing.start": 1000.0, "head.annealing.floor": 5.0}
SPHEREFACE |= {"head.annealing.rate": 0.12, "head.annealing.power": 1.0}
FACES = {**SGD, **steps(28000, 128, 0.1, 5e-4, 16000, 24000), **SPHEREFACE}
LFW = {**FACES, **MIRROR, "normalize": "faces", "mirror": True, "backbone": "sphereface64"}
PLUS = {"energy": "MHE", "energy.hidden": 0.0, "energy.output": 1.0, "energy.s": 2.0}
SPHERENET = {
    **ADAM,
    **steps(64000, 128, 1e-3, 0.0, 34000, 54000),
    "backbone.table": "B.1",
    "energy": "Orthonormality",
}
SPHERENET |= {"energy.hidden": 1e-5, "backbone.operator.magnitude": "Sphere", "backbone.operator.angular": "Cosine"}
SPHERENET |= MIRROR
DCNET = {**ADAM, **steps(42500, 128, 1e-3, 0.0, *D1), **BOTH, "backbone.table": "C.1", "energy": "Orthogonality"}
DCNET |= {"backbone.operator.magnitude.radius": 1.0, "backbone.operator.magnitude.learnable_radius": True}  # C.1–C.3
DCNET |= {"energy.hidden": 1e-5, "backbone.operator.magnitude": "Tanh", "backbone.operator.angular": "Cosine"}
MHE = {**SGD, **steps(42500, 128, 0.1, 1e-4, *D1), **CROP, "backbone": "cnn9", "backbone.table": "D.1", "energy": "MHE"}
MHE |= {"energy.hidden": 1.0, "energy.output": 1.0, "energy.s": 2.0, "energy.half_space": True}
MHE |= {"energy.data_dependent": False}
COMHE = {"energy": "CoMHE", "energy.projection": "RandomProjection", "energy.projection.dim": 30}
COMHE |= {"energy.projection.count": 5, "energy.hidden": 1.0}
GCN = {**ADAM, **steps(200, 128, 0.01, 5e-4), "data": "Planetoid", "data.name": "cora", "backbone": "gcn"}
POINTNET = {**ADAM, **steps(76750, 32, 1e-3, 0.0, 200000, gamma=0.7), "data": "ModelNet40", "data.points": 1024}
OPT = {**SGD, **steps(42500, 128, 0.1, 5e-4, *D1), **CROP, "data": "CIFAR100", "orthogonal": "overparameterize"}

TABLE: dict[str, dict[str, Any]] = {
    "lsoftmax-mnist": {**LSOFTMAX, "data": "MNIST", "head.annealing.rate": 2.5e-5, "head.annealing.power": 35.0},
    "lsoftmax-cifar10": {**LSOFTMAX, **CROP, **CIFAR_LAMBDA, "data": "CIFAR10"},
    "lsoftmax-cifar100": {**LSOFTMAX, **CIFAR_LAMBDA, "data": "CIFAR100"},
    "sphereface-lfw": LFW,
    "sphereface-omniglot": {**FACES, "backbone": "sphereface20", "data": "Omniglot"},
    "sphereface-plus-lfw": {**LFW, **PLUS},
    "sphereface-plus-omniglot": {**FACES, **PLUS, "backbone": "sphereface20"},
    "spherenet-cifar10": {**SPHERENET, "data": "CIFAR10", "backbone": "cnn9", "head": "WSoftmax"},
    "spherenet-deep-cifar10": {
        **SPHERENET,
        **{"data": "CIFAR10", "backbone": "cnn18", "backbone.activation": "none", "head": "Softmax"},
    },
    "spherenet-cifar100": {**SPHERENET, **BOTH, "data": "CIFAR100", "backbone": "cnn9", "head": "WSoftmax"},
    "dcnet-cifar10": {
        **DCNET,
        **{
            "data": "CIFAR10",
            "backbone": "resnet32",
            "head": "WSoftmax",
            "project_every": 100,
            "backbone.shortcut": "plain",
        },
    },
    "dcnet-cifar100": {**DCNET, "data": "CIFAR100", "backbone": "cnn9", "head": "Softmax", "project_every": 0},
    "adversarial-cifar10": {
        **{**ADAM, **steps(42500, 128, 1e-3, 0.0, *D1), "backbone.table": "C.1 adversarial", "backbone.norm": "none"},
        **{"task": "Adversarial", "task.epsilon": 8 / 255, "task.step": 2 / 255, "task.iterations": 20},
        **{"backbone.operator.magnitude": "Sphere", "normalize": "unit", "weighted_gradients": False},
    },
    "mhe-cifar10": {**MHE, "data": "CIFAR10"},
    "imbalance-cifar10": {**MHE, "data": "CIFAR10", "samples.imbalance": "ImbalancedMultiple"},
    "gan-mhe-cifar10": {
        **{**ADAM, **steps(600000, 64, 2e-4, 0.0), "optimizer.betas": [0.5, 0.9], "task": "GAN", "task.turns": 5},
        **{"backbone": "Players", "backbone.spectral_norm": True, "backbone.latent_dim": 128, "energy": "MHE"},
        **{"energy.hidden": 1e-6, "energy.half_space": True},
    },
    "comhe-cifar100": {**MHE, **COMHE, "data": "CIFAR100"},
    "comhe-pointnet": {**POINTNET, **COMHE, "energy.s": 1.0},
    "comhe-gcn-cora": {**GCN, **COMHE, "energy.s": 2.0},
    "opt-mlp-mnist": {
        **{**SGD, **steps(60000, 100, 0.01, 5e-4), "data": "MNIST", "backbone": "mlp", "backbone.init": "xavier"},
        **{"orthogonal": "overparameterize", "orthogonal.method": "cayley"},
    },
    "opt-cnn-cifar100": {**OPT, "backbone": "cnn6", "backbone.table": "F.1", "orthogonal.method": "gram_schmidt"},
    "opt-resnet-cifar100": {**OPT, "backbone": "resnet20", "backbone.table": "F.2", "orthogonal.method": "cayley"},
    "opt-gcn-cora": {**GCN, "orthogonal.method": "cayley"},
    "opt-pointnet": {**POINTNET, "orthogonal.method": "cayley"},
    "opt-few-shot": {
        **{**ADAM, **steps(400000, 16, 1e-3, 5e-4), "task": "FewShotRecognition", "backbone": "cnn4", "size": 84},
        **{"task.ways": 5, "task.shots": 5, "task.train_classes": 64, "task.validation_classes": 16},
        **{"task.test_classes": 20, "orthogonal.method": "cayley"},
    },
    "few-shot-omniglot": {
        **{**ADAM, **steps(20000, 128, 1e-3, 5e-4), "task": "FewShotRecognition", "backbone": "cnn4", "size": 28},
        **{"task.ways": 5, "task.shots": 1, "orthogonal": NONE},
    },
}

# Filters of every convolution, and the width of the features: the tables of the networks.
NETWORKS: dict[str, tuple[list[int], int]] = {
    "lsoftmax-mnist": ([64] * 1 + [64] * 3 + [64] * 3 + [64] * 3, 256),
    "lsoftmax-cifar10": ([64] * 1 + [64] * 4 + [96] * 4 + [128] * 4, 256),
    "lsoftmax-cifar100": ([96] * 1 + [96] * 4 + [192] * 4 + [384] * 4, 512),
    "sphereface-lfw": ([64] * 7 + [128] * 17 + [256] * 33 + [512] * 7, 512),
    "sphereface-omniglot": ([64] * 3 + [128] * 5 + [256] * 9 + [512] * 3, 512),
    "spherenet-cifar10": ([64] * 3 + [96] * 3 + [128] * 3, 256),
    "spherenet-deep-cifar10": ([64] * 6 + [96] * 6 + [128] * 6, 256),
    "dcnet-cifar10": ([96] * 11 + [192] * 10 + [384] * 10, 384),
    "dcnet-cifar100": ([64] * 3 + [128] * 3 + [256] * 3, 512),
    "adversarial-cifar10": ([32] * 3 + [64] * 3 + [128] * 3, 256),
    "mhe-cifar10": ([64] * 3 + [128] * 3 + [256] * 3, 256),
    "comhe-cifar100": ([64] * 3 + [128] * 3 + [256] * 3, 256),
    "opt-cnn-cifar100": ([64] * 6, 64),
    "opt-resnet-cifar100": ([16] * 7 + [32] * 6 + [64] * 6, 64),
    "opt-few-shot": ([64] * 4, 1600),
}
INPUTS = {
    "lsoftmax-mnist": (1, 28),
    "sphereface-lfw": (3, 112),
    "sphereface-omniglot": (1, 28),
    "opt-few-shot": (3, 84),
}


def test_every_recipe_is_in_the_table() -> None:
    assert TABLE.keys() == recipes.RECIPES.keys()


@pytest.mark.parametrize("name", TABLE)
def test_the_setting_is_the_dissertations(name: str) -> None:
    found = flatten(encode(recipes.get(name).config("paper"), defaults=True))
    wrong = {key: (found.get(key), value) for key, value in TABLE[name].items() if found.get(key) != value}
    assert wrong == {}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_that_of_its_table(name: str) -> None:
    channels, size = INPUTS.get(name, (3, 32))
    with torch.device("meta"):
        sizes = {"num_classes": None, "in_channels": channels, "input_size": (size, size), "in_features": 3}
        network = recipes.get(name).config("paper").backbone.build(**sizes)
    filters = [
        module.weight.shape[0]
        for module in network.modules()
        if isinstance(getattr(module, "weight", None), nn.Parameter) and module.weight.ndim == 4
        if tuple(module.weight.shape[2:]) != (1, 1)  # shortcuts are not in the tables
    ]
    assert (filters, network.feature_dim) == NETWORKS[name]
    normalized = any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert normalized == (name != "adversarial-cifar10" and not name.startswith("sphereface"))


def test_the_perceptron_has_two_hidden_layers_of_256() -> None:
    with torch.device("meta"):
        network = recipes.get("opt-mlp-mnist").config("paper").backbone.build(num_classes=10, in_features=784)
    shapes = [tuple(m.weight.shape) for m in network.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(256, 784), (256, 256), (10, 256)]
