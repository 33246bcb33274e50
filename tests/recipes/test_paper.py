"""Compare every recipe at paper size with the dissertation, value by value.

The values were copied from Liu (2020), section by section. Where the text gives no value and the recipe's docstring
says so, they are from the authors' code. Nothing is computed from the recipes. ``PRINTED`` holds settings, ``FILTERS``
holds the tables of networks, and ``ROWS`` holds the settings that a row or column of a table changes.
"""

from typing import Any

import pytest
import torch
from torch import nn

from hypersphere import recipes
from hypersphere.config import encode, flatten
from hypersphere.models import ConvNet
from hypersphere.training import Config

NONE = None

# Optimizers and schedules.
MOMENTUM = {"optimizer": "SGD", "optimizer.momentum": 0.9}
ADAM = {"optimizer": "Adam"}


def training(steps: int, batch: int, rate: float, decay: float, *drops: int, gamma: float = 0.1) -> dict[str, Any]:
    """Return settings; at the steps ``drops`` the learning rate is multiplied by gamma."""
    found: dict[str, Any] = {"steps": steps, "batch_size": batch, "optimizer.lr": rate, "optimizer.weight_decay": decay}
    if drops:
        return {**found, "schedule": "StepRate", "schedule.milestones": list(drops), "schedule.gamma": gamma}
    return {**found, "schedule": "ConstantRate"}


# "4 pixels are padded on each side, and a 32×32 crop is randomly sampled from the padded image or its
# horizontal flip" (2.2.7)
CROP = {"augment": "CropFlip", "augment.pad": 4, "augment.horizontal": True, "augment.vertical": False}
BOTH_FLIPS = {**CROP, "augment.vertical": True}  # "random flip (both horizontal and vertical) and random crop" (3.4.5)
FLIP = {**CROP, "augment.pad": 0}  # "CIFAR-10 (only with random left-right flipping)" (3.4.1)
AUTHORS_CIFAR = {
    "normalize": "faces"
}  # (rgb − 127.5)/128, the first line of the networks in the authors' code of chapters 3 to 7
# "resize the images to 256×256 resolution and then randomly crop patches of size 224×224 … also randomly
# flip … horizontally" (B.2)
IMAGENET = {"data": "PictureFolder", "data.size": 256, "data.center": 224, "augment": "CropFlip", "augment.pad": 0}
IMAGENET |= {"augment.size": 224, "augment.horizontal": True, "augment.vertical": False}

# 2.2.7: weight decay 0.0005, momentum 0.9, batch 256, mean subtraction only.
LSOFTMAX = {**MOMENTUM, **training(18000, 256, 0.1, 5e-4, 12000, 15000), "normalize": "pixel_mean"}
LSOFTMAX |= {"head": "LSoftmax", "head.m": 4, "head.annealing.start": 1000.0, "head.annealing.floor": 0.0}
LSOFTMAX_CIFAR = {"head.annealing.rate": 1e-5, "head.annealing.power": 45.0}  # authors' code

# 2.3.6: batch 128, rate 0.1 divided by 10 at 16K and 24K, 28K iterations; (x − 127.5)/128; features of a
# face and its mirror image.
SPHEREFACE = {**MOMENTUM, **training(28000, 128, 0.1, 5e-4, 16000, 24000), "head": "SphereFace", "head.m": 4}
SPHEREFACE |= {
    "head.annealing.start": 1000.0,
    "head.annealing.floor": 5.0,
}  # "decaying λ to 5" (A.7); the rest: authors' code
SPHEREFACE |= {"head.annealing.rate": 0.12, "head.annealing.power": 1.0}
FACES = {**FLIP, "normalize": "faces", "mirror": True}
CASIA = {**{k: v for k, v in SPHEREFACE.items() if not k.startswith("head")}, **FACES}
CASIA |= {"data": "PictureFolder", "data.folder": "casia-webface", "data.size": [112, 96], "samples.validation": 0.01}
# (5.8), 5.5.2, D.1: full space, Euclidean distance, s = 2, in the output layer, of the classes in the mini-batch.
PLUS = {
    "energy": "MHE",
    "energy.hidden": 0.0,
    "energy.s": 2.0,
    "energy.distance": "euclidean",
    "energy.data_dependent": True,
}

