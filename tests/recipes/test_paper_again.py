"""Every recipe's settings against values read from Liu (2020) a second time, by another reader.

The values are from the text alone: each group cites its section, table or page, and what the text does not say is left
out. Networks are compared by the layers in the text's tables, not by name.
"""

import math
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from hypersphere.cli.train import choose_recipe
from hypersphere.config import as_call, keys
from hypersphere.data import InMemory
from hypersphere.models import TNet
from hypersphere.operators import SphereNorm
from hypersphere.training import Config

Rows: TypeAlias = list[tuple[int, int, int]]  # (kernel, stride, filters) of each convolution

# Where the text has no single value.
POSITIVE = "positive"  # the text says that it is on, but gives no number
MEAN_SUBTRACTED = {"pixel_mean", "deviation"}  # the text names neither the mean nor the divisor


def between(low: int, high: int) -> range:
    """Return a range of integers, both ends included, for "about 30 epochs"."""
    return range(low, high + 1)


# ------------------------------------------------------------------------------------------------------------ networks
# A network is a list of convolutions (kernel, stride, filters) without shortcuts, and the widths of its fully connected
# layers up to the features.


def conv(filters: int, times: int = 1, kernel: int = 3, stride: int = 1) -> Rows:
    """Return ``[kernel × kernel, filters] × times``; only the first layer has the stride."""
    return [(kernel, stride if i == 0 else 1, filters) for i in range(times)]


def units(filters: int, times: int, stride: int = 1) -> Rows:
    """Return residual units of two convolutions; only the first convolution has the stride."""
    return conv(filters, 2 * times, stride=stride)


