"""Chapter 6: compressive energy, on images, point clouds and graphs."""

from typing import Any

from ..config import call
from ..data import CIFAR100, ModelNet10Clouds, ModelNet40, Planetoid, PlantedGraph, RotateJitter, Shapes
from ..energy import CoMHE
from ..energy.projections import RandomProjection
from ..models import cnn9, gcn, pointnet, pointnet2, resnet18
from ..objectives import Softmax
from ..orthogonal import overparameterize
from ..training import Config, ConstantRate, Graph, replace
from .chapter5 import make_regularized
from .recipe_book import Size, decay_at, make_adam, make_config, make_imagenet, make_smoke, recipe

# Five projections to 30 dimensions, half-space energy, weight 1, s = 2 (6.6.1, E.1), and the classes in full space (D.1).
COMPRESSIVE = call(CoMHE, projection=call(RandomProjection, dim=30, count=5), output=1.0, s=2.0, data_dependent=False)


@recipe("comhe-cifar100", tables="6.1", data="CIFAR100 (laptop: Tiny-ImageNet)")
def comhe_cifar100(size: Size) -> Config:
    """CoMHE with random projections on CNN-9.

    Liu (2020, 6.6.1, E.1): batch 128, SGD with momentum 0.9 at 0.1, weight decay 1e-4, CNN-9 of table E.1 (the same as D.1),
    crop and flip, five projections to 30 dimensions of half-space energy, weight 1, s = 2. The learning rate is divided "when the
    performance is saturated": at the steps of D.1, whose experiment it repeats.
    ``energy.projection=AnglePreservingProjection`` in its unrolled form is table 6.1's best row; ``energy.projection.dim``,
    ``count`` and ``every`` are tables 6.2, 6.3 and E.4, ``backbone.width`` and ``backbone=cnn6`` or ``cnn15`` 6.4 and 6.5,
    ``backbone=resnet32 backbone.table=D.2`` 6.6. The laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    return make_regularized(size, call(CIFAR100), call(cnn9, table="D.1"), COMPRESSIVE)


@recipe("comhe-imagenet", tables="6.7", data="ImageNet (laptop: Tiny-ImageNet)")
def comhe_imagenet(size: Size) -> Config:
    """CoMHE with random projections on ResNet-18 for ImageNet.

    Liu (2020, 6.6.1, E.1): batch 64, 500,000 steps, weight decay 1e-4, the learning rate divided "when the performance is saturated": at
    the steps of D.1. ``backbone=resnet34`` and ``resnet50`` are the other columns. The laptop size uses 100 classes of
    Tiny-ImageNet at 32×32.
    """
    if size == "paper":
        return make_imagenet(500000, 64, (150000, 300000, 400000), 1e-4, backbone=call(resnet18), energy=COMPRESSIVE)
    return make_regularized(size, call(CIFAR100), call(resnet18), COMPRESSIVE)


@recipe("rotation-cifar100", tables="6.1 (figure), E.2 – E.5 (figures)", data="CIFAR100 (laptop: Tiny-ImageNet)")
def rotation_cifar100(size: Size) -> Config:
    """Rotation training: fixed neurons are rotated by R, which Gram–Schmidt computes, so their energy does not change.

    Liu (2020, E.2): CNN-9 of table E.3, otherwise as comhe-cifar100 without a regularizer and without weight decay. The logged
    energy is that of E.2, half space and s = 1. ``orthogonal=none optimizer.weight_decay=1e-4`` is standard training, with
    ``energy=MHE energy.s=1 energy.data_dependent=false`` or ``energy=CoMHE …`` the others; ``backbone=cnn3`` figure E.3,
    ``backbone.norm=none`` E.4, ``data=CIFAR10`` E.5.
    """
    config = comhe_cifar100(size).replace(
        {"backbone.table": "E.3"}, energy=None, orthogonal=call(overparameterize, method="gram_schmidt")
    )
    return config.replace({"optimizer.weight_decay": 0.0}, energy_s=1.0, energy_half_space=True)


@recipe("comhe-pointnet", tables="6.8", data="ModelNet40 (laptop: ModelNet10)")
def comhe_pointnet(size: Size) -> Config:
    """CoMHE with random projections on PointNet.

    Liu (2020, 6.6.2, E.1): PointNet as in opt-pointnet, half-space CoMHE with s = 1 on every layer before the classifier.
    ``backbone.t_net=true`` is PN (T), with the transform penalty and the two dropouts of the implementation it follows.
    """
    return replace(make_pointnet(size), energy=COMPRESSIVE.replace(s=1.0))


@recipe("comhe-pointnet2", tables="6.8", data="ModelNet40 (laptop: ModelNet10)")
def comhe_pointnet2(size: Size) -> Config:
    """CoMHE with random projections on PointNet++ with single-scale grouping.

    Liu (2020, 6.6.2, E.1): 1024 points, batch 16, Adam at 0.001, multiplied by 0.7 every 200,000 steps, 251 epochs (154,365 steps of
    9,840 clouds, so the learning rate never falls; its source counts clouds, not steps), CoMHE as in comhe-pointnet.
    """
    config = comhe_pointnet(size).replace(backbone=call(pointnet2), batch_size=16)
    if size == "paper":
        return config.replace(steps=154365, evaluate_every=6150)
    if size == "laptop":
        return config.replace({"backbone.width": 0.25, "backbone.centers": (64, 16)}, steps=800, evaluate_every=200)
    return config.replace({"backbone.width": 0.1, "backbone.centers": (8, 4)})


@recipe("comhe-gcn-cora", tables="E.6", data="Cora")
def comhe_gcn_cora(size: Size) -> Config:
    """CoMHE with random projections on the hidden layer of a graph network.

    Liu (2020, E.10): the graph network as in opt-gcn-cora, energy of the columns of W₀; its weight is not stated and is 1 here.
    """
    return replace(make_gcn(size), energy=COMPRESSIVE.replace(output=0.0))


def make_gcn(size: Size) -> Config:
    """Return the config of a graph network without the methods of the dissertation."""
    common: dict[str, Any] = {
        "task": call(Graph),
        "backbone": call(gcn),
        "head": call(Softmax, bias=False),  # E.24 has none
        "optimizer": make_adam(0.01, 5e-4),
        "schedule": call(ConstantRate),
    }
    if size == "smoke":
        return make_smoke(data=call(PlantedGraph), **common)
    return make_config(steps=200, evaluate_every=50, data=call(Planetoid, name="cora"), **common)


def make_pointnet(size: Size) -> Config:
    """Return the config of PointNet without the methods of the dissertation."""
    common: dict[str, Any] = {"optimizer": make_adam(1e-3), "schedule": decay_at(200000, gamma=0.7)}
    jitter = call(RotateJitter, up=2)  # the voxels and solids stand on the third axis
    if size == "smoke":
        model = call(pointnet, width=0.1)
        return make_smoke(data=call(Shapes, points=32), batch_size=16, augment=jitter, backbone=model, **common)
    if size == "paper":
        upright = call(RotateJitter, up=1)
        timing = {"steps": 76750, "evaluate_every": 3070, "batch_size": 32}
        return make_config(
            data=call(ModelNet40, points=1024), augment=upright, backbone=call(pointnet), **timing, **common
        )
    model, timing = call(pointnet, width=0.25), {"steps": 1200, "evaluate_every": 300, "batch_size": 32}
    return make_config(data=call(ModelNet10Clouds, points=256), augment=jitter, backbone=model, **timing, **common)