# 3.4.1: ADAM from 0.001, batch 128, divided by 10 at 34K and 54K, stops at 64K.
# 3.2.4: no weight decay, ‖WᵀW − I‖²_F instead.
SPHERENET = {
    **ADAM,
    **training(64000, 128, 1e-3, 0.0, 34000, 54000),
    **FLIP,
    **AUTHORS_CIFAR,
    "energy": "Orthonormality",
}
SPHERENET |= {"energy.hidden": 1e-4}  # authors' code: 2e-4 times half the square
COSINE = {"backbone.operator.magnitude": "Sphere", "backbone.operator.angular": "Cosine"}
SIGMOID = {"backbone.operator.magnitude": "Sphere", "backbone.operator.angular": "Sigmoid"}

# 4.6, C.1, C.2: ADAM from 0.001, batch 128; drops and steps of the authors' code; weight projection;
# ρ learned from 1; α = 1.
DCNET = {
    **ADAM,
    **training(42500, 128, 1e-3, 0.0, 20000, 30000, 37500),
    **BOTH_FLIPS,
    **AUTHORS_CIFAR,
    "project_every": 100,
}
DCNET |= {"energy": "Orthogonality", "energy.hidden": 1e-5, "backbone.operator.magnitude": "Tanh"}
DCNET |= {"backbone.operator.magnitude.radius": 1.0, "backbone.operator.magnitude.learnable_radius": True}
DCNET |= {"backbone.operator.angular": "Cosine", "weighted_gradients": False}

# D.1: batch 128, rate 0.1 divided by 10 at 20k, 30k, 37.5k, ends at 42.5k, ℓ₂ weight decay 1e-4;
# moderate augmentation as in [2, 20].
MHE = {**MOMENTUM, **training(42500, 128, 0.1, 1e-4, 20000, 30000, 37500), **CROP, **AUTHORS_CIFAR, "energy": "MHE"}
MHE |= {"energy.output": 1.0, "energy.s": 2.0, "energy.half_space": True, "energy.data_dependent": False}
# D.1: "batch size 64 … 0.1 … divided by 10 at 150k, 300k and 400k iterations … terminated at 500k iterations"
REGULARIZED_IMAGENET = {**MOMENTUM, **training(500000, 64, 0.1, 1e-4, 150000, 300000, 400000), **IMAGENET}

# 6.6.1: "we set the projection dimension to 30 … and the number of projection to 5".
# E.1: the weight is 1 for all variants.
COMHE = {
    "energy": "CoMHE",
    "energy.projection": "RandomProjection",
    "energy.projection.dim": 30,
    "energy.projection.count": 5,
}
COMHE |= {"energy.hidden": 1.0, "energy.half_space": True}
# [161]: Adam at 0.01, 200 steps, 16 hidden neurons, dropout 0.5, weight decay 5e-4; E.24 has no bias.
GCN = {
    **ADAM,
    **training(200, 128, 0.01, 5e-4),
    "data": "Planetoid",
    "data.name": "cora",
    "backbone": "gcn",
    "head.bias": False,
}
# E.1: 1024 points, batch 32, Adam at 0.001, times 0.7 every 200k, 250 epochs of 9,840 clouds (307 whole batches).
POINTNET = {**ADAM, **training(250 * 307, 32, 1e-3, 0.0, 200000, gamma=0.7), "data": "ModelNet40", "data.points": 1024}
POINTNET |= {"energy.s": 1.0}