def plain(depth: int, a: int, b: int, c: int) -> Rows:
    """Return a plain CNN: three groups of depth/3 convolutions (tables B.1, C.1, D.1, E.1, E.3, F.1)."""
    return conv(a, depth // 3) + conv(b, depth // 3) + conv(c, depth // 3)


def cifar_resnet(times: int, a: int, b: int, c: int) -> Rows:
    """Return a ResNet for CIFAR, whose stages two and three halve the resolution (tables B.2, C.1, D.2, E.2, F.2)."""
    return conv(a) + units(a, times) + units(b, times, stride=2) + units(c, times, stride=2)


def resnet18(stem: int, a: int, b: int, c: int, d: int) -> Rows:
    """Return a ResNet-18 whose first layer is a 7×7 convolution of stride 2 (tables B.2, C.1, D.2, E.2)."""
    stages = units(a, 2) + units(b, 2, stride=2) + units(c, 2, stride=2) + units(d, 2, stride=2)
    return conv(stem, kernel=7, stride=2) + stages


def face_stages(*times: int) -> Rows:
    """Return table 2.7's stages: a convolution of stride 2, then residual units."""
    stages = zip((64, 128, 256, 512), times, strict=True)
    return [layer for filters, n in stages for layer in conv(filters, stride=2) + units(filters, n)]


def network(convolutions: Rows, *full: int) -> dict[str, Any]:
    """Return the expected layers under the two keys that the test measures."""
    return {"convolutions": convolutions, "fully connected": list(full)}


# Table 2.1, by column
LSOFTMAX_MNIST = network(conv(64, 10), 256)
LSOFTMAX_CIFAR10 = network(conv(64, 5) + conv(96, 4) + conv(128, 4), 256)
LSOFTMAX_CIFAR100 = network(conv(96, 5) + conv(192, 4) + conv(384, 4), 512)
LSOFTMAX_LFW = network(conv(64, stride=2) + conv(64, 4) + conv(256, 4) + conv(256, 4) + conv(256, 4), 512)
# Table 2.7
SPHEREFACE_4 = network(face_stages(0, 0, 0, 0), 512)
SPHEREFACE_20 = network(face_stages(1, 2, 4, 1), 512)
SPHEREFACE_64 = network(face_stages(3, 8, 16, 3), 512)
# Tables B.1 and B.2
SPHERE_CNN_9 = network(plain(9, 64, 96, 128), 256)
SPHERE_CNN_18 = network(plain(18, 64, 96, 128), 256)
SPHERE_RESNET_32 = network(cifar_resnet(5, 96, 192, 384))  # the column for the image classification of 3.4.5
SPHERE_RESNET_18 = network(resnet18(256, 256, 512, 768, 1024))
# Table C.1
DECOUPLED_CNN_9 = network(plain(9, 64, 128, 256), 512)
ATTACKED_CNN_9 = network(plain(9, 32, 64, 128), 256)
DECOUPLED_RESNET_32 = network(cifar_resnet(5, 96, 192, 384))
MODIFIED_RESNET_18 = network(
    conv(128, kernel=7, stride=2)
    + (conv(128, stride=2) + units(128, 1))
    + (conv(256, stride=2) + units(256, 2))
    + (conv(512, stride=2) + units(512, 3))
    + conv(1024, stride=2)
)
# Tables D.1 and D.2, and the same in E.1 and E.2
ENERGY_CNN_9 = network(plain(9, 64, 128, 256), 256)
ENERGY_CNN_6_CONVOLUTIONS = plain(6, 64, 128, 256)
ENERGY_RESNET_32 = network(cifar_resnet(5, 64, 128, 256))
RESNET_18 = network(resnet18(64, 64, 128, 256, 512))
# Table E.3
SMALL_CNN_9 = network(plain(9, 32, 64, 64), 64)
# Tables F.1, F.2 and F.3
OPT_CNN_6 = network(plain(6, 64, 64, 64), 64)
OPT_CNN_10 = network(conv(64, kernel=7, stride=2) + plain(9, 64, 128, 256), 256)
OPT_RESNET_20 = network(cifar_resnet(3, 16, 32, 64))
CNN_4 = network(conv(64, 4))
# Table D.5 (b): the discriminator, whose last row is dense → 1
DISCRIMINATOR = network([(3, 1, 64), (4, 2, 64), (3, 1, 128), (4, 2, 128), (3, 1, 256), (4, 2, 256), (3, 1, 512)], 1)

# ------------------------------------------------------------------------------------------------------------ settings

SGD = {"optimizer": "SGD", "optimizer.momentum": 0.9}

# 2.2.7, General Settings: PReLU, batches of 256, weight decay 0.0005, momentum 0.9, the initialization of [38] (He),
# batch normalization, only the mean is subtracted.
LSOFTMAX = SGD | {
    "optimizer.lr": 0.1,
    "optimizer.weight_decay": 0.0005,
    "batch_size": 256,
    "backbone.norm": "batch",
    "backbone.activation": "prelu",
    "backbone.init": "he",
    "normalize": MEAN_SUBTRACTED,
    "head": "LSoftmax",
    "head.m": 4,
}
# 2.2.7, "MNIST, CIFAR10, CIFAR100": divided by 10 at 12k and 15k, ended at 18k.
LSOFTMAX_STEPS = {"steps": 18_000, "schedule.milestones": [12_000, 15_000], "schedule.gamma": 0.1}
# 2.2.7, "CIFAR10": 4 pixels are padded on each side, a 32×32 crop of the picture or of its horizontal flip.
CROPS = {"augment": "CropFlip", "augment.pad": 4, "augment.horizontal": True}
CROPS_AND_ONE_FLIP = CROPS | {"augment.vertical": False}
CROPS_AND_BOTH_FLIPS = CROPS | {"augment.vertical": True}

# 2.3.6: (pixel − 127.5)/128, horizontal flips, mirror features joined, m = 4; annealing to 5 (A.7).
FACES = {
    "normalize": "faces",
    "mirror": True,
    "augment.horizontal": True,
    "augment.vertical": False,
    "head": "SphereFace",
    "head.m": 4,
}
ANNEALED = {"head.annealing.floor": 5}
# 2.3.6, CNNs Setup: batches of 128, 0.1 divided by 10 at 16K and 24K, finished at 28K.
FACE_STEPS = {
    "optimizer": "SGD",
    "optimizer.lr": 0.1,
    "batch_size": 128,
    "steps": 28_000,
    "schedule.milestones": [16_000, 24_000],
    "schedule.gamma": 0.1,
}

# 3.4.1: batch normalization and ReLU; ADAM from 0.001, batches of 128, divided by 10 at 34K and 54K, ended at 64K.
# 3.2.4: no ℓ2 weight decay, but ‖WᵀW − I‖² (orthonormality).
SPHERENET = {
    "optimizer": "Adam",
    "optimizer.lr": 0.001,
    "optimizer.weight_decay": 0,
    "batch_size": 128,
    "steps": 64_000,
    "schedule.milestones": [34_000, 54_000],
    "schedule.gamma": 0.1,
    "backbone.norm": "batch",
    "backbone.activation": "relu",
    "backbone.operator.magnitude": "Sphere",
    "backbone.operator.magnitude.alpha": 1,
    "energy": "Orthonormality",
    "energy.hidden": POSITIVE,
}
COSINE = {"backbone.operator.angular": "Cosine"}
COSINE_W_SOFTMAX = {"head": "WSoftmax", "head.angular": "Cosine"}

# B.2: pictures of 256×256, random crops of 224×224, horizontal flips. 3.4.6: single crop in validation.
IMAGENET = {
    "data": "PictureFolder",
    "data.size": 256,
    "data.resize": "stretch",
    "data.center": 224,
    "augment.size": 224,
    "augment.horizontal": True,
    "augment.vertical": False,
}

# 4.6: softmax; ADAM from 0.001, batches of 128, divided by 10 at plateaus. C.1.1: batch normalization if not specified,
# the initialization of [38], the orthogonal constraint, the augmentation of SphereNet. 4.5: no ℓ2 weight decay.
# 4.6.1: unweighted operators with weight projection. C.2: α = 1.
DECOUPLED = {
    "optimizer": "Adam",
    "optimizer.lr": 0.001,
    "optimizer.weight_decay": 0,
    "batch_size": 128,
    "schedule.gamma": 0.1,
    "backbone.norm": "batch",
    "backbone.activation": "relu",
    "backbone.init": "he",
    "backbone.operator.magnitude.alpha": 1,
    "backbone.operator.magnitude.weighted": None,
    "energy": "Orthogonality",
    "energy.hidden": POSITIVE,
    "project_every": POSITIVE,
    "weighted_gradients": False,
}
# C.2: TanhConv learns ρ, which starts at 1.
TANH = {
    "backbone.operator.magnitude": "Tanh",
    "backbone.operator.magnitude.radius": 1,
    "backbone.operator.magnitude.learnable_radius": True,
}

# 5.5.1: SGD with momentum 0.9, the initialization of [38], batch normalization and ReLU, s = 2 and Euclidean distance.
# D.1: weight decay 1e-4; λ_h = 10 in the full space and 1 in half space, λ_o = 1.
ENERGY = SGD | {
    "optimizer.lr": 0.1,
    "optimizer.weight_decay": 1e-4,
    "schedule.gamma": 0.1,
    "backbone.norm": "batch",
    "backbone.activation": "relu",
    "backbone.init": "he",
    "head": "Softmax",
    "energy": "MHE",
    "energy.output": 1,
    "energy.s": 2,
    "energy.distance": "euclidean",
}
HALF_SPACE = {"energy.half_space": True, "energy.hidden": 1}
# D.1: batches of 128; 20k, 30k, 37.5k of 42.5k. 5.5.1: moderate augmentation as in [2] and [20].
ENERGY_CIFAR = {"batch_size": 128, "steps": 42_500, "schedule.milestones": [20_000, 30_000, 37_500]} | CROPS
# D.1, ImageNet-2012: batches of 64; 150k, 300k, 400k of 500k.
ENERGY_IMAGENET = {"batch_size": 64, "steps": 500_000, "schedule.milestones": [150_000, 300_000, 400_000]} | IMAGENET
# D.1, SphereFace+: full-space MHE with Euclidean distance and s = 2 in the output layer; (5.8): its mini-batch form.
CLASS_ENERGY = {
    "energy": "MHE",
    "energy.hidden": 0,
    "energy.output": 1,
    "energy.s": 2,
    "energy.distance": "euclidean",
    "energy.data_dependent": True,
}

# 6.6.1: SGD with momentum 0.9, batch normalization and ReLU; CoMHE is built upon half-space MHE; random projections
# (RP): 5 of 30 dimensions, averaged. E.1: from 0.1, weight decay 1e-4, weight 1 for hidden layers, s = 2.
COMHE = SGD | {
    "optimizer.lr": 0.1,
    "optimizer.weight_decay": 1e-4,
    "backbone.norm": "batch",
    "backbone.activation": "relu",
    "head": "Softmax",
    "energy": "CoMHE",
    "energy.hidden": 1,
    "energy.s": 2,
    "energy.half_space": True,
    "energy.projection": "RandomProjection",
    "energy.projection.dim": 30,
    "energy.projection.count": 5,
    "energy.projection.reduce": "mean",
}
# E.1, point clouds: 1024 points, Adam from 0.001, decay by 0.7; s = 1. F.3 has the same for PointNet.
POINTS = {
    "data": "ModelNet40",
    "data.points": 1024,
    "optimizer": "Adam",
    "optimizer.lr": 0.001,
    "schedule.gamma": 0.7,
    "head": "Softmax",
}
POINTS_ENERGY = {"energy": "CoMHE", "energy.projection": "RandomProjection", "energy.s": 1, "energy.half_space": True}
# ModelNet-40 has 9,840 training shapes (its publication). The text does not say whether a partial last batch counts.
POINTNET_STEPS = {"batch_size": 32, "steps": between(250 * 307, 250 * 308)}
POINTNET2_STEPS = {"batch_size": 16, "steps": between(251 * 615, 251 * 616)}

# F.3, CNNs: batches of 128, momentum SGD (0.9) from 0.1, divided by 10, weight decay 5e-4. 7.5.3: the initialization of
# [38], batch normalization by default; neurons are neither refined nor normalized, except in tables 7.6 and 7.7.
OPT = SGD | {
    "optimizer.lr": 0.1,
    "optimizer.weight_decay": 5e-4,
    "batch_size": 128,
    "schedule.gamma": 0.1,
    "backbone.norm": "batch",
    "backbone.init": "he",
    "head": "Softmax",
    "orthogonal.train_neurons": False,
    "orthogonal.refine": None,
    "orthogonal.normalize": False,
}
CAYLEY = {"orthogonal.method": "cayley"}

PAPER: dict[str, dict[str, Any]] = {
    # ------------------------------------------------------------------------------------------------------- chapter 2
    "lsoftmax-mnist": LSOFTMAX | LSOFTMAX_STEPS | LSOFTMAX_MNIST | {"data": "MNIST"},  # 2.2.7, tables 2.1 and 2.2
    "lsoftmax-cifar10": (  # 2.2.7, tables 2.1 and 2.3 (CIFAR10+)
        LSOFTMAX | LSOFTMAX_STEPS | LSOFTMAX_CIFAR10 | CROPS_AND_ONE_FLIP | {"data": "CIFAR10"}
    ),
    "lsoftmax-cifar100": LSOFTMAX | LSOFTMAX_STEPS | LSOFTMAX_CIFAR100 | {"data": "CIFAR100"},  # 2.2.7, table 2.4
    # 2.2.7, Face Verification, table 2.5: 0.1, 0.01, 0.001, about 30 epochs of 490k images
    "lsoftmax-casia": LSOFTMAX | LSOFTMAX_LFW | {"schedule.gamma": 0.1, "steps": between(55_000, 60_000)},
    # 2.3.6, tables 2.8 and 2.9: the 64-layer CNN
    "sphereface-casia": FACES | ANNEALED | FACE_STEPS | SPHEREFACE_64,
    # A.5, table A.1, row A: the 4-layer CNN with the last ReLU and biases, neither normalized weights nor a margin
    "sphereface-ablation-casia": (
        {key: value for key, value in FACES.items() if not key.startswith("head")}
        | FACE_STEPS
        | SPHEREFACE_4
        | {"head": "Softmax", "head.bias": True, "backbone.last_activation": "relu"}
    ),
    "sphereface-lfw": FACES | ANNEALED | {"data": "LFW"},  # 2.3.6; the text trains on CASIA-WebFace
    # ------------------------------------------------------------------------------------------------------- chapter 3
    # 3.4.2, tables 3.1 and 3.2, row Cosine, cosine W-Softmax. Augmentation: the text contradicts itself
    # (3.4.1 has flips, 3.4.2 has nothing).
    "spherenet-cifar10": SPHERENET | COSINE | COSINE_W_SOFTMAX | SPHERE_CNN_9 | {"data": "CIFAR10"},
    # 3.4.2, Learning without ReLU, table 3.3: 18 layers with batch normalization
    "spherenet-deep-cifar10": (SPHERENET | COSINE | SPHERE_CNN_18 | {"backbone.activation": "none", "data": "CIFAR10"}),
    # 3.4.3: k of every filter is learned and starts at 0.5
    "spherenet-learned-cifar10": (
        SPHERENET
        | COSINE_W_SOFTMAX
        | SPHERE_CNN_9
        | {
            "backbone.operator.angular": "Sigmoid",
            "backbone.operator.angular.k": 0.5,
            "backbone.operator.angular.learnable": "filter",
            "data": "CIFAR10",
        }
    ),
    # 3.4.4: the cosine SphereConv as SphereNorm, softmax, the set-up of 3.4.2 with smaller batches
    "spherenorm-cifar10": (
        {key: value for key, value in SPHERENET.items() if not key.startswith("backbone.operator")}
        | SPHERE_CNN_9
        | {"backbone.norm": "sphere", "head": "Softmax", "batch_size": between(1, 127), "data": "CIFAR10"}
    ),
    # 3.4.5, table 3.4, S-SW: crops and both flips
    "spherenet-cifar100": (
        SPHERENET
        | CROPS_AND_BOTH_FLIPS
        | SPHERE_RESNET_32
        | {
            "backbone.operator.angular": "Sigmoid",
            "backbone.operator.angular.k": 0.3,
            "head": "WSoftmax",
            "head.angular": "Sigmoid",
            "head.angular.k": 0.3,
            "data": "CIFAR100",
        }
    ),
    # 3.4.1, 3.4.6, B.2: v2 has the cosine SphereConv and the softmax loss; SGD, 200K and 375K of 550K, batches of 40
    "spherenet-imagenet": (
        SPHERENET
        | SGD
        | COSINE
        | IMAGENET
        | SPHERE_RESNET_18
        | {
            "optimizer.lr": 0.1,
            "batch_size": 40,
            "steps": 550_000,
            "schedule.milestones": [200_000, 375_000],
            "head": "Softmax",
            "shortcuts": "plain",
        }
    ),
    # ------------------------------------------------------------------------------------------------------- chapter 4
    # 4.6.1, table 4.5: DCNet-32 (TanhConv + Cosine) under the weight-normalized softmax loss
    "dcnet-cifar10": (
        DECOUPLED | TANH | COSINE | CROPS_AND_BOTH_FLIPS | DECOUPLED_RESNET_32 | {"head": "WSoftmax", "data": "CIFAR10"}
    ),
    "dcnet-cifar100": (  # 4.6.1, table 4.3
        DECOUPLED | CROPS_AND_BOTH_FLIPS | DECOUPLED_CNN_9 | {"head": "Softmax", "data": "CIFAR100"}
    ),
    "dcnet-resnet-cifar100": (  # 4.6.1, tables 4.1 and 4.4
        DECOUPLED | CROPS_AND_BOTH_FLIPS | DECOUPLED_RESNET_32 | {"head": "Softmax", "data": "CIFAR100"}
    ),
    # 4.6, table 4.6, Modified ResNet-18 with BN: SGD with momentum 0.9 from 0.1, batches of 40; cosine
    "dcnet-imagenet": (
        {key: value for key, value in DECOUPLED.items() if key not in ("backbone.init", "backbone.activation")}
        | SGD
        | TANH
        | COSINE
        | IMAGENET
        | MODIFIED_RESNET_18
        | {"optimizer.lr": 0.1, "batch_size": 40, "head": "Softmax"}
    ),
    # 4.6.2, C.1.1, C.1.2, C.3: no batch normalization, no optimization trick, original gradients, ε = 8, τ = 2, N = 20.
    # C.1.1 gives the optimization tricks as the reason for the orthogonal constraint: without them the text is silent.
    "adversarial-cifar10": (
        {key: value for key, value in DECOUPLED.items() if not key.startswith("energy")}
        | COSINE
        | ATTACKED_CNN_9
        | {
            "backbone.operator.magnitude": "Sphere",
            "backbone.norm": "none",
            "project_every": 0,
            "head": "Softmax",
            "task": "Adversarial",
            "task.epsilon": 8 / 255,
            "task.step": 2 / 255,
            "task.iterations": 20,
            "task.attacked": POSITIVE,
            "data": "CIFAR10",
        }
    ),
    # ------------------------------------------------------------------------------------------------------- chapter 5
    "mhe-cifar10": ENERGY | HALF_SPACE | ENERGY_CIFAR | ENERGY_CNN_9 | {"data": "CIFAR10"},  # 5.5.1, table 5.1
    "mhe-resnet-cifar100": (  # 5.5.1, table 5.5
        ENERGY | HALF_SPACE | ENERGY_CIFAR | ENERGY_RESNET_32 | {"data": "CIFAR100"}
    ),
    "mhe-imagenet": ENERGY | HALF_SPACE | ENERGY_IMAGENET | RESNET_18,  # 5.5.1, table 5.6
    # D.5, table D.3: CNN-9 of D.1 and its training, cosine SphereConv. D.5 does not say whether weight decay is on.
    "mhe-spherenet-cifar10": (
        {key: value for key, value in ENERGY.items() if key != "optimizer.weight_decay"}
        | HALF_SPACE
        | ENERGY_CIFAR
        | ENERGY_CNN_9
        | COSINE
        | {"backbone.operator.magnitude": "Sphere", "data": "CIFAR10"}
    ),
    # 5.5.1, D.1, table 5.7, Multiple: class c has 500·(c + 1) images
    "imbalance-cifar10": (
        ENERGY
        | ENERGY_CIFAR
        | ENERGY_CNN_9
        | {"data": "CIFAR10", "samples.imbalance": "ImbalancedMultiple"}
        | {"images per class": list(range(500, 5001, 500))}
    ),
    # D.8.1, table D.6, Single: classes 0 to 9 have a tenth of the images
    "imbalance-cifar100": (
        ENERGY
        | ENERGY_CIFAR
        | ENERGY_CNN_9
        | {
            "data": "CIFAR100",
            "samples.imbalance": "ImbalancedSingle",
            "samples.imbalance.classes": list(range(10)),
            "samples.imbalance.keep": 0.1,
        }
    ),
    # 5.5.1, figure 5.4: a 6-layer CNN, features of two dimensions, 100 samples of digit 0
    "imbalance-mnist": SGD
    | {
        "convolutions": ENERGY_CNN_6_CONVOLUTIONS,
        "features": 2,
        "energy": "MHE",
        "data": "MNIST",
        "samples.imbalance": "ImbalancedSingle",
        "samples.imbalance.classes": [0],
        "samples.imbalance.keep": 100,
    },
    # 5.5.2, D.1; the text does not give the learning rate and length of the second stage
    "sphereface-plus-casia": FACES | CLASS_ENERGY | {"batch_size": 128},
    "sphereface-plus-lfw": FACES | CLASS_ENERGY | {"data": "LFW"},
    # D.6 (section): SphereFace-20, otherwise the settings of SphereFace+; s and m are "the best setting in [14]"
    "amsoftmax-mhe-casia": (
        FACES | FACE_STEPS | CLASS_ENERGY | SPHEREFACE_20 | {"head": "CosFace", "head.m": POSITIVE}
    ),
    # D.7, tables D.4 and D.5: half-space MHE with Euclidean distance, spectral norm, the standard objective (D.12). The
    # weight of the energy is not said: D.1's "all experiments" are classifications.
    "gan-mhe-cifar10": {
        "task": "GAN",
        "task.objective": "standard",
        "backbone.latent_dim": 128,
        "backbone.spectral_norm": True,
        "energy": "MHE",
        "energy.half_space": True,
        "energy.distance": "euclidean",
        "data": "CIFAR10",
    }
    | DISCRIMINATOR,
    # ------------------------------------------------------------------------------------------------------- chapter 6
    "comhe-cifar100": COMHE | CROPS | ENERGY_CNN_9 | {"batch_size": 128, "data": "CIFAR100"},  # 6.6.1, E.1, table 6.1
    # E.1, ImageNet-2012, table 6.7: batches of 64, divided by 10, ended at 500k
    "comhe-imagenet": COMHE | IMAGENET | RESNET_18 | {"batch_size": 64, "steps": 500_000, "schedule.gamma": 0.1},
    # E.2, table E.3, figure 6.1: Gram–Schmidt, He's initialization, no weight decay, energies in half space with s = 1
    "rotation-cifar100": SGD
    | SMALL_CNN_9
    | {
        "optimizer.lr": 0.1,
        "optimizer.weight_decay": 0,
        "batch_size": 128,
        "backbone.norm": "batch",
        "backbone.init": "he",
        "energy": None,
        "energy_s": 1,
        "energy_half_space": True,
        "orthogonal.method": "gram_schmidt",
        "orthogonal.train_neurons": False,
        "head": "Softmax",
        "data": "CIFAR100",
    },
    "comhe-pointnet": POINTS | POINTS_ENERGY | POINTNET_STEPS,  # E.1, table 6.8
    "comhe-pointnet2": POINTS | POINTS_ENERGY | POINTNET2_STEPS,  # E.1, table 6.8
    # E.10, table E.6: all else is "exactly the same as [161]"; (E.24) has no biases
    "comhe-gcn-cora": {
        "data": "Planetoid",
        "data.name": "cora",
        "head": "Softmax",
        "head.bias": False,
        "energy": "CoMHE",
        "energy.projection": "RandomProjection",
        "energy.half_space": True,
    },
    # ------------------------------------------------------------------------------------------------------- chapter 7
    # F.3, Multilayer perceptron, table 7.3: two hidden layers of 256, 0.01, batches of 100, 100 epochs of 60,000 digits
    "opt-mlp-mnist": SGD
    | network([], 256, 256)
    | CAYLEY
    | {
        "optimizer.lr": 0.01,
        "batch_size": 100,
        "steps": 60_000,
        "head": "Softmax",
        "orthogonal.train_neurons": False,
        "data": "MNIST",
    },
    # 7.5.1, 7.5.3, F.3, tables 7.1, 7.4 and F.1
    "opt-cnn-cifar100": OPT | OPT_CNN_6 | {"orthogonal.method": "gram_schmidt", "data": "CIFAR100"},
    # F.5.2, table F.4: k = 4 blocks, shared
    "opt-blocks-cifar100": (
        OPT | OPT_CNN_6 | CAYLEY | {"orthogonal.blocks": 4, "orthogonal.share_blocks": True, "data": "CIFAR100"}
    ),
    # 7.5.3, F.3, tables 7.9 and F.1: batches of 128, ended at 700k
    "opt-imagenet": OPT | OPT_CNN_10 | CAYLEY | {"steps": 700_000, "data": "PictureFolder"},
    "opt-resnet-cifar100": OPT | OPT_RESNET_20 | CAYLEY | {"data": "CIFAR100"},  # 7.5.3, tables 7.8 and F.2
    # 7.5.4, table 7.11: all else is "the same as [161]"
    "opt-gcn-cora": CAYLEY | {"data": "Planetoid", "data.name": "cora", "head": "Softmax", "head.bias": False},
    # 7.5.5, F.3, table 7.12: no T-Net
    "opt-pointnet": POINTS | POINTNET_STEPS | CAYLEY | {"backbone.t_net": False, "energy": None},
    # 7.5.3, F.3, tables 7.10 and F.3: Adam with 1e-3 and weight decay 5e-4; 5 ways, 5 shots, 100 epochs
    "opt-few-shot": CAYLEY
    | CNN_4
    | {
        "optimizer": "Adam",
        "optimizer.lr": 1e-3,
        "optimizer.weight_decay": 5e-4,
        "task.ways": 5,
        "task.shots": 5,
        "task.epochs": 100,
    },
}


# Rows and columns of the tables, as changes that a user types.
ROWS: dict[tuple[str, str], dict[str, Any]] = {
    # Table 2.7 (figure 2.11, table A.2)
    ("sphereface-casia", "backbone=sphereface4"): SPHEREFACE_4,
    ("sphereface-casia", "backbone=sphereface10"): network(face_stages(0, 1, 2, 0), 512),
    ("sphereface-casia", "backbone=sphereface20"): SPHEREFACE_20,
    ("sphereface-casia", "backbone=sphereface36"): network(face_stages(2, 4, 8, 2), 512),
    # Table 3.1; 3.4.1: m = 4 for both; 3.4.2: the GA-Softmax of the table is the linear one
    ("spherenet-cifar10", "head=ASoftmax"): {"head.m": 4, "head.angular": "Cosine"},
    ("spherenet-cifar10", "head=GASoftmax"): {"head.m": 4, "head.angular": "Linear"},
    # Table 3.2: tables B.1 and B.2
    ("spherenet-cifar10", "backbone=cnn3 backbone.table=B.1"): network(plain(3, 64, 96, 128), 256),
    ("spherenet-cifar10", "backbone=cnn18 backbone.table=B.1"): SPHERE_CNN_18,
    ("spherenet-cifar10", "backbone=cnn45 backbone.table=B.1"): network(plain(45, 64, 96, 128), 256),
    ("spherenet-cifar10", "backbone=cnn60 backbone.table=B.1"): network(plain(60, 64, 96, 128), 256),
    ("spherenet-cifar10", "backbone=cnn69 backbone.table=B.1"): network(plain(69, 64, 96, 128), 256),
    ("spherenet-cifar10", "backbone=resnet32 backbone.table=B.2"): network(cifar_resnet(5, 64, 96, 128)),
    ("spherenet-cifar100", "head=GASoftmax"): {"head.m": 4},  # table 3.4, S-G; 3.4.1
    # Figure 3.6; 3.4.6 and B.2: v1 has SphereConv in the shortcuts and the cosine W-Softmax; one set of filters for all
    ("spherenet-imagenet", "backbone.version=1 head=WSoftmax"): SPHERE_RESNET_18
    | {"shortcuts": "operators", "head.angular": "Cosine"},
    ("spherenet-imagenet", "backbone.operator=none"): SPHERE_RESNET_18,
    # Tables 4.3 and 4.4; C.2
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Sphere"): {"backbone.operator.magnitude.alpha": 1},
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Ball"): {
        "backbone.operator.magnitude.alpha": 1,
        "backbone.operator.magnitude.radius": 1,
        "backbone.operator.magnitude.learnable_radius": True,
    },
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Linear"): {"backbone.operator.magnitude.alpha": 1},
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Seg"): {
        "backbone.operator.magnitude.alpha": 1,
        "backbone.operator.magnitude.beta": 0.5,
        "backbone.operator.magnitude.radius": 1,
        "backbone.operator.magnitude.learnable_radius": True,
    },
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Log"): {"backbone.operator.magnitude.alpha": 1},
    ("dcnet-resnet-cifar100", "backbone.operator.magnitude=Mix"): {
        "backbone.operator.magnitude.alpha": 1,
        "backbone.operator.magnitude.beta": 1,
    },
    # Table 4.6; C.1
    ("dcnet-imagenet", "backbone=resnet18"): RESNET_18 | {"backbone.norm": "batch"},
    ("dcnet-imagenet", "backbone.norm=none"): MODIFIED_RESNET_18 | {"backbone.norm": "none"},
    # Table 5.1; D.1
    ("mhe-cifar10", "energy.half_space=false"): {"energy.hidden": 10, "energy.output": 1},
    ("mhe-cifar10", "energy.distance=angular energy.s=0"): {"energy.hidden": 1, "energy.output": 1},
    ("mhe-cifar10", "energy.half_space=false energy.distance=angular"): {"energy.hidden": 10, "energy.output": 1},
    # Tables 5.2 and 5.3
    ("mhe-cifar10", "backbone.widths=[16,32,64]"): network(plain(9, 16, 32, 64), 256),
    ("mhe-cifar10", "backbone.widths=[256,512,1024]"): network(plain(9, 256, 512, 1024), 256),
    ("mhe-cifar10", "backbone=cnn6 backbone.table=D.1"): network(plain(6, 64, 128, 256), 256),
    ("mhe-cifar10", "backbone=cnn15 backbone.table=D.1"): network(plain(15, 64, 128, 256), 256),
    # Table 5.6: table D.2; tables 5.6 and 5.7: 1e-5 for the orthonormal regularization (D.1)
    ("mhe-imagenet", "backbone=resnet34"): network(
        conv(64, kernel=7, stride=2)
        + units(64, 3)
        + units(128, 4, stride=2)
        + units(256, 6, stride=2)
        + units(512, 3, stride=2)
    ),
    ("mhe-imagenet", "energy=Orthonormality"): {"energy.hidden": 1e-5},
    # Tables 5.7 and D.6; D.1 and D.8.1
    ("imbalance-cifar10", "samples.imbalance=ImbalancedSingle"): {"images per class": [500] + [5000] * 9},
    ("imbalance-cifar100", "samples.imbalance=ImbalancedMultiple"): {"images per class": list(range(5, 501, 5))},
    # Table 6.1; 6.6.1: one basis of 30 dimensions, one unrolled step, or an update every 10 steps; groups of 8 channels
    ("comhe-cifar100", "energy.projection=AnglePreservingProjection"): {
        "energy.projection.dim": 30,
        "energy.projection.count": 1,
        "energy.projection.mode": "unrolled",
        "energy.projection.inner_steps": 1,
    },
    ("comhe-cifar100", "energy.projection=AnglePreservingProjection energy.projection.mode=alternating"): {
        "energy.projection.update": 10
    },
    ("comhe-cifar100", "energy.projection=ChannelGroups"): {"energy.projection.size": 8},
    # Tables 6.6 and 6.7; E.1: 1e-5 for the orthonormal and orthogonal regularizations, 1 for half-space MHE
    ("comhe-cifar100", "energy=Orthogonality"): {"energy.hidden": 1e-5},
    ("comhe-cifar100", "energy=MHE energy.half_space=true"): {"energy.hidden": 1, "energy.s": 2},
    ("rotation-cifar100", "backbone=cnn3 backbone.table=E.3"): network(plain(3, 32, 64, 64), 64),  # figure E.3
    # Tables 7.4 and 7.8
    ("opt-cnn-cifar100", "backbone=cnn9 backbone.table=F.1"): network(plain(9, 64, 64, 64), 64),
    ("opt-resnet-cifar100", "backbone=resnet32 backbone.table=F.2"): network(cifar_resnet(5, 16, 32, 64)),
}

