import importlib
import pkgutil

import pytest
import torch
from torch import nn

import tests.objectives.heads
from hypersphere import angular, objectives
from hypersphere.objectives import (
    Annealing,
    ArcFace,
    GASoftmax,
    LSoftmax,
    MarginSoftmax,
    Softmax,
    SphereFace,
    SSoftmax,
    WSoftmax,
)
from hypersphere.objectives.margins import AdditiveAngle
from tests import distributed
from tests.objectives.contracts import HeadContract

PRESETS = [Softmax, LSoftmax, WSoftmax, SSoftmax, SphereFace, GASoftmax, ArcFace]


def test_the_weights_start_near_the_sphere():
    head = MarginSoftmax(64, 1000, bias=True)
    assert head.weight.shape == (1000, 64)
    assert head.weight.norm(dim=1).mean().item() == pytest.approx(1, abs=0.05)
    assert (head.bias == 0).all()
    before = head.weight.detach().clone()
    head.reset_parameters()
    assert not torch.equal(before, head.weight)


def test_sub_centers_are_rows_of_one_weight():
    head = ArcFace(4, 3, sub_centers=2)
    assert head.weight.shape == (6, 4)
    x = head.weight.detach()[3:4] * 5
    assert head.predict(x).item() == 1
    assert head.logits(x)[0, 1].item() == pytest.approx(64, rel=1e-5)


def test_a_learned_scale_is_a_parameter_and_learns():
    head = MarginSoftmax(4, 3, scale=nn.Parameter(torch.tensor(10.0)))
    assert "scale" in dict(head.named_parameters())
    assert "scale=learned" in repr(head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    head(torch.randn(8, 4), torch.randint(0, 3, (8,))).backward()
    optimizer.step()
    assert head.scale.item() != 10
    assert "scale" in head.state_dict()


def test_a_g_per_class_is_the_heads_own():
    g = angular.Sigmoid(0.5, learnable="filter")
    first, second = WSoftmax(4, 3, angular=g), WSoftmax(4, 5, angular=g)
    assert first.angular.log_k.shape == (3,)
    assert second.angular.log_k.shape == (5,)
    assert first.logits(torch.randn(2, 4)).shape == (2, 3)


def test_step_moves_nothing_but_the_annealing():
    head = SphereFace(4, 3, annealing=Annealing(10, 1))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head.step()
    changed = [name for name, value in head.state_dict().items() if not torch.equal(before[name], value)]
    assert changed == ["annealing.steps"]
    plain = SphereFace(4, 3)
    plain.step()
    assert list(plain.state_dict()) == ["weight"]


def test_prints_what_differs_from_the_defaults():
    head = MarginSoftmax(
        4, 3, margin=AdditiveAngle(0.5), sub_centers=2, gradient="detached", label_smoothing=0.1, chunk=7, bias=True
    )
    for text in (
        "in_features=4",
        "num_classes=3",
        "scale=30.0",
        "sub_centers=2",
        "gradient='detached'",
        "chunk=7",
        "m=0.5",
        "bias=True",
    ):
        assert text in repr(head)
    assert "sub_centers" not in repr(MarginSoftmax(4, 3))


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 3), {}, "in_features ≥ 1"),
        ((4, 1), {}, "num_classes ≥ 2"),
        ((4, 3), {"sub_centers": 0}, "sub_centers must be"),
        ((4, 3), {"scale": 0.0}, "scale must be a positive number"),
        ((4, 3), {"chunk": "big"}, "chunk must be"),
        ((4, 3), {"reduction": "median"}, "reduction must be"),
        ((4, 3), {"gradient": "half"}, "gradient must be"),
        ((4, 3), {"angular": "linear"}, "angular must be"),
    ],
)
def test_refuses(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        MarginSoftmax(*arguments, **options)


def worker(rank):
    """Return every preset's gradients on this half of the batch, averaged by DDP, dense and in chunks."""
    found = {}
    for kind in PRESETS:
        for chunk in (None, 4):
            net = network(kind, chunk)
            replicated = nn.parallel.DistributedDataParallel(net)
            x, y = data()
            replicated(x[rank::2], y[rank::2]).backward()
            found[f"{kind.__name__}/{chunk}"] = [p.grad for p in net.parameters()]
    return found


class Network(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), head

    def forward(self, x, y):
        return self.head(self.body(x), y)


def network(kind, chunk):
    torch.manual_seed(0)
    return Network(kind(5, 11, chunk=chunk)).double()


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=generator, dtype=torch.float64), torch.randint(0, 11, (8,), generator=generator)


def test_two_processes_give_the_gradients_of_one():
    results = distributed.run(worker)
    for kind in PRESETS:
        for chunk in (None, 4):
            net = network(kind, chunk)
            net(*data()).backward()
            for found in results:
                for mine, single in zip(found[f"{kind.__name__}/{chunk}"], net.parameters(), strict=True):
                    assert torch.allclose(mine, single.grad, atol=1e-12)


def descendants(kind):
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


def test_every_head_inherits_the_contract():
    """The contract tests chunks, shards, sampling, half precision, poles and saved state of every head."""
    for module in pkgutil.iter_modules(tests.objectives.heads.__path__):
        importlib.import_module(f"tests.objectives.heads.{module.name}")
    importlib.import_module("tests.objectives.test_head_presets")
    tested = {type(contract().head()) for contract in descendants(HeadContract)}
    exported = {getattr(objectives, name) for name in objectives.__all__}
    heads = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, MarginSoftmax)}
    assert heads - {MarginSoftmax} - tested == set()