# F.3: batch 128, momentum 0.9, rate 0.1, ℓ₂ weight decay 5e-4; R from N(0, 1);
# "when the performance is saturated": D.1's steps.
OPT = {**MOMENTUM, **training(42500, 128, 0.1, 5e-4, 20000, 30000, 37500), **CROP, **AUTHORS_CIFAR, "data": "CIFAR100"}
OPT |= {"orthogonal": "overparameterize", "orthogonal.train_neurons": False, "orthogonal.start": "usual"}
LOGGED = {"energy_s": 1.0, "energy_half_space": True}  # E.2 and F.7; figures 6.1, 7.3, E.2, F.2

PRINTED: dict[str, dict[str, Any]] = {
    "lsoftmax-mnist": {
        **LSOFTMAX,
        "data": "MNIST",
        "augment": NONE,
        "head.annealing.rate": 2.5e-5,
        "head.annealing.power": 35.0,
    },
    "lsoftmax-cifar10": {**LSOFTMAX, **LSOFTMAX_CIFAR, **CROP, "data": "CIFAR10"},
    "lsoftmax-cifar100": {**LSOFTMAX, **LSOFTMAX_CIFAR, "augment": NONE, "data": "CIFAR100"},
    "lsoftmax-casia": {
        **{**CASIA, "batch_size": 256, "normalize": "deviation"},
        "head": "LSoftmax",
        "backbone": "lsoftmax_lfw",
    }
    | {"steps": 57000, "schedule.milestones": [38000, 47500]},  # about 30 epochs of 490k faces (2.2.7)
    "sphereface-lfw": {**SPHEREFACE, **FACES, "backbone": "sphereface64", "data": "LFW"},
    "sphereface-casia": {**CASIA, **SPHEREFACE, "backbone": "sphereface64"},
    "sphereface-ablation-casia": {**CASIA, "backbone": "sphereface4", "head": "Softmax", "head.bias": True}
    | {"backbone.last_activation": "relu"},  # table A.1, A: the last ReLU, biases, free weights
    "sphereface-omniglot": {**SPHEREFACE, "backbone": "sphereface20", "data": "Omniglot"},
    "spherenet-cifar10": {
        **SPHERENET,
        **COSINE,
        "data": "CIFAR10",
        "backbone": "cnn9",
        "backbone.table": "B.1",
        "head": "WSoftmax",
    }
    | {"head.angular": NONE},  # the cosine, the default of the head
    "spherenet-deep-cifar10": {**SPHERENET, **COSINE, "data": "CIFAR10", "backbone": "cnn18", "backbone.table": "B.1"}
    | {"backbone.activation": "none", "head": "Softmax"},  # table 3.3: 18-layer CNNs with BatchNorm, ReLU removed
    "spherenet-learned-cifar10": {
        **SPHERENET,
        **SIGMOID,
        "data": "CIFAR10",
        "backbone": "cnn9",
        "backbone.table": "B.1",
    }
    | {
        "backbone.operator.angular.k": 0.5,
        "backbone.operator.angular.learnable": "filter",
        "head": "WSoftmax",
    },  # 3.4.3
    "spherenorm-cifar10": {**SPHERENET, "data": "CIFAR10", "backbone": "cnn9", "backbone.table": "B.1", "batch_size": 4}
    | {"backbone.norm": "sphere", "head": "Softmax", "backbone.operator": NONE},  # 3.4.4
    "spherenet-cifar100": {**SPHERENET, **SIGMOID, **BOTH_FLIPS, "data": "CIFAR100", "backbone": "resnet32"}
    | {
        "backbone.operator.angular.k": 0.3,
        "head": "WSoftmax",
        "head.angular": "Sigmoid",
        "head.angular.k": 0.3,
    },  # S-SW
    "spherenet-imagenet": {**MOMENTUM, **training(550000, 40, 0.1, 0.0, 200000, 375000), **IMAGENET, **COSINE}
    | {"backbone": "sphere_resnet18", "backbone.version": 2, "head": "Softmax"},
    "dcnet-cifar10": {**DCNET, "data": "CIFAR10", "backbone": "resnet32", "backbone.table": "C.1", "head": "WSoftmax"},
    "dcnet-cifar100": {**DCNET, "data": "CIFAR100", "backbone": "cnn9", "backbone.table": "C.1", "head": "Softmax"},
    "dcnet-resnet-cifar100": {
        **DCNET,
        "data": "CIFAR100",
        "backbone": "resnet32",
        "backbone.table": "C.1",
        "head": "Softmax",
    },
    "dcnet-imagenet": {**DCNET, **MOMENTUM, **training(550000, 40, 0.1, 0.0, 200000, 375000), **IMAGENET}
    | {"backbone": "modified_resnet18", "head": "Softmax"},
    "adversarial-cifar10": {
        **ADAM,
        **training(42500, 128, 1e-3, 0.0, 20000, 30000, 37500),
        **AUTHORS_CIFAR,
        "data": "CIFAR10",
    }
    | {"task": "Adversarial", "task.epsilon": 8 / 255, "task.step": 2 / 255, "task.iterations": 20}  # C.1.2
    | {"backbone.table": "C.1 adversarial", "backbone.norm": "none", "backbone.operator.magnitude": "Sphere"}
    | {
        "weighted_gradients": False,
        "project_every": 0,
    },  # "use standard gradients and are trained without any optimization trick"
    "mhe-cifar10": {**MHE, "data": "CIFAR10", "backbone": "cnn9", "backbone.table": "D.1"},
    "mhe-resnet-cifar100": {**MHE, "data": "CIFAR100", "backbone": "resnet32", "backbone.table": "D.2"},
    "mhe-imagenet": {**MHE, **REGULARIZED_IMAGENET, "backbone": "resnet18"},
    "mhe-spherenet-cifar10": {
        **MHE,
        **COSINE,
        "optimizer.weight_decay": 0.0,
        "data": "CIFAR10",
        "backbone.table": "D.1",
    },
    "imbalance-cifar10": {**MHE, "data": "CIFAR10", "backbone": "cnn9", "samples.imbalance": "ImbalancedMultiple"},
    "imbalance-cifar100": {**MHE, "data": "CIFAR100", "backbone": "cnn9", "samples.imbalance": "ImbalancedSingle"}
    | {"samples.imbalance.classes": list(range(10)), "samples.imbalance.keep": 0.1},  # D.8: index 0 to 9, 10 %
    "imbalance-mnist": {"data": "MNIST", "samples.imbalance": "ImbalancedSingle", "samples.imbalance.keep": 100}
    | {
        "backbone": "cnn6",
        "backbone.feature_dim": 2,
        "energy": "MHE",
        "energy.output": 1.0,
    },  # 5.5.1: 100 zeros, two features
    "sphereface-plus-lfw": {**SPHEREFACE, **FACES, **PLUS, "backbone": "sphereface64", "data": "LFW"},
    "sphereface-plus-casia": {**CASIA, **PLUS, "head": "SphereFace", "head.m": 4, "backbone": "sphereface64"}
    | {"weights": "runs/sphereface-casia", "head.annealing.start": 5.0}  # D.1: first SphereFace, then (5.8)
    | {
        "steps": 8000,
        "optimizer.lr": 0.01,
        "schedule": "ConstantRate",
        "schedule.milestones": NONE,
        "schedule.gamma": NONE,
    },
    "sphereface-plus-omniglot": {**SPHEREFACE, **PLUS, "backbone": "sphereface20"},
    "amsoftmax-mhe-casia": {
        **CASIA,
        **PLUS,
        "head": "CosFace",
        "head.scale": 30.0,
        "head.m": 0.35,
        "backbone": "sphereface20",
    },
    "gan-mhe-cifar10": {
        **ADAM,
        **training(600000, 64, 2e-4, 0.0),
        "optimizer.betas": [0.5, 0.9],
        "task": "GAN",
        "task.turns": 5,
    }
    | {"backbone": "Players", "backbone.spectral_norm": True, "backbone.latent_dim": 128, "energy": "MHE"}
    | {"energy.hidden": 1e-7, "energy.half_space": True},  # authors' notes on MHE with spectral norm
    "comhe-cifar100": {**MHE, **COMHE, "data": "CIFAR100", "backbone": "cnn9", "backbone.table": "D.1"},
    "comhe-imagenet": {**MHE, **COMHE, **REGULARIZED_IMAGENET, "backbone": "resnet18"},
    "rotation-cifar100": {**MHE, **LOGGED, "optimizer.weight_decay": 0.0, "data": "CIFAR100", "backbone.table": "E.3"}
    | dict.fromkeys([key for key in MHE if key.startswith("energy")])
    | {"orthogonal": "overparameterize", "orthogonal.method": "gram_schmidt"},  # E.2.2
    "comhe-pointnet": {**POINTNET, **COMHE, "backbone": "pointnet"},
    "comhe-pointnet2": {
        **POINTNET,
        **COMHE,
        "backbone": "pointnet2",
        "batch_size": 16,
        "steps": 251 * 615,
    },  # E.1: 251 epochs
    "comhe-gcn-cora": {**GCN, **COMHE, "energy.s": 2.0},
    "opt-mlp-mnist": {
        **MOMENTUM,
        **training(60000, 100, 0.01, 5e-4),
        "data": "MNIST",
        "backbone": "mlp",
        "backbone.init": "xavier",
    }
    | {"orthogonal": "overparameterize", "orthogonal.method": "cayley"},
    "opt-cnn-cifar100": {
        **OPT,
        **LOGGED,
        "backbone": "cnn6",
        "backbone.table": "F.1",
        "orthogonal.method": "gram_schmidt",
    },
    "opt-blocks-cifar100": {**OPT, "backbone": "cnn6", "orthogonal.method": "cayley", "orthogonal.blocks": 4}
    | {"orthogonal.share_blocks": True},
    "opt-progressive-cifar10": {**OPT, "data": "CIFAR10", "samples.per_class": 500, "optimizer.lr": 0.01}
    | {"weights": "runs/opt-cnn-cifar100", "orthogonal.start": "identity"},
    "opt-imagenet": {
        **MOMENTUM,
        **training(700000, 128, 0.1, 5e-4, 330000, 495000, 618000),
        **IMAGENET,
        "backbone": "cnn10",
    }
    | {"orthogonal.method": "cayley"},  # F.3: 700k iterations
    "opt-resnet-cifar100": {**OPT, "backbone": "resnet20", "backbone.table": "F.2", "orthogonal.method": "cayley"},
    "opt-gcn-cora": {**GCN, "orthogonal.method": "cayley"},
    "opt-pointnet": {**{k: v for k, v in POINTNET.items() if k != "energy.s"}, "orthogonal.method": "cayley"},
    # F.3: 200 epochs of 600·64 images in batches of 16, hence 480,000 with all images of Mini-ImageNet.
    # Here 500 images per class.
    "opt-few-shot": {
        **ADAM,
        **training(400000, 16, 1e-3, 5e-4),
        "task": "FewShotRecognition",
        "backbone": "cnn4",
        "size": 84,
    }
    | {
        "task.ways": 5,
        "task.shots": 5,
        "task.train_classes": 64,
        "task.validation_classes": 16,
        "task.test_classes": 20,
    }
    | {"orthogonal.method": "cayley"},
    "few-shot-omniglot": {
        **ADAM,
        **training(20000, 128, 1e-3, 5e-4),
        "task": "FewShotRecognition",
        "backbone": "cnn4",
        "size": 28,
    }
    | {"task.ways": 5, "task.shots": 1, "orthogonal": NONE},
}

