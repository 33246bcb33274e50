import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hypersphere.evaluation import adversarial_loss, bim, fgsm, pgd, random_noise
from hypersphere.evaluation.attacks import predict_classes
from tests.evaluation.networks import colors, small_network


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.fixture
def data():
    return colors(40)


def foolbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports deprecated names of scipy
        return pytest.importorskip("foolbox")


def test_agrees_with_foolbox(network, data):
    fb = foolbox()
    images, labels = data
    network = copy.deepcopy(network).eval()
    wrapped = fb.PyTorchModel(network, bounds=(0, 1), device="cpu")
    pairs = [
        (fgsm(network, images, labels), fb.attacks.LinfFastGradientAttack()),
        (
            bim(network, images, labels),
            fb.attacks.LinfBasicIterativeAttack(abs_stepsize=2 / 255, steps=20, random_start=False),
        ),
        (bim(network, images, labels, 0.1, 0.03, 5), None),
    ]
    for ours, attack in pairs[:2]:
        theirs = attack(wrapped, images, labels, epsilons=8 / 255)[0]
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    theirs = fb.attacks.LinfProjectedGradientDescentAttack(abs_stepsize=0.03, steps=5, random_start=False)(
        wrapped, images, labels, epsilons=0.1
    )[0]
    torch.testing.assert_close(pairs[2][0], theirs, atol=1e-6, rtol=0)


def brute_bim(model, images, labels, epsilon, step, iterations):
    """Attack one image and one pixel at a time (C.1.2), with a gradient from central differences in float64."""
    model = copy.deepcopy(model).double().eval()
    made = []
    for image, label in zip(images.double(), labels, strict=True):
        x = image.clone()
        for _ in range(iterations):
            gradient = torch.zeros_like(x).flatten()
            for i in range(x.numel()):
                h = torch.zeros_like(gradient)
                h[i] = 1e-6
                up, down = (F.cross_entropy(model((x + s * h.view_as(x))[None]), label[None]) for s in (1, -1))
                gradient[i] = (up - down).sign()
            x = torch.minimum(torch.maximum(x + step * gradient.view_as(x), image - epsilon), image + epsilon).clamp(
                0, 1
            )
        made.append(x)
    return torch.stack(made)


def test_agrees_with_the_definition_by_finite_differences():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 3))
    images, labels = torch.rand(3, 1, 3, 4), torch.tensor([0, 1, 2])
    expected = brute_bim(model, images, labels, 0.05, 0.02, 4).float()
    torch.testing.assert_close(bim(model, images, labels, 0.05, 0.02, 4), expected, atol=1e-6, rtol=0)
    expected = brute_bim(model, images, labels, 0.05, 0.05, 1).float()
    torch.testing.assert_close(fgsm(model, images, labels, 0.05), expected, atol=1e-6, rtol=0)


ATTACKS = {
    "fgsm": fgsm,
    "bim": bim,
    "pgd": pgd,
    "pgd with restarts": lambda *args, **kwargs: pgd(*args, restarts=3, **kwargs),
    "noise": lambda model, x, y, epsilon, bounds=(0.0, 1.0): random_noise(x, epsilon, bounds=bounds),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_stays_in_the_ball_and_the_bounds(network, data, name):
    images, labels = data
    adversarial = ATTACKS[name](network, images * 2 - 1, labels, 0.03, bounds=(-1.0, 1.0))
    assert (adversarial - (images * 2 - 1)).abs().max() <= 0.03 + 1e-6
    assert adversarial.min() >= -1
    assert adversarial.max() <= 1
    assert not adversarial.requires_grad


@pytest.mark.parametrize("name", ATTACKS)
def test_does_not_change_the_model(network, data, name):
    images, labels = data
    images.requires_grad_(True)
    network.train()
    network[1].eval()  # a frozen BatchNorm in a training model
    before, modes = copy.deepcopy(network.state_dict()), [m.training for m in network.modules()]
    with torch.no_grad():  # as in most evaluation code
        ATTACKS[name](network, images, labels, 0.03)
    assert [m.training for m in network.modules()] == modes
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in network.parameters())
    assert images.grad is None


