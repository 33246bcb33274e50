import pytest
import torch
from torch import nn

from hypersphere.orthogonal import add_task, finetune, redraw, redraw_every
from tests.orthogonal.finetuning.contracts import shake


def network():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8, 24)).double()
    return finetune(body, "poet", block=4, classifier=False, generator=torch.Generator().manual_seed(1))


X = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(0)).double()


def train(model, steps, every, state=None):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    if state is not None:
        optimizer.load_state_dict(state)
    redraw_every(model, optimizer, every, seed=9)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(X) - 1).square().mean().backward()
        optimizer.step()
    return optimizer


def test_the_model_computes_what_it_did():
    model = shake(network())
    y = model(X)
    orders = [m.order.clone() for m in model.modules() if hasattr(m, "order")]
    redraw(model)
    assert torch.allclose(model(X), y, atol=1e-12)
    assert all(not p.any() for p in model.parameters() if p.requires_grad)
    assert any(
        not torch.equal(m.order, o)
        for m, o in zip((m for m in model.modules() if hasattr(m, "order")), orders, strict=True)
    )


def test_projection_after_a_number_of_steps():
    model = network()
    optimizer = train(model, 5, 2)
    own = model[2].parametrizations.weight[0]
    assert (int(own.steps), int(own.redraws)) == (5, 2)
    assert all(int(s["step"]) == 1 for s in optimizer.state.values())  # a redraw resets the optimizer state


def test_blocks_meet_by_redrawing():
    """Redrawn blocks reach a subspace that fixed blocks of four cannot reach, so the loss decreases further."""
    still, drawn = network(), network()
    train(still, 40, 1000)
    train(drawn, 40, 10)
    assert torch.linalg.matrix_norm(drawn(X) - 1) < torch.linalg.matrix_norm(still(X) - 1) * 1.5
    assert int(drawn[0].parametrizations.weight[0].redraws) == 4


@pytest.mark.parametrize("stop", [3, 5, 9])
def test_a_resumed_run_is_the_same_run(stop):
    whole = network()
    train(whole, 12, 4)
    first = network()
    optimizer = train(first, stop, 4)
    second = network()
    second.load_state_dict(first.state_dict())
    torch.rand(3)  # the global random state must not matter
    train(second, 12 - stop, 4, optimizer.state_dict())
    assert torch.equal(second(X), whole(X))


def test_every_redraw_and_every_seed_has_other_permutations():
    orders = []
    for seed, steps in ((1, 2), (1, 4), (2, 2)):
        model = network()
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.0)
        redraw_every(model, optimizer, 2, seed)
        for _ in range(steps):
            optimizer.step()
        orders.append(torch.cat([m.order.flatten() for m in model.modules() if hasattr(m, "order")]).tolist())
    assert len({tuple(order) for order in orders}) == 3


def test_refuses():
    with pytest.raises(ValueError, match='no layer tuned with method="poet"'):
        redraw(finetune(nn.Linear(8, 40), block=4))
    with pytest.raises(ValueError, match="several tasks"):
        redraw(add_task(network(), "b"))
    with pytest.raises(ValueError, match="steps must be an integer ≥ 1"):
        redraw_every(network(), torch.optim.SGD([nn.Parameter(torch.zeros(1))]), 0)
    with pytest.raises(ValueError, match='no layer tuned with method="poet"'):
        redraw_every(finetune(nn.Linear(8, 40), block=4), torch.optim.SGD([nn.Parameter(torch.zeros(1))]))