# Filters of every convolution except 1×1 shortcuts, and the feature dimension:
# tables 2.1, 2.7, B.1, B.2, C.1, D.1, D.2, E.3, F.1, F.2.
FILTERS: dict[str, tuple[list[int], int]] = {
    "lsoftmax-mnist": ([64] * 1 + [64] * 3 + [64] * 3 + [64] * 3, 256),
    "lsoftmax-cifar10": ([64] * 1 + [64] * 4 + [96] * 4 + [128] * 4, 256),
    "lsoftmax-cifar100": ([96] * 1 + [96] * 4 + [192] * 4 + [384] * 4, 512),
    "sphereface-lfw": ([64] * 7 + [128] * 17 + [256] * 33 + [512] * 7, 512),
    "sphereface-casia": ([64] * 7 + [128] * 17 + [256] * 33 + [512] * 7, 512),
    "sphereface-ablation-casia": ([64, 128, 256, 512], 512),
    "sphereface-omniglot": ([64] * 3 + [128] * 5 + [256] * 9 + [512] * 3, 512),
    "spherenet-cifar10": ([64] * 3 + [96] * 3 + [128] * 3, 256),
    "spherenet-deep-cifar10": ([64] * 6 + [96] * 6 + [128] * 6, 256),
    "spherenet-learned-cifar10": ([64] * 3 + [96] * 3 + [128] * 3, 256),
    "spherenet-cifar100": ([96] * 11 + [192] * 10 + [384] * 10, 384),
    "spherenet-imagenet": ([256] * 5 + [512] * 4 + [768] * 4 + [1024] * 4, 1024),
    "dcnet-cifar10": ([96] * 11 + [192] * 10 + [384] * 10, 384),
    "dcnet-cifar100": ([64] * 3 + [128] * 3 + [256] * 3, 512),
    "dcnet-resnet-cifar100": ([96] * 11 + [192] * 10 + [384] * 10, 384),
    "dcnet-imagenet": ([128] * 4 + [256] * 5 + [512] * 7 + [1024], 1024),
    "adversarial-cifar10": ([32] * 3 + [64] * 3 + [128] * 3, 256),
    "mhe-cifar10": ([64] * 3 + [128] * 3 + [256] * 3, 256),
    "mhe-resnet-cifar100": ([64] * 11 + [128] * 10 + [256] * 10, 256),
    "mhe-imagenet": ([64] * 5 + [128] * 4 + [256] * 4 + [512] * 4, 512),
    "comhe-cifar100": ([64] * 3 + [128] * 3 + [256] * 3, 256),
    "rotation-cifar100": ([32] * 3 + [64] * 6, 64),
    "opt-cnn-cifar100": ([64] * 6, 64),
    "opt-imagenet": ([64] * 4 + [128] * 3 + [256] * 3, 256),
    "opt-resnet-cifar100": ([16] * 7 + [32] * 6 + [64] * 6, 64),
    "opt-few-shot": ([64] * 4, 1600),
}
CHANNELS = {"lsoftmax-mnist": 1, "sphereface-omniglot": 1}
SIDES: dict[str, tuple[int, int]] = {
    "lsoftmax-mnist": (28, 28),
    "sphereface-lfw": (112, 112),
    "sphereface-casia": (112, 96),
    "sphereface-ablation-casia": (112, 96),
    "sphereface-omniglot": (28, 28),
    "opt-few-shot": (84, 84),
    **dict.fromkeys(("spherenet-imagenet", "dcnet-imagenet", "mhe-imagenet", "opt-imagenet"), (224, 224)),
}
WITHOUT_BATCH_NORM = (
    "adversarial-cifar10",
    "sphereface-lfw",
    "sphereface-casia",
    "sphereface-ablation-casia",
    "sphereface-omniglot",
)