# ---------------------------------------------------------------------------------------------------------------- tests

# Keys measured on the built network: the layers of its table and its own options.
BUILT = (
    "convolutions",
    "fully connected",
    "features",
    "shortcuts",
    "backbone.norm",
    "backbone.activation",
    "backbone.t_net",
)
NORMS: dict[type, str] = {nn.BatchNorm2d: "batch", SphereNorm: "sphere"}
ACTIVATIONS: dict[type, str] = {nn.ReLU: "relu", nn.PReLU: "prelu"}
# Inputs of networks, where these are not 32×32 color images.
INPUTS: dict[str, dict[str, Any]] = {
    "MNIST": {"in_channels": 1, "input_size": (28, 28), "in_features": 784},
    "LFW": {"input_size": (112, 96)},
    "PictureFolder": {"input_size": (112, 96)},
}
IMAGES_PER_CLASS = {"CIFAR10": [5000] * 10, "CIFAR100": [500] * 100}


def show_settings(config: Config) -> dict[str, Any]:
    """Return the settings of ``hypersphere train NAME --size paper --keys``, with None replaced by its default."""
    found = {key.path: key.value for key in keys(as_call(config))}
    if "energy.hidden" in found and found["energy.hidden"] is None:
        network = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
        found["energy.hidden"] = config.energies[0].build(model=network).hidden
    if "head.angular" in found and found["head.angular"] is None:
        found["head.angular"] = type(config.head.build(in_features=4, num_classes=3).angular).__name__
    return found