def test_the_mode_is_restored_after_an_error(network):
    network.train()
    with pytest.raises(RuntimeError):
        fgsm(network, torch.rand(2, 5, 8, 8), torch.tensor([0, 1]))
    assert all(m.training for m in network.modules() if m is not network[1])


@pytest.mark.parametrize("name", ["fgsm", "bim"])
def test_batches_change_nothing(network, data, name):
    images, labels = data
    whole = ATTACKS[name](network, images, labels, 0.03)
    parts = torch.cat(
        [ATTACKS[name](network, x, y, 0.03) for x, y in zip(images.split(7), labels.split(7), strict=True)]
    )
    torch.testing.assert_close(whole, parts, atol=1e-6, rtol=0)


def test_stronger_attacks_are_stronger(network, data):
    images, labels = data
    accuracy = [
        (predict_classes(network, x) == labels).double().mean().item()
        for x in (images, random_noise(images), fgsm(network, images, labels), bim(network, images, labels))
    ]
    clean, noise, one_step, many = accuracy
    assert clean > 0.9
    assert clean >= noise - 0.1
    assert noise > one_step >= many


def test_restarts_never_help_the_model(network, data):
    images, labels = data
    once, thrice = (
        predict_classes(network, pgd(network, images, labels, 0.02, 0.02, 2, restarts=r)) == labels for r in (1, 3)
    )
    assert not (thrice & ~once).any()


def test_pgd_is_repeatable(network, data):
    images, labels = data
    first, again, other = (pgd(network, images, labels, iterations=2, seed=s) for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_adversarial_loss_is_the_mixture(data):
    images, labels = data
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    clean, hard = F.cross_entropy(model(images), labels), F.cross_entropy(model(fgsm(model, images, labels)), labels)
    assert hard > clean
    loss = adversarial_loss(model, images, labels, weight=0.3)
    torch.testing.assert_close(loss, 0.7 * clean + 0.3 * hard)
    loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_adversarial_training_makes_a_linear_model_harder_to_attack():
    results = []
    for weight in (0.0, 1.0):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(150):
            optimizer.zero_grad()
            adversarial_loss(model, *colors(64), 0.05, weight=weight).backward()
            optimizer.step()
        images, labels = colors(400)
        results.append((predict_classes(model, fgsm(model, images, labels, 0.05)) == labels).double().mean().item())
    assert results[1] > results[0] + 0.1


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_refuses_epsilon(network, data, epsilon):
    with pytest.raises(ValueError, match="epsilon must be > 0"):
        fgsm(network, *data, epsilon)


def test_refuses(network, data):
    images, labels = data
    with pytest.raises(ValueError, match=r"images must lie within bounds \(0.0, 1.0\), got 0 to 255"):
        fgsm(network, torch.tensor([0.0, 255.0]).expand(1, 3, 8, 2), torch.tensor([0]))
    with pytest.raises(ValueError, match="bounds increasing"):
        fgsm(network, images, labels, bounds=(1.0, 0.0))
    with pytest.raises(ValueError, match="step must be > 0 and iterations ≥ 1"):
        bim(network, images, labels, iterations=0)
    with pytest.raises(ValueError, match="restarts must be an integer ≥ 1"):
        pgd(network, images, labels, restarts=0)
    with pytest.raises(ValueError, match="weight must be between 0 and 1"):
        adversarial_loss(network, images, labels, weight=1.5)


def test_noise_depends_only_on_seed_and_index():
    images = torch.rand(3, 1, 4, 4)
    first, again, other, next_one = (random_noise(images, seed=s, index=i) for s, i in ((1, 0), (1, 0), (2, 0), (1, 1)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, next_one)
