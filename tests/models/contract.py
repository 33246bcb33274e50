"""The contract of all models. The test of a new model inherits it and defines how the model is built and its inputs."""

import copy
import pickle
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere import angular
from hypersphere.neurons import output_layer
from hypersphere.operators import Operator, OperatorLayer, SphereNorm, magnitudes

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


class SphereConv2d(nn.Conv2d):
    """cos θ between the filter and the patch, computed by unfolding: slow and simple, with the signature of nn.Conv2d."""

    def forward(self, x):
        rows = (x.shape[2] + 2 * self.padding[0] - self.kernel_size[0]) // self.stride[0] + 1
        patches = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        cos = torch.einsum("nd,bdl->bnl", F.normalize(self.weight.flatten(1), dim=1), F.normalize(patches, dim=1))
        cos = cos if self.bias is None else cos + self.bias[:, None]
        return cos.unflatten(-1, (rows, -1))


class SphereConv1d(nn.Conv1d):
    """The same for 1×1 convolutions of point clouds."""

    def forward(self, x):
        cos = torch.einsum("nd,bdl->bnl", F.normalize(self.weight.flatten(1), dim=1), F.normalize(x, dim=1))
        return cos if self.bias is None else cos + self.bias[:, None]


class SphereLinear(nn.Linear):
    """cos θ between the neuron and the feature."""

    def forward(self, x):
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1), self.bias)


class MarginHead(nn.Module):
    """A head with the interface of margin heads: ``forward`` takes labels and returns a loss, ``logits`` returns scores."""

    def __init__(self, features, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features))

    def logits(self, x):
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))

    def forward(self, x, labels):
        return F.cross_entropy(16 * self.logits(x), labels)


def own_norm(channels):
    return nn.GroupNorm(1, channels)


def layers_of(model, kind):
    """Return the modules of a type without the classifier."""
    return [m for name, m in model.named_modules() if isinstance(m, kind) and not name.startswith("classifier")]