def build(config: Config) -> nn.Module:
    """Build the network of a recipe up to its features. For a GAN, build the discriminator."""
    data = str(show_settings(config)["data"])
    sizes = {"num_classes": None, "in_channels": 3, "input_size": (32, 32), "in_features": 3} | INPUTS.get(data, {})
    network: nn.Module = config.backbone.build(**sizes)
    return getattr(network, "discriminator", network)


def list_layers(network: nn.Module, ndim: int) -> list[Any]:
    """Return the layers whose weight has ``ndim`` dimensions, in network order."""
    return [m for m in network.modules() if isinstance(getattr(m, "weight", None), Tensor) and m.weight.ndim == ndim]


def name_kinds(names: dict[type, str], kinds: set[type]) -> str:
    """Return the names of the types that occur in ``kinds``, or ``"none"``."""
    return " and ".join(name for kind, name in names.items() if kind in kinds) or "none"


def describe_network(config: Config) -> dict[str, Any]:
    """Return the layers, normalization and activation of a recipe's network."""
    with torch.device("meta"):
        network = build(config)
    kinds = {type(module) for module in network.modules()}
    convolutions = list_layers(network, 4)
    shortcuts = {type(m) for m in convolutions if m.kernel_size == (1, 1)}
    return {
        "convolutions": [
            (m.kernel_size[0], m.stride[0], m.weight.shape[0]) for m in convolutions if m.kernel_size != (1, 1)
        ],
        "fully connected": [m.weight.shape[0] for m in list_layers(network, 2)],
        "features": getattr(network, "feature_dim", None),
        "shortcuts": "plain" if shortcuts == {nn.Conv2d} else "operators",
        "backbone.norm": name_kinds(NORMS, kinds),
        "backbone.activation": name_kinds(ACTIVATIONS, kinds),
        "backbone.t_net": TNet in kinds,
    }


