import inspect

import pytest
import torch
from torch import nn

from hypersphere import models
from hypersphere.config import call, parameters
from hypersphere.data import Shapes
from hypersphere.energy import MHE, CoMHE
from hypersphere.objectives import Annealing, ArcFace, ASoftmax, CenterLoss, Softmax
from hypersphere.orthogonal import OrthogonalityPenalty, overparameterize
from hypersphere.training import Adversarial, Classification, Config, Faces, FewShotRecognition, Graph, OpenSet, Term
from hypersphere.training.tasks.classification import Headed, TaskOptions, attach_head
from tests.training.contracts import TaskContract
from tests.training.own import Net, Squares, Tokens

CNN = call(models.cnn3, table="E.3", width=0.1, feature_dim=8)


class TestMargin(TaskContract):
    config = Config(batch_size=32, backbone=CNN, head=call(ASoftmax, annealing=call(Annealing)), energy=call(MHE))


class TestJointLosses(TaskContract):
    config = Config(batch_size=32, backbone=CNN, losses=(Term(call(CenterLoss), 0.01),))


class TestCompressiveEnergy(TaskContract):
    config = Config(batch_size=32, backbone=CNN, energy=call(CoMHE))


class TestRotations(TaskContract):
    config = Config(
        batch_size=32,
        backbone=call(models.mlp, width=0.1),
        orthogonal=call(overparameterize, method="regularized"),
        energy=call(OrthogonalityPenalty),
    )


class TestClouds(TaskContract):
    config = Config(batch_size=16, data=call(Shapes, points=32), backbone=call(models.pointnet, width=0.1))


def test_sphereface_plus_is_a_margin_with_the_energy_of_its_classes():
    task = Classification(Net(), ArcFace(6, 5), Squares(), regularizers=[])
    energy = MHE(task.model, hidden=0.0, output=0.5)
    task.regularizers.append(energy)
    inputs, labels = next(iter(task.loader))
    torch.manual_seed(0)
    loss, parts = task(0, inputs, labels)
    torch.manual_seed(0)
    expected = task.model.classifier(task.model.features(inputs), labels)
    torch.testing.assert_close(parts["objective"], expected)
    weight = nn.functional.normalize(task.model.classifier.weight, dim=1)
    others = [[j for j in range(5) if j != y] for y in labels.tolist()]
    pairs = [(weight[y] - weight[j]).square().sum() for y, js in zip(labels.tolist(), others, strict=True) for j in js]
    torch.testing.assert_close(parts["output"], 0.5 * torch.stack(pairs).reciprocal().mean())
    torch.testing.assert_close(loss, expected + parts["output"])


def test_losses_are_weighted_and_accuracies_counted():
    loss = CenterLoss(6, 5)
    task = Classification(Net(), Softmax(6, 5), Squares(), losses=[(0.1, loss)]).eval()
    inputs, labels = next(iter(task.loader))
    features = task.features(inputs)
    torch.testing.assert_close(task.objectives(inputs, labels)["CenterLoss"], 0.1 * loss(features, labels))
    with torch.no_grad():
        found, features = task.evaluate(), task.embed(task.measured_samples)
    right = task.model.classifier.predict(features) == task.measured_samples.labels
    assert found["accuracy"] == pytest.approx(100 * right.float().mean().item())
    assert found["error"] == pytest.approx(100 - found["accuracy"])
    each = [right[task.measured_samples.labels == c].float().mean().item() for c in range(5)]
    assert found["balanced_accuracy"] == pytest.approx(100 * sum(each) / 5)
    assert found["worst_class_error"] == pytest.approx(100 - 100 * min(each))


def test_a_network_built_with_its_head_keeps_it():
    model = models.cnn3(5, table="E.3", width=0.1, input_size=12, classifier=ArcFace)
    head = model.classifier
    assert Classification(model, call(Softmax), Squares(20)).model.classifier is head


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer ≥ 1"),
        ({"project_every": -1}, "project_every must be an integer"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Classification(Net(), call(Softmax), Squares(20), **options)


def test_a_network_on_the_sphere_returns_to_it_after_each_step():
    model = models.ngpt(5, depth=1, dim=8, heads=2, input_size=12)
    task = Classification(model, Softmax(8, 5), Squares())
    with torch.no_grad():
        model.blocks[0].mlp.up.linear.weight.mul_(3)
    task.advance(1)
    torch.testing.assert_close(model.blocks[0].mlp.up.linear.weight.norm(dim=1), torch.ones(21))


def test_features_of_a_whole_dataset_keep_no_graph():
    """Batches are embedded without autograd graphs, which would use too much memory."""
    task = Classification(Net(), call(Softmax), Squares())
    assert not task.embed(task.train_samples).requires_grad
    assert task.embed_batch(task.train_samples.batch(torch.arange(2))[0]).requires_grad


def test_any_module_gets_a_head_beside_it():
    head = ArcFace(6, 5)
    for body in (Net(), Tokens()):
        net = attach_head(body, head)
        assert isinstance(net, Headed)
        assert net.features(torch.rand(2, 3, 12, 12)).shape == (2, 6)
        assert net(torch.rand(2, 3, 12, 12)).shape == (2, 5)
    assert Headed(Net(), None)(torch.rand(2, 3, 12, 12)).shape == (2, 6)


def test_a_network_of_the_library_has_a_place_for_it():
    model = models.mlp(None, in_features=4)
    head = nn.Linear(model.feature_dim, 3)
    assert attach_head(model, head) is model
    assert model.classifier is head


@pytest.mark.parametrize("task", [Adversarial, Faces, FewShotRecognition, Graph, OpenSet])
def test_every_task_of_classes_takes_what_classification_takes(task):
    named = [p.name for p in inspect.signature(Classification).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert set(named) == set(TaskOptions.__annotations__)
    assert set(named) <= parameters(task).keys()
