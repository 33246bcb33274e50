"""Training from scratch on two-dimensional features, where features align exactly with their class weights."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from hypersphere.objectives import (
    AMSoftmax,
    Annealing,
    ArcFace,
    ASoftmax,
    GASoftmax,
    LSoftmax,
    Softmax,
    SSoftmax,
    WSoftmax,
)

# Thousands of steps, so shape checks would take most of the time.
pytestmark = pytest.mark.untyped


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)


@pytest.mark.parametrize("kind", [Softmax, LSoftmax, WSoftmax, SSoftmax, ASoftmax, GASoftmax, AMSoftmax, ArcFace])
def test_never_becomes_non_finite(kind, digits):
    images, labels = digits
    for seed in range(5):
        torch.manual_seed(seed)
        body, head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)), kind(2, 10)
        parameters = [*body.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        for _ in range(200):
            batch = torch.randint(0, len(labels), (64,))
            optimizer.zero_grad()
            loss = head(body(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            assert torch.isfinite(loss)
        assert all(torch.isfinite(p).all() for p in parameters)


@pytest.mark.parametrize("options", [{}, {"annealing": Annealing(100, 1)}], ids=["bare", "annealed"])
def test_sphereface_learns_the_digits(options, digits):
    images, labels = digits
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)), ASoftmax(16, 10, m=2, **options)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(300):
        batch = torch.randint(0, len(labels), (128,))
        optimizer.zero_grad()
        head(body(images[batch]), labels[batch]).backward()
        optimizer.step()
        head.step()
    assert (head.predict(body(images)) == labels).float().mean() > 0.95
