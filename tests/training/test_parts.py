import pytest
import torch

import hypersphere as hs
from hypersphere.models import ConvNet
from hypersphere.models.blocks import Conv
from hypersphere.neurons import neuron_layers
from hypersphere.operators import OperatorLayer
from hypersphere.training.config import Energy, Head, Model, Operator, Orthogonal
from hypersphere.training.parts import Regularizers, build_head, build_model, build_operators, build_orthogonal


def network(classes: int = 3) -> ConvNet:
    return ConvNet([Conv(6)], classes, input_size=4, in_channels=1, fc=[5], classifier=hs.Softmax)


@pytest.mark.parametrize(
    "name", ["Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "GASoftmax", "AMSoftmax", "ArcFace"]
)
def test_every_head_by_its_public_name(name: str) -> None:
    head = build_head(Head(name=name, annealed=True, start=7.0, floor=2.0), 4, 3)  # type: ignore[arg-type]
    assert type(head) is getattr(hs, name)
    assert head.annealing is not None
    assert head.annealing.value == 7.0


def test_knobs_reach_the_head_and_none_is_its_own() -> None:
    assert build_head(Head("AMSoftmax"), 4, 3).scale == 30.0
    head = build_head(Head("AMSoftmax", m=0.1, scale=12.0), 4, 3)
    assert head.scale == 12.0
    assert head.margin.m == 0.1  # type: ignore[union-attr]
    assert isinstance(build_head(Head("GASoftmax", angular="Sigmoid"), 4, 3).angular, hs.angular.Sigmoid)
    with pytest.raises(ValueError, match="head Softmax does not take scale"):
        build_head(Head("Softmax", scale=3.0), 4, 3)


def test_a_model_with_its_options() -> None:
    config = Model("cnn3", table="E.3", width=0.25, feature_dim=7, norm="none", activation="prelu", init="xavier")
    model = build_model(config, Head(), 4, in_channels=1, input_size=8)
    assert model.feature_dim == 7
    assert not [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert [m for m in model.modules() if isinstance(m, torch.nn.PReLU)]
    assert isinstance(model.classifier, hs.Softmax)
    with pytest.raises(ValueError, match=r"model.name must be one of .*cnn9.*, got 'ConvNet'"):
        build_model(Model("ConvNet"), Head(), 4)
    with pytest.raises(ValueError, match="model mlp does not take table"):
        build_model(Model("mlp", table="B.1"), Head(), 4)


@pytest.mark.parametrize("magnitude", ["InnerProduct", "Sphere", "Ball", "Tanh", "Linear", "Seg", "Log", "Mix"])
@pytest.mark.parametrize("angular", ["Cosine", "Linear", "Sigmoid", "SquareCosine"])
def test_every_operator_in_every_layer_but_the_head(magnitude: str, angular: str) -> None:
    model = network()
    build_operators(Operator(magnitude, angular, learn=True), model)  # type: ignore[arg-type]
    layers = neuron_layers(model).values()
    assert all(isinstance(layer, OperatorLayer) for layer in layers)
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    new = len(list(model.parameters())) - len(list(network().parameters()))
    assert new == 2 * ((magnitude in ("Ball", "Tanh", "Seg")) + (angular == "Sigmoid"))


def test_skipped_layers_stay_plain() -> None:
    model = network()
    build_operators(Operator("Sphere", skip=("fc*",)), model)
    assert [type(layer).__name__ for layer in neuron_layers(model).values()] == ["Conv2d", "Linear"]
    assert [isinstance(layer, OperatorLayer) for layer in neuron_layers(model).values()] == [True, False]


def test_orthogonal_training_leaves_the_head_alone() -> None:
    model = network()
    build_orthogonal(Orthogonal("cayley"), model, torch.Generator().manual_seed(0))
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert "classifier.weight" in names
    assert sum("parametrizations" in name for name in names) == 2


def test_a_shift_moves_the_start() -> None:
    torch.manual_seed(0)
    plain, shifted = network(), network()
    shifted.load_state_dict(plain.state_dict())
    build_orthogonal(Orthogonal("none", shift=0.25), shifted, torch.Generator())
    for before, after in zip(neuron_layers(plain).values(), neuron_layers(shifted).values(), strict=True):
        torch.testing.assert_close(after.weight, before.weight + 0.25)
    build_orthogonal(Orthogonal("cayley", shift=0.25), plain, torch.Generator())
    torch.testing.assert_close(
        next(iter(neuron_layers(plain).values())).weight, next(iter(neuron_layers(shifted).values())).weight
    )


@pytest.mark.parametrize("name", ["MHE", "CoMHE", "orthonormality", "orthogonality", "srip"])
def test_regularizers_of_hidden_neurons(name: str) -> None:
    model = network()
    terms = Regularizers(Energy(name, hidden=2.0), Orthogonal(), model)  # type: ignore[arg-type]
    (value,) = terms().values()
    double = Regularizers(Energy(name, hidden=4.0), Orthogonal(), model)()["hidden"]  # type: ignore[arg-type]
    torch.testing.assert_close(double, 2 * value)
    value.backward()
    assert model.classifier.weight.grad is None
    terms.step()


def test_energy_of_the_classes() -> None:
    model, labels = network(), torch.tensor([0, 2, 2])
    terms = Regularizers(Energy(output=3.0, classes=2.0, s=1.0), Orthogonal(), model)(labels)
    weight = model.classifier.weight
    torch.testing.assert_close(terms["output"], 3 * hs.hyperspherical_energy(weight, 1))
    torch.testing.assert_close(terms["classes"], 2 * hs.class_energy(weight, labels, 1))
    assert Regularizers(Energy(), Orthogonal(), model)(labels) == {}


def test_the_penalty_of_regularized_rotations() -> None:
    model = network()
    orthogonal = Orthogonal("regularized", penalty=0.5)
    build_orthogonal(orthogonal, model, torch.Generator())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    terms = Regularizers(Energy(), orthogonal, model)()
    torch.testing.assert_close(terms["orthogonality"], hs.orthogonality_penalty(model, 0.5))
    assert terms["orthogonality"] > 0
