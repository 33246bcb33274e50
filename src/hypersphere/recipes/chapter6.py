"""Chapter 6: compressive energy, on images, point clouds and graphs."""

from typing import Any

from ..config import call
from ..data import CIFAR100, ModelNet10Clouds, ModelNet40, Planetoid, PlantedGraph, RotateJitter, Shapes, TinyImageNet
from ..energy import CoMHE
from ..energy.projections import RandomProjection
from ..models import cnn9, gcn, pointnet
from ..training import Config, Graph, Selection, replace
from .recipe_book import CROP_FLIP, Size, adam, falls, make, recipe, saturated, sgd, smoke

# Five projections to 30 dimensions, half-space energy, weight 1, s = 2 (6.6.1, E.1), and the classes in full space (D.1).
COMPRESSIVE = call(
    CoMHE, projection=call(RandomProjection, dim=30, count=5), hidden=1.0, output=1.0, s=2.0, data_dependent=False
)


@recipe("comhe-cifar100", tables="6.1", data="CIFAR100 (laptop: Tiny-ImageNet)")
def comhe_cifar100(size: Size) -> Config:
    """CoMHE with random projections on CNN-9.

    Liu (2020, 6.6.1, E.1): batch 128, SGD with momentum 0.9 at 0.1, weight decay 1e-4, CNN-9 of table E.1 (the same as D.1),
    crop and flip, five projections to 30 dimensions of half-space energy, weight 1, s = 2. The rate is divided "when the
    performance is saturated": at the steps of D.1, whose experiment it repeats.
    ``energy.projection=AnglePreservingProjection`` in its unrolled form is table 6.1's best row. The laptop's data are 100
    classes of Tiny-ImageNet at 32×32, a stand-in.
    """
    common: dict[str, Any] = {"augment": CROP_FLIP, "energy": COMPRESSIVE, "optimizer": sgd(0.1, 1e-4)}
    if size == "paper":
        model, schedule = call(cnn9, table="D.1"), saturated()
        return make(steps=42500, evaluate_every=2500, data=call(CIFAR100), backbone=model, schedule=schedule, **common)
    if size == "laptop":
        common |= {"data": call(TinyImageNet), "size": 32, "samples": Selection(classes=100)}
        model = call(cnn9, table="D.1", width=0.25, feature_dim=64)
        return make(steps=1200, evaluate_every=300, backbone=model, schedule=saturated(1200), **common)
    return smoke(backbone=call(cnn9, table="D.1", width=0.06, feature_dim=16), energy=COMPRESSIVE)


@recipe("comhe-pointnet", tables="6.8", data="ModelNet40 (laptop: ModelNet10)")
def comhe_pointnet(size: Size) -> Config:
    """CoMHE with random projections on PointNet.

    Liu (2020, 6.6.2, E.1): PointNet as in opt-pointnet, half-space CoMHE with s = 1 on every layer before the classifier.
    """
    return replace(pointnet_modelnet40(size), energy=COMPRESSIVE.replace(s=1.0))


@recipe("comhe-gcn-cora", tables="E.6", data="Cora")
def comhe_gcn_cora(size: Size) -> Config:
    """CoMHE with random projections on the hidden layer of a graph network.

    Liu (2020, E.10): the graph network as in opt-gcn-cora, energy of the columns of W₀; its weight is not said and is 1 here.
    """
    return replace(gcn_cora(size), energy=COMPRESSIVE.replace(output=0.0))


def gcn_cora(size: Size) -> Config:
    """The graph network without anything of this dissertation."""
    common: dict[str, Any] = {
        "task": call(Graph),
        "backbone": call(gcn),
        "optimizer": adam(0.01, 5e-4),
        "schedule": falls(),
    }
    if size == "smoke":
        return smoke(data=call(PlantedGraph), **common)
    return make(steps=200, evaluate_every=50, data=call(Planetoid, name="cora"), **common)


def pointnet_modelnet40(size: Size) -> Config:
    """PointNet without anything of this dissertation."""
    common: dict[str, Any] = {"optimizer": adam(1e-3), "schedule": falls(200000, gamma=0.7)}
    jitter = call(RotateJitter, up=2)  # the voxels and solids stand on the third axis
    if size == "smoke":
        model = call(pointnet, width=0.1)
        return smoke(data=call(Shapes, points=32), batch_size=16, augment=jitter, backbone=model, **common)
    if size == "paper":
        upright = call(RotateJitter, up=1)
        timing = {"steps": 76750, "evaluate_every": 3070, "batch_size": 32}
        return make(data=call(ModelNet40, points=1024), augment=upright, backbone=call(pointnet), **timing, **common)
    model, timing = call(pointnet, width=0.25), {"steps": 1200, "evaluate_every": 300, "batch_size": 32}
    return make(data=call(ModelNet10Clouds, points=256), augment=jitter, backbone=model, **timing, **common)
