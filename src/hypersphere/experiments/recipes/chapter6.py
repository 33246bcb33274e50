"""Chapter 6: compressive energy, on images, point clouds and graphs."""

from ...training.config import Config, Data, Energy, Model, Optimizer, replace
from .base import Size, recipe, saturated, smoke

COMPRESSIVE = Energy("CoMHE")


@recipe("comhe-cifar100", tables="6.1", data="CIFAR100 (laptop: Tiny-ImageNet)")
def comhe_cifar100(size: Size) -> Config:
    """CoMHE with random projections on CNN-9.

    The text (6.6.1, E.1): batch 128, SGD with momentum 0.9 at 0.1, weight decay 1e-4, CNN-9 of table E.1, crop and flip, five projections
    to 30 dimensions of half-space energy, weight 1, s = 2. The rate is divided "when the performance is saturated": at the steps of D.1,
    whose experiment it repeats. ``energy.projection=AnglePreservingProjection`` is table 6.1's best row. The laptop's data are 100 classes
    of Tiny-ImageNet at 32×32, a stand-in.
    """
    if size == "paper":
        data, model = Data("CIFAR100", augment="crop_flip"), Model("cnn9", table="D.1")
        optimizer = Optimizer(lr=0.1, weight_decay=1e-4, **saturated())
        return Config(steps=42500, evaluate_every=2500, data=data, model=model, energy=COMPRESSIVE, optimizer=optimizer)
    if size == "laptop":
        data = Data("TinyImageNet", classes=100, size=32, augment="crop_flip")
        optimizer = Optimizer(lr=0.1, weight_decay=1e-4, **saturated(1200))
        model = Model("cnn9", table="D.1", width=0.25, feature_dim=64)
        return Config(steps=1200, evaluate_every=300, data=data, model=model, energy=COMPRESSIVE, optimizer=optimizer)
    return smoke(model=Model("cnn9", table="D.1", width=0.06, feature_dim=16), energy=COMPRESSIVE)


@recipe("comhe-pointnet", tables="6.8", data="ModelNet40 (laptop: ModelNet10)")
def comhe_pointnet(size: Size) -> Config:
    """CoMHE with random projections on PointNet.

    The text (6.6.2, E.1): PointNet as in opt-pointnet, half-space CoMHE with s = 1 on every layer before the classifier.
    """
    return replace(pointnet_modelnet40(size), energy=Energy("CoMHE", s=1.0))


@recipe("comhe-gcn-cora", tables="E.6", data="Cora")
def comhe_gcn_cora(size: Size) -> Config:
    """CoMHE with random projections on the hidden layer of a graph network.

    The text (E.10): the graph network as in opt-gcn-cora, energy of the columns of W₀; its weight is not said and is 1 here.
    """
    return replace(gcn_cora(size), energy=COMPRESSIVE)


def gcn_cora(size: Size) -> Config:
    """The graph network without anything of this text."""
    optimizer = Optimizer("adam", lr=0.01, schedule="constant")
    if size == "smoke":
        return smoke(task="graph", data=Data("PlantedGraph"), model=Model("gcn"), optimizer=optimizer)
    return Config(
        task="graph", steps=200, evaluate_every=50, data=Data("cora"), model=Model("gcn"), optimizer=optimizer
    )


def pointnet_modelnet40(size: Size) -> Config:
    """PointNet without anything of this text."""
    optimizer = Optimizer("adam", lr=1e-3, weight_decay=0.0, milestones=(200000,), gamma=0.7)
    if size == "smoke":
        data = Data("Shapes", batch_size=16, points=32, augment="rotate_jitter")
        return smoke(data=data, model=Model("pointnet", width=0.1), optimizer=optimizer)
    if size == "paper":
        data = Data("ModelNet40", batch_size=32, points=1024, augment="rotate_jitter")
        return Config(steps=76750, evaluate_every=3070, data=data, model=Model("pointnet"), optimizer=optimizer)
    data = Data("ModelNet10Voxels", batch_size=32, points=256, augment="rotate_jitter")
    return Config(steps=1200, evaluate_every=300, data=data, model=Model("pointnet", width=0.25), optimizer=optimizer)
