import copy
import pickle

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.energy import MHE, AdversarialProjection, CoMHE, Gaussian, class_energy, hyperspherical_energy
from hypersphere.models import cnn6
from tests.energy.contracts import RegularizerContract, brute_force


class TestHalfSpaceMHE(RegularizerContract):
    def make(self, model):
        return MHE(model)

    def test_is_eq_5_4(self):
        net = self.net()
        hidden = hyperspherical_energy(net[0].weight, half_space=True) + hyperspherical_energy(
            net[4].weight, half_space=True
        )
        assert MHE(net)().item() == pytest.approx((hidden + hyperspherical_energy(net[5].weight)).item(), rel=1e-6)

    def test_defaults_follow_the_space(self):
        net = self.net()
        assert (MHE(net).hidden, MHE(net).output) == (1, 1)
        assert (MHE(net, half_space=False).hidden, MHE(net, half_space=False).output) == (10, 1)
        values, terms = MHE(net).per_layer(), MHE(net, hidden=3.0, output=2.0).terms()
        assert terms["output"].item() == pytest.approx(2 * values["5"].item())
        assert terms["hidden"].item() == pytest.approx(3 * (values["0"] + values["4"]).item())

    def test_output_only(self):
        net = self.net()
        mhe = MHE(net, hidden=0.0)
        assert list(mhe.per_layer()) == ["5"]
        assert torch.equal(mhe(), hyperspherical_energy(net[5].weight))

    def test_one_hidden_layer_is_always_in_half_space_and_the_output_never(self):
        w = torch.randn(5, 4)
        net = nn.Sequential(nn.Linear(4, 5), nn.Linear(4, 5))
        for layer in net:
            layer.weight.data.copy_(w)
        mhe = MHE(net)
        signs = torch.tensor([1.0, -1, 1, -1, 1])[:, None]
        before = mhe.per_layer()
        for layer in net:
            layer.weight.data.mul_(signs)
        after = mhe.per_layer()
        assert torch.allclose(before["0"], after["0"])
        assert not torch.allclose(before["1"], after["1"])

    def test_training_with_it_lowers_it(self):
        net = self.net()
        mhe = MHE(net)
        before = mhe()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            mhe().backward()
            optimizer.step()
        assert mhe() < before

    def test_survives_copy_and_pickle(self):
        mhe = MHE(self.net())
        assert torch.equal(copy.deepcopy(mhe)(), mhe())
        assert torch.equal(pickle.loads(pickle.dumps(mhe))(), mhe())


class TestFullSpaceMHE(RegularizerContract):
    def make(self, model):
        return MHE(model, half_space=False, s=1)


class TestAngularMHE(RegularizerContract):
    def make(self, model):
        return MHE(model, distance="angular", s=0)


def test_a_model_without_a_classifier():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    assert list(MHE(net).per_layer()) == ["0", "1"]


class TestHeads:
    """A head is a classifier at any place in the model."""

    def model(self):
        return cnn6(10, classifier=hs.SphereFace, width=0.1, feature_dim=12)

    @pytest.mark.parametrize("kind", [MHE, CoMHE])
    def test_a_head_is_the_output_and_the_embedding_is_hidden(self, kind):
        model = self.model()
        regularizer = kind(model)
        assert regularizer.classifier == "classifier"
        embedding = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)][-1]
        assert embedding in regularizer.per_layer()
        output = regularizer.terms()["output"]
        assert torch.equal(output, hyperspherical_energy(model.classifier.weight))
        regularizer().backward()
        assert model.classifier.weight.grad.any()
        assert model.get_submodule(embedding).weight.grad.any()

    def test_with_labels_it_is_the_energy_of_the_classes_of_the_batch(self):
        model, labels = self.model(), torch.tensor([1, 7, 7, -100])
        for options in ({}, {"distance": "angular", "s": 1}):
            expected = class_energy(model.classifier.weight, labels[:3], **options)
            assert torch.equal(MHE(model, **options).terms(labels)["output"], expected)
        assert torch.equal(MHE(model, data_dependent=False).terms(labels)["output"], MHE(model).terms()["output"])
        assert MHE(model).terms(labels[3:])["output"] == 0

    def test_several_centres_of_a_class(self):
        head = hs.ArcFace(4, 3, sub_centers=2)
        value = MHE(nn.Linear(4, 4), classifier=head, hidden=0.0)(torch.tensor([2]))
        w = torch.nn.functional.normalize(head.weight.detach().double(), dim=1)
        pairs = [(w[i] - w[j]).norm().item() ** -2 for i in (4, 5) for j in range(6) if i != j]
        assert value.item() == pytest.approx(sum(pairs) / len(pairs), rel=1e-5)

    def test_a_head_outside_the_model(self):
        body, head = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), hs.CosFace(4, 7)
        for kind in (MHE, CoMHE):
            regularizer = kind(body, classifier=head)
            assert list(regularizer.per_layer()) == ["0", "1", "classifier"]
            assert torch.equal(regularizer.terms()["output"], hyperspherical_energy(head.weight))
            assert list(kind(body, classifier=head, only=["0"]).per_layer()) == ["0", "classifier"]

    def test_a_network_without_classes_keeps_its_last_linear_as_a_hidden_layer(self):
        model = cnn6(None, width=0.1, feature_dim=12)
        mhe = MHE(nn.Sequential(model))
        assert mhe.classifier is None
        assert mhe.skipped == {}
        assert len(mhe.per_layer()) == sum(isinstance(m, nn.Linear | nn.Conv2d) for m in model.modules())

    def test_a_classifier_must_have_rows(self):
        with pytest.raises(ValueError, match="one row per class"):
            MHE(nn.Linear(3, 3), classifier=nn.ReLU())


