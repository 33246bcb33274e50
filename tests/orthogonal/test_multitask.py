import pytest
import torch
from torch import nn

from hypersphere.orthogonal import SymmetricPositive, add_task, orthogonality_error, overparameterize, use_task


def net():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(3, 2))


def test_tasks_share_the_neurons_and_learn_apart():
    model, x = overparameterize(net(), "gram_schmidt"), torch.randn(6, 5)
    first = model(x).detach()
    assert add_task(model, "b") is model
    assert torch.equal(model(x), first)
    use_task(model, "b")
    assert not torch.allclose(model(x), first)
    optimizer = torch.optim.Adam([p for name, p in model.named_parameters() if "tasks.b" in name], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert orthogonality_error(model) <= 1e-5
    assert all(p.grad is None for name, p in model.named_parameters() if "tasks.default" in name)
    second = model(x).detach()
    assert torch.equal(use_task(model, "default")(x), first)
    assert torch.equal(use_task(model, "b")(x), second)
    originals = [name for name, _ in model.named_buffers()]
    assert originals == ["0.parametrizations.weight.original", "2.parametrizations.weight.original"]


def test_an_identity_start_is_the_plain_model():
    model, x = net(), torch.randn(6, 5)
    y = model(x)
    add_task(overparameterize(model, "lowdin"), "b", start="identity")
    assert torch.allclose(use_task(model, "b")(x), y, atol=1e-6)


def test_a_checkpoint_holds_every_task():
    model = add_task(overparameterize(net(), SymmetricPositive()), "b")
    for name, p in model.named_parameters():
        if "raw" in name:
            nn.init.normal_(p)
    other = add_task(overparameterize(net(), SymmetricPositive()), "b")
    other.load_state_dict(model.state_dict())
    x = torch.randn(6, 5)
    for task in ("default", "b"):
        assert torch.equal(use_task(model, task)(x), use_task(other, task)(x))


def test_refuses():
    model = overparameterize(net())
    with pytest.raises(ValueError, match="layer '0' has no task 'b'; its tasks are default"):
        use_task(model, "b")
    with pytest.raises(ValueError, match="layer '0' has a task 'default' already"):
        add_task(model, "default")
    with pytest.raises(ValueError, match="task must be a name"):
        add_task(model, "a.b")
    with pytest.raises(ValueError, match="has no over-parameterized or finetuned layer"):
        add_task(net(), "b")