def count_images(config: Config) -> list[int]:
    """Return the number of training images per class."""
    assert config.samples.imbalance is not None
    sizes = IMAGES_PER_CLASS[str(show_settings(config)["data"])]
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    whole = InMemory(torch.zeros(len(labels), 1), labels, tuple(map(str, range(len(sizes)))))
    counts: list[int] = config.samples.imbalance.build(dataset=whole).labels.bincount().tolist()
    return counts


def matches(found: Any, expected: Any) -> bool:
    """Return whether a setting agrees with the text: equal, one of the allowed values, or positive."""
    if isinstance(expected, range | set):
        return found in expected
    if expected == POSITIVE:
        return isinstance(found, int | float) and found > 0
    if isinstance(expected, list):
        return isinstance(found, list | tuple) and list(found) == expected
    return bool(found == expected)


def find_differences(config: Config, expected: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the text, as ``{key: (recipe, text)}``."""
    found = show_settings(config)
    if not expected.keys().isdisjoint(BUILT):
        found |= describe_network(config)
    if "images per class" in expected:
        found["images per class"] = count_images(config)
    return {
        key: (found.get(key, "absent"), value)
        for key, value in expected.items()
        if key != "backbone.init" and not matches(found.get(key, "absent"), value)
    }


@pytest.mark.parametrize("name", PAPER)
def test_recipes_are_the_text(name: str) -> None:
    assert find_differences(choose_recipe(name, "paper", []), PAPER[name]) == {}


@pytest.mark.parametrize(("name", "changes"), ROWS)
def test_rows_are_the_text(name: str, changes: str) -> None:
    assert find_differences(choose_recipe(name, "paper", changes.split()), ROWS[name, changes]) == {}


@pytest.mark.parametrize("name", [name for name in PAPER if "backbone.init" in PAPER[name]])
def test_weights_start_as_in_he_et_al(name: str) -> None:
    """[38]: normal weights with zero mean and variance 2/n for n inputs; measured at a quarter of the width."""
    network = build(choose_recipe(name, "paper", ["backbone.width=0.25"]))
    weight = max((m.weight.detach() for m in list_layers(network, 4)), key=Tensor.numel)
    deviation = math.sqrt(2 / weight[0].numel())
    assert abs(float(weight.mean())) < 0.1 * deviation
    assert math.isclose(float(weight.std()), deviation, rel_tol=0.1)