def paper(name: str) -> Config:
    return recipes.get(name).config("paper")


def settings_of(config: Config) -> dict[str, Any]:
    return flatten(encode(config, defaults=True))


def build(config: Config, name: str) -> ConvNet:
    with torch.device("meta"):
        size = SIDES.get(name, (32, 32))
        sizes = {"num_classes": None, "in_channels": CHANNELS.get(name, 3), "input_size": size, "in_features": 3}
        network: ConvNet = config.backbone.build(**sizes)
    return network


def test_every_recipe_is_in_the_table() -> None:
    assert PRINTED.keys() == recipes.RECIPES.keys()


@pytest.mark.parametrize("name", PRINTED)
def test_the_setting_is_the_dissertations(name: str) -> None:
    found = settings_of(paper(name))
    wrong = {key: (found.get(key), value) for key, value in PRINTED[name].items() if found.get(key) != value}
    assert wrong == {}


@pytest.mark.parametrize("name", FILTERS)
def test_the_network_is_that_of_its_table(name: str) -> None:
    network = build(paper(name), name)
    filters = [
        module.weight.shape[0]
        for module in network.modules()
        if isinstance(getattr(module, "weight", None), nn.Parameter) and module.weight.ndim == 4
        if tuple(module.weight.shape[2:]) != (1, 1)  # shortcuts are not in the tables
    ]
    assert (filters, network.feature_dim) == FILTERS[name]
    normalized = any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert normalized == (name not in WITHOUT_BATCH_NORM)