class ModelContract:
    """Tests of a model that is small enough to run in milliseconds: ``small`` sets a narrow width and a small input."""

    small: dict[str, Any]
    feature_dim: int
    sphere_conv: type[nn.Module] | None = SphereConv2d
    norm: type[nn.Module] | None = nn.BatchNorm2d
    activation: type[nn.Module] = nn.ReLU
    plain_linears = 0  # number of linear layers that do not come from a factory
    everywhere: ClassVar[dict[str, Any]] = {}  # options with which every convolution comes from the factory

    def build(self, num_classes=5, **options):
        raise AssertionError("the contract's class must say how the model is built")

    def inputs(self, batch=4):
        raise AssertionError("the contract's class must say what the model is fed")

    def make(self, num_classes=5, **options):
        return self.build(num_classes, **{**self.small, **options})

    def test_shapes(self):
        model = self.make()
        features = model.features(*self.inputs())
        assert features.shape == (len(self.inputs()[0]), self.feature_dim)
        assert model.feature_dim == self.feature_dim
        assert model(*self.inputs()).shape == (len(features), 5)

    def test_without_classes_it_is_its_feature_extractor(self):
        model = self.make(None).eval()
        assert model.classifier is None
        assert not [key for key in model.state_dict() if key.startswith("classifier")]
        assert torch.equal(model(*self.inputs()), model.features(*self.inputs()))

    def test_logits_are_the_classifier_on_the_features(self):
        model = self.make().eval()
        assert torch.equal(model(*self.inputs()), model.classifier(model.features(*self.inputs())))

    def test_the_classifier_is_plain_and_last(self):
        model = (
            self.make(conv=self.sphere_conv, linear=SphereLinear)
            if self.sphere_conv
            else self.make(linear=SphereLinear)
        )
        assert type(model.classifier) is nn.Linear
        assert output_layer(model) == "classifier"

    def test_a_margin_head_as_the_classifier(self):
        model = self.make(classifier=MarginHead)
        assert model.classifier.weight.shape == (5, self.feature_dim)
        model.eval()
        assert torch.equal(model(*self.inputs()), model.classifier.logits(model.features(*self.inputs())))
        loss = model.classifier(model.features(*self.inputs()), torch.zeros(len(self.inputs()[0]), dtype=torch.long))
        assert loss.ndim == 0

    def test_every_convolution_comes_from_the_factory(self):
        if self.sphere_conv is None:
            assert not layers_of(self.make(), CONVOLUTIONS)
            return
        plain, spherical = self.make(**self.everywhere), self.make(conv=self.sphere_conv, **self.everywhere)
        assert len(layers_of(spherical, CONVOLUTIONS)) == len(layers_of(plain, CONVOLUTIONS)) > 0
        assert all(type(m) is self.sphere_conv for m in layers_of(spherical, CONVOLUTIONS))
        assert spherical.state_dict().keys() == plain.state_dict().keys()
        assert torch.isfinite(spherical(*self.inputs())).all()

    def test_every_hidden_linear_comes_from_the_factory(self):
        plain, spherical = self.make(), self.make(linear=SphereLinear)
        hidden = layers_of(spherical, nn.Linear)
        assert len(hidden) == len(layers_of(plain, nn.Linear))
        assert sum(type(m) is not SphereLinear for m in hidden) == self.plain_linears
        assert torch.isfinite(spherical(*self.inputs())).all()

    def test_an_operator_is_every_hidden_layer(self):
        operator = Operator(magnitudes.Tanh(radius=2), angular.Sigmoid(k=0.3, learnable="shared"))
        plain, model = self.make(**self.everywhere), self.make(operator=operator, **self.everywhere)
        layers = [m for m in layers_of(model, (*CONVOLUTIONS, nn.Linear)) if isinstance(m, OperatorLayer)]
        hidden = layers_of(plain, (*CONVOLUTIONS, nn.Linear))
        assert len(layers) == len(hidden) - self.plain_linears > 0
        assert all(m.magnitude.radius.start == 2 and m.magnitude.radius.log_rho is not None for m in layers)
        assert len({id(m.angular) for m in layers}) == 1  # shared by all layers of this network …
        assert layers[0].angular is not operator.angular  # … and by no other network
        assert set(plain.state_dict()) <= set(model.state_dict())
        assert not isinstance(model.classifier, OperatorLayer)
        assert torch.isfinite(model(*self.inputs())).all()

    def test_what_an_operator_skips_is_plain(self):
        first = next(
            name
            for name, m in self.make(**self.everywhere).named_modules()
            if isinstance(m, (*CONVOLUTIONS, nn.Linear))
        )
        model = self.make(operator=Operator(skip=(first,)), **self.everywhere)
        assert not isinstance(model.get_submodule(first), OperatorLayer)
        layers = layers_of(model, (*CONVOLUTIONS, nn.Linear))
        assert sum(isinstance(m, OperatorLayer) for m in layers) == len(layers) - 1 - self.plain_linears
        with pytest.raises(ValueError, match=r"skip must name layers .*'dropout|no module of"):
            self.make(operator=Operator(skip=("dropout",)))

    def test_options_by_name(self):
        model = self.make(norm="none", activation="prelu", init="normal")
        assert not layers_of(model, NORMS)
        assert layers_of(model, nn.PReLU)
        rescaled = self.make(norm="sphere_rescaled", activation="none")
        assert layers_of(rescaled, SphereNorm)
        assert torch.isfinite(rescaled(*self.inputs())).all()

    @pytest.mark.untyped
    @pytest.mark.parametrize("option", ["norm", "activation", "init"])
    def test_refuses_an_unknown_name(self, option):
        with pytest.raises(ValueError, match=f"{option} must be one of .*, got 'layer'"):
            self.make(**{option: "layer"})

    def test_norm_and_activation_are_exchangeable(self):
        model = self.make(norm=own_norm, activation=nn.Softplus)
        assert not layers_of(model, (*NORMS, self.activation))
        assert layers_of(model, nn.GroupNorm)
        assert layers_of(model, nn.Softplus)
        assert torch.isfinite(model(*self.inputs())).all()

    def test_norm_and_activation_can_be_left_out(self):
        model = self.make(norm=None, activation=None)
        assert not layers_of(model, (*NORMS, self.activation))
        assert torch.isfinite(model(*self.inputs())).all()

    def test_its_own_norm_and_activation_are_the_text_s(self):
        model = self.make()
        assert {type(m) for m in layers_of(model, NORMS)} == ({self.norm} if self.norm else set())
        assert layers_of(model, self.activation)

    def test_the_gradient_reaches_every_parameter(self):
        model = self.make()
        with torch.no_grad():  # T-Net starts at exactly zero, which blocks the gradient of the layers before it
            for p in model.parameters():
                p.add_(torch.randn_like(p), alpha=0.02)
        F.cross_entropy(model(*self.inputs()), torch.arange(len(self.inputs()[0])) % 5).backward()
        for name, p in model.named_parameters():
            assert p.grad is not None, name
            assert torch.isfinite(p.grad).all(), name
            assert p.grad.any(), name

    def test_in_evaluation_it_is_deterministic(self):
        model = self.make().eval()
        assert torch.equal(model(*self.inputs()), model(*self.inputs()))

    def test_state_dict_copy_and_pickle(self):
        model, other = self.make().eval(), self.make().eval()
        out = model(*self.inputs())
        assert not torch.equal(other(*self.inputs()), out)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(*self.inputs()), out)
        assert torch.equal(copy.deepcopy(model)(*self.inputs()), out)
        assert torch.equal(pickle.loads(pickle.dumps(model))(*self.inputs()), out)

    def test_width_multiplies_the_hidden_layers(self):
        def widths(model):
            return [m.weight.shape[0] for m in layers_of(model, (*CONVOLUTIONS, nn.Linear))]

        width = self.small["width"]
        narrow, wide = widths(self.make()), widths(self.make(width=2 * width))
        unchanged = [self.make().feature_dim, 9]  # a chosen feature dimension; T-Net's 3×3 matrix
        assert all(b in (2 * a, 4 * a) or (a == b and a in unchanged) for a, b in zip(narrow, wide, strict=True))
        assert wide[0] == 2 * narrow[0]

    @pytest.mark.parametrize("width", [0, -1.0, float("nan")])
    def test_refuses_a_width(self, width):
        with pytest.raises(ValueError, match="width must be a number > 0"):
            self.make(width=width)

    def test_refuses_no_classes(self):
        with pytest.raises(ValueError, match="num_classes must be an integer ≥ 1"):
            self.make(0)

    def test_autocast(self):
        model = self.make().eval()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(*self.inputs())
        reference = model(*self.inputs())
        assert torch.isfinite(out).all()
        assert (out - reference).abs().max() <= 0.1 * reference.abs().max() + 0.02

    def test_double_precision(self):
        model = self.make().double()
        assert model(*(x.double() for x in self.inputs())).dtype == torch.float64


class ImageContract(ModelContract):
    """Models of images."""

    channels = 3
    size = (8, 8)

    def inputs(self, batch=4):
        generator = torch.Generator().manual_seed(1)
        return (torch.randn(batch, self.channels, *self.size, generator=generator),)

    def test_own_feature_dimension(self):
        model = self.make(feature_dim=3)
        assert model.feature_dim == 3
        assert model.features(*self.inputs()).shape == (4, 3)

    def test_an_image_by_itself_is_as_in_its_batch(self):
        model, (x,) = self.make().eval(), self.inputs()
        assert torch.allclose(model(x[1:2]), model(x)[1:2], atol=1e-5)

    def test_features_have_both_signs(self):
        """A.1: no nonlinearity follows a fully connected embedding, so features fill the sphere and not one orthant."""
        features = self.make(feature_dim=16).features(*self.inputs(batch=8))
        assert (features > 0).any()
        assert (features < 0).any()
