import copy
import math

import pytest
import torch
from torch import nn

from hypersphere.evaluation import deepfool, strength
from hypersphere.evaluation.attacks import predict_classes
from tests.evaluation.networks import colors, small_network
from tests.evaluation.test_attacks import foolbox

NORMS = [2.0, math.inf]


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("candidates", [2, 10])
def test_agrees_with_foolbox(network, norm, candidates):
    fb = foolbox()
    images, labels = colors(30)
    network = copy.deepcopy(network).eval()
    attack = {2.0: fb.attacks.L2DeepFoolAttack, math.inf: fb.attacks.LinfDeepFoolAttack}[norm](candidates=candidates)
    theirs = attack(fb.PyTorchModel(network, bounds=(0, 1), device="cpu"), images, labels, epsilons=None)[0]
    ours = deepfool(network, images, labels, norm=norm, candidates=candidates)
    torch.testing.assert_close(strength(ours, images, norm), strength(theirs, images, norm), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_boundary_is_crossed_at_its_nearest_point(norm):
    # For a linear classifier the distance to the nearest boundary is known: |f_k − f_0| / ‖w_k − w_0‖ of the dual norm.
    torch.manual_seed(2)
    model = nn.Linear(6, 4).double()
    images = 0.5 + 0.1 * torch.randn(20, 6, dtype=torch.float64)
    logits = model(images)
    top = logits.argmax(1)
    expected = torch.full((20,), math.inf, dtype=torch.float64)
    for i in range(20):
        for k in range(4):
            if k != top[i]:
                w = model.weight[k] - model.weight[top[i]]
                distance = (logits[i, top[i]] - logits[i, k]) / w.norm(p=2 if norm == 2 else 1)
                expected[i] = min(expected[i], distance.item())
    adversarial = deepfool(model, images, norm=norm, overshoot=0.0, bounds=(-10.0, 10.0))
    torch.testing.assert_close(strength(adversarial, images, norm), expected + 1e-4, atol=1e-7, rtol=1e-4)
    assert (predict_classes(model, adversarial) != top).all()


@pytest.mark.parametrize("norm", NORMS)
def test_is_the_smallest_perturbation_in_its_own_norm(network, norm):
    images, _ = colors(30)
    before = predict_classes(network, images)
    adversarial = {n: deepfool(network, images, norm=n) for n in NORMS}
    assert (predict_classes(network, adversarial[norm]) != before).double().mean() > 0.95
    other = next(n for n in NORMS if n != norm)
    assert strength(adversarial[norm], images, norm).median() <= strength(adversarial[other], images, norm).median()


def test_misclassified_images_are_not_changed(network):
    images, labels = colors(10)
    wrong = (predict_classes(network, images) + 1) % 4
    assert torch.equal(deepfool(network, images, wrong), images)
    assert labels.shape == (10,)


def test_does_not_change_the_model(network):
    network.train()
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        deepfool(network, colors(5)[0])
    assert all(m.training for m in network.modules())
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize("options", [{"candidates": 1}, {"steps": 0}, {"overshoot": -0.1}])
def test_refuses(network, options):
    with pytest.raises(ValueError, match="candidates must be ≥ 2, steps ≥ 1, overshoot ≥ 0"):
        deepfool(network, colors(2)[0], **options)


def test_refuses_other_norms(network):
    with pytest.raises(ValueError, match=r"norm must be 2 or math.inf, got 1"):
        deepfool(network, colors(2)[0], norm=1)