class TestForms:
    def net(self):
        return nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 4))

    def test_importance_is_eq_d_10(self):
        net, beta = self.net(), [1.0, 4.0, *[2.0] * 7]
        mhe = MHE(net, importance={"0": beta, "1": [1.0, 2.0, 3.0, 4.0]})
        assert mhe.per_layer()["0"].item() == pytest.approx(
            brute_force(net[0].weight, 2, True, importance=beta), rel=1e-5
        )
        assert mhe.per_layer()["1"].item() == pytest.approx(
            brute_force(net[1].weight, 2, importance=[1, 2, 3, 4]), rel=1e-5
        )

    def test_a_sample_has_the_mean_of_all_and_changes_with_the_steps(self):
        net = self.net().double()
        mhe, values = MHE(net, sample=4), []
        for _ in range(600):
            values.append(mhe.per_layer()["0"].item())
            assert len(values) > 5 or mhe.per_layer()["0"].item() == values[-1]
            mhe.step()
        values = torch.tensor(values)
        error = values.std() / len(values) ** 0.5
        assert abs(values.mean() - MHE(net).per_layer()["0"]) < 4 * error

    def test_a_sample_resumes(self):
        net = self.net()
        mhe, other = MHE(net, sample=4), MHE(net, sample=4)
        mhe.step()
        other.load_state_dict(mhe.state_dict())
        assert torch.equal(mhe(), other())

    def test_a_custom_kernel(self):
        net, labels = self.net(), torch.tensor([0, 2])
        kernel = Gaussian(3)
        mhe = MHE(net, kernel=kernel)
        q = torch.cdist(*[torch.nn.functional.normalize(net[1].weight.detach().double(), dim=1)] * 2).square()
        values = torch.exp(-3 * q) - torch.eye(4)
        assert mhe.terms()["output"].item() == pytest.approx((values.sum() / 12).item(), rel=1e-5)
        assert mhe.terms(labels)["output"].item() == pytest.approx((values[labels].sum() / 6).item(), rel=1e-5)
        assert torch.equal(hyperspherical_energy(net[1].weight, kernel=kernel), mhe.terms()["output"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sample": 1}, "sample must be"),
            ({"importance": {"2": [1.0]}}, "importance must have names of layers"),
            ({"importance": {"0": [1.0]}}, "one finite number > 0"),
            ({"importance": {"0": [1.0] * 9}, "distance": "angular"}, "importance scales"),
            ({"kernel": Gaussian(2), "s": 1}, "kernel replaces s and distance"),
        ],
    )
    def test_refuses(self, options, message):
        with pytest.raises(ValueError, match=message):
            MHE(self.net(), **options)


class TestTransformers:
    def test_attention_is_three_groups_of_neurons(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        values = MHE(layer, classifier=False).per_layer()
        assert list(values) == ["self_attn.in_proj_weight", "self_attn.out_proj", "linear1", "linear2"]
        parts = [hyperspherical_energy(w, half_space=True) for w in layer.self_attn.in_proj_weight.chunk(3)]
        assert values["self_attn.in_proj_weight"].item() == pytest.approx(sum(parts).item() / 3, rel=1e-5)
        apart = nn.MultiheadAttention(8, 2, kdim=6, vdim=4)
        assert list(MHE(apart).per_layer()) == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj"]

    def test_neurons_of_conv1d_are_columns(self):
        class Conv1D(nn.Module):  # as in transformers
            def __init__(self, nf, nx):
                super().__init__()
                self.nf, self.weight = nf, nn.Parameter(torch.randn(nx, nf))

        net = nn.Sequential(Conv1D(5, 3), nn.ReLU())
        assert torch.equal(MHE(net).per_layer()["0"], hyperspherical_energy(net[0].weight.T, half_space=True))


def test_only_and_what_it_leaves_out():
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 3))
    mhe = MHE(net, only=["0", "2"], skip=["2"])
    assert list(mhe.per_layer()) == ["0"]
    assert mhe.skipped == {"1": "not chosen by only", "2": "left out by skip"}


@pytest.mark.parametrize(
    "net", [nn.Sequential(nn.Linear(1, 9), nn.Linear(9, 3)), nn.Sequential(nn.Linear(2, 9), nn.Linear(9, 3))]
)
def test_an_adversary_without_neurons_to_project(net):
    comhe = CoMHE(net, AdversarialProjection())
    comhe.step()
    assert torch.isfinite(comhe())
