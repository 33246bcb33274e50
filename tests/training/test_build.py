import pytest
import torch

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import CIFAR10, ClassBalancedSampler, CropFlip, Digits, PlantedGraph, Shapes
from hypersphere.energy import MHE
from hypersphere.neurons import Classifier
from hypersphere.objectives import ArcFace, CenterLoss
from hypersphere.operators import Operator, magnitudes
from hypersphere.orthogonal import OrthogonalityPenalty, overparameterize
from hypersphere.training import Classification, Config, Selection, Term, build_task, replace
from hypersphere.training.build import read_dataset

SMALL = Config(backbone=call(models.cnn3, table="E.3", width=0.1, feature_dim=8), batch_size=32)


def test_sizes_come_from_the_data_and_everything_is_put_together():
    config = replace(
        SMALL,
        size=12,
        channels=3,
        normalize="unit",
        samples=Selection(classes=4, measured=50),
        head=call(ArcFace, m=0.2),
        losses=(Term(call(CenterLoss), 0.5),),
        energy=(call(MHE), call(OrthogonalityPenalty)),
        orthogonal=call(overparameterize, method="regularized"),
        augment=call(CropFlip, pad=1),
    )
    task = build_task(config)
    assert isinstance(task, Classification)
    assert task.model.classifier.weight.shape == (4, 8)
    assert task.model.body.conv1[0].conv.weight.shape[1] == 3
    assert len(task.measured_samples) == 50
    assert task.loss_weights == [0.5]
    assert [type(r).__name__ for r in task.regularizers] == ["MHE", "OrthogonalityPenalty"]
    inputs, labels = next(iter(task.loader))
    assert inputs.shape == (32, 3, 12, 12)
    assert inputs.dtype == torch.float32
    assert 0 <= inputs.min() <= inputs.max() <= 1
    assert labels.max() < 4


def test_a_margin_head_is_the_classifier_of_regularisers():
    config = replace(SMALL, head=call(ArcFace), energy=call(MHE, hidden=0.0, output=1.0))
    task = build_task(config)
    assert isinstance(task.model.classifier, Classifier)
    loss = task.regularizers[0](torch.tensor([0, 1]))
    loss.backward()
    assert task.model.classifier.weight.grad.abs().sum() > 0


def test_operators_reach_the_layers():
    task = build_task(
        replace(SMALL, {"backbone.operator": call(Operator, magnitude=call(magnitudes.Tanh, radius=2.0))})
    )
    found = [module for module in task.model.modules() if isinstance(module, magnitudes.Tanh)]
    assert found


def test_another_order_of_samples():
    task = build_task(replace(SMALL, sampler=call(ClassBalancedSampler, classes=4, each=2), batch_size=8))
    labels = next(iter(task.loader))[1]
    assert torch.bincount(labels, minlength=10).sort().values.tolist()[-4:] == [2, 2, 2, 2]


def test_datasets_are_read_once_and_from_where_they_are(monkeypatch, tmp_path):
    assert read_dataset(SMALL, True) is read_dataset(replace(SMALL, steps=5), True)
    monkeypatch.setenv("HYPERSPHERE_DATA", str(tmp_path))
    assert read_dataset(SMALL, True) is not None
    with pytest.raises(ValueError, match=r"CIFAR|cifar"):
        build_task(replace(SMALL, data=call(CIFAR10)))


def test_a_dataset_of_ones_own(tmp_path):
    task = build_task(replace(SMALL, data=call(both), normalize="unit"))
    assert len(task.measured_samples) == len(Digits(train=False))
    with pytest.raises(ValueError, match=r"one has no test set: set samples.validation=0.1"):
        build_task(replace(SMALL, data=call(one)))
    assert build_task(replace(SMALL, data=call(one), samples=Selection(validation=0.2)))


def both(train: bool = True):
    return Digits(train=train)


def one():
    return Digits()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples.classes": 11}, "samples.classes must lie in 2 … 10, got 11"),
        ({"data": call(Shapes, points=0)}, "points"),
        ({"head": call(ArcFace, scale=-1.0)}, "scale must be"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(SMALL, **changes))


def test_slots_take_what_they_are_for():
    from hypersphere.training import Graph

    with pytest.raises(ValueError, match="data must be a graph for the task Graph, such as Planetoid, got Digits"):
        build_task(replace(SMALL, task=call(Graph), backbone=call(models.gcn)))
    assert build_task(replace(SMALL, task=call(Graph), data=call(PlantedGraph), backbone=call(models.gcn)))