def test_the_perceptron_has_two_hidden_layers_of_256() -> None:
    with torch.device("meta"):
        network = paper("opt-mlp-mnist").backbone.build(num_classes=10, in_features=784)
    shapes = [tuple(m.weight.shape) for m in network.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(256, 784), (256, 256), (10, 256)]


@pytest.mark.parametrize(("half_space", "weight"), [(True, 1.0), (False, 10.0)])
def test_the_weight_of_the_energy_follows_the_space(half_space: bool, weight: float) -> None:
    """D.1: λ_h is 10 in full space and 1 in half space; E.1: 1 for CoMHE, in either."""
    network = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    energy = paper("mhe-cifar10").replace({"energy.half_space": half_space}).energies[0].build(model=network)
    assert (energy.hidden, energy.output) == (weight, 1.0)
    compressive = (
        paper("comhe-cifar100").replace({"energy.half_space": half_space, "energy.projection.dim": 2}).energies[0]
    )
    assert compressive.build(model=network).hidden == 1.0


# Rows and columns of a table: the recipe, the changes that its docstring names, and the settings in the text.
ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "3.4, L-LW": (
        "spherenet-cifar100",
        {"backbone.operator.angular": "Linear", "head.angular": "Linear"},
        {"head": "WSoftmax"},
    ),
    "3.4, C-CW": (
        "spherenet-cifar100",
        {"backbone.operator.angular": "Cosine", "head.angular": "Cosine"},
        {"head": "WSoftmax"},
    ),
    "3.4, S-G": ("spherenet-cifar100", {"head": "GASoftmax"}, {"head.m": 4, "backbone.operator.angular.k": 0.3}),
    "3.1, convolution": (
        "spherenet-cifar10",
        {"backbone.operator": None, "energy": None, "optimizer.weight_decay": 5e-4, "head": "Softmax"},
        {"optimizer.weight_decay": 5e-4, "energy": NONE},
    ),
    "3.6, v1": ("spherenet-imagenet", {"backbone.version": 1, "head": "WSoftmax"}, {"head.angular": NONE}),
    "4.1, weighted": (
        "dcnet-resnet-cifar100",
        {"project_every": 0, "backbone.operator.magnitude.weighted": "linear"},
        {},
    ),
    "C.2": (
        "dcnet-resnet-cifar100",
        {"optimizer": "SGD", "optimizer.lr": 0.1, "optimizer.momentum": 0.9},
        {"project_every": 100},
    ),
    "6.7, ResNet-50": ("comhe-imagenet", {"backbone": "resnet50"}, {"batch_size": 64}),
    "6.8, PN (T)": (
        "comhe-pointnet",
        {"backbone.t_net": True},
        {"backbone.t_net": True, "batch_size": 32},
    ),
    "A.1, D": (
        "sphereface-ablation-casia",
        {"backbone.last_activation": "none", "head": "WSoftmax"},
        {"head.bias": False},
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_settings(row: str) -> None:
    name, changes, expected = ROWS[row]
    found = settings_of(paper(name).replace(changes))
    assert {key: found.get(key) for key in expected} == expected
