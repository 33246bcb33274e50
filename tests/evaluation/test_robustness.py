import math

import pytest
import torch
from torch import nn

from hypersphere.evaluation import bim, deepfool, fgsm, robustness, strength, transfer
from hypersphere.evaluation._robustness import boundary_attack
from hypersphere.evaluation.attacks import predict_classes
from tests.evaluation.contracts import ReportContract
from tests.evaluation.networks import colors, small_network
from tests.evaluation.test_attacks import foolbox


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(0)
    return colors(60)


class Steps(nn.Module):
    """A network with the same decisions behind a step function, whose gradient is zero: a masked gradient."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return (1000 * self.model(x)).round() / 1000


@pytest.fixture(scope="module")
def honest(network, data):
    return robustness(network, *data, baseline=small_network(1), batch=25, deepfool_steps=10)


class TestRobustnessReport(ReportContract):
    @pytest.fixture
    def report(self, honest):
        return honest

    def test_an_honest_model_has_no_findings(self, report):
        assert report.findings == []
        assert report.numbers()["masked gradients"] == "no sign"
        assert report.accuracy["clean"] > 0.9 > 0.1 > report.accuracy["BIM, wide ball"]

    def test_accuracies_agree_with_the_attacks(self, report, network, data):
        images, labels = data
        right = lambda x: (predict_classes(network, x) == labels).double().mean().item()
        assert report.accuracy["clean"] == pytest.approx(right(images))
        assert report.accuracy["FGSM"] == pytest.approx(right(fgsm(network, images, labels)), abs=0.02)
        assert report.accuracy["BIM"] == pytest.approx(right(bim(network, images, labels)), abs=0.02)
        assert report.accuracy["transferred BIM"] == pytest.approx(
            transfer(small_network(1), network, images, labels), abs=0.02
        )

    def test_strengths_are_those_of_correctly_classified_images(self, network, data):
        images, labels = data
        wrong = labels.clone()
        wrong[::2] = (wrong[::2] + 1) % 2
        right = predict_classes(network, images) == wrong
        assert 0 < right.sum() < len(images)
        found = robustness(network, images, wrong, deepfool_steps=5)
        for norm, name in ((2.0, "DeepFool ℓ2"), (math.inf, "DeepFool ℓ∞")):
            moved = strength(deepfool(network, images, wrong, norm=norm, steps=5), images, norm)
            torch.testing.assert_close(found.strengths[name], moved[right])
            assert (found.strengths[name] > 0).all()


def test_masked_gradients_are_found(network, data):
    report = robustness(Steps(network), *data, baseline=network, deepfool_steps=2)
    assert report.accuracy["BIM"] > 0.5  # BIM alone makes the network look robust
    text = " ".join(report.findings)
    assert "zero or non-finite gradient" in text
    assert "fails even without a bound" in text
    assert "transferred BIM is stronger" in text
    assert "zero or non-finite" in str(report)


def test_a_decision_based_attack_is_not_affected_by_masked_gradients(network, data):
    foolbox()
    images, labels = data[0][:8], data[1][:8]
    epsilon = 0.1
    report = robustness(Steps(network), images, labels, epsilon=epsilon, decision_steps=2, deepfool_steps=1)
    assert report.accuracy["decision-based"] < report.accuracy["BIM"]
    assert any("decision-based is stronger" in finding for finding in report.findings)
    made = boundary_attack(network, images, labels, epsilon, steps=1)
    assert (made - images).abs().max() <= epsilon + 1e-6
    assert torch.equal(made, boundary_attack(network, images, labels, epsilon, steps=1))


def test_random_noise_that_is_as_strong_is_a_finding():
    class Flicker(nn.Module):
        """A network that decides by the parity of the last digits, so any change of the image changes the decision."""

        def forward(self, x):
            parity = (x.flatten(1)[:, :8] * 1024).round().sum(1) % 2
            return torch.stack([parity, 1 - parity], 1) + 1e-3 * x.flatten(1)[:, :2]

    images = torch.rand(200, 1, 4, 4).mul(1024).round() / 1024
    labels = predict_classes(Flicker(), images)
    report = robustness(Flicker(), images, labels, deepfool_steps=1)
    assert any("random noise is as strong" in finding for finding in report.findings)


def test_transfer_accepts_any_attack(network, data):
    images, labels = data
    source = small_network(2)
    expected = (predict_classes(network, fgsm(source, images, labels, 0.05)) == labels).double().mean().item()
    assert transfer(source, network, images, labels, fgsm, epsilon=0.05) == expected


@pytest.mark.untyped
def test_refuses_labels_of_another_length(network, data):
    with pytest.raises(ValueError, match=r"labels must have shape \(60,\)"):
        robustness(network, data[0], data[1][:-1])
