"""The contract of matrix optimizers, which the tests of Muon and Pion inherit."""

import copy

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Muon, group_matrices
from hypersphere.orthogonal.matrix_optimizer import MatrixOptimizer, as_matrices, as_weight


class MatrixOptimizerContract:
    """A matrix optimizer, created by a function of its parameters."""

    @staticmethod
    def make(params, **options):
        raise NotImplementedError

    def train(self, model, x, steps, optimizers):
        for _ in range(steps):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        return loss.item()

    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 3)
        )

    X = torch.randn(6, 4, 4, 4, generator=torch.Generator().manual_seed(0))

    def optimizers(self, model):
        matrices, others = group_matrices(model)
        return [self.make(matrices, lr=0.01), torch.optim.AdamW(others, lr=0.01)]

    def test_trains_matrices_and_convolutions(self):
        model = self.network()
        optimizers = self.optimizers(model)
        first = self.train(model, self.X, 1, optimizers)
        assert self.train(model, self.X, 20, optimizers) < 0.8 * first

    def test_a_resumed_run_is_the_same_run_bit_for_bit(self):
        whole = self.network()
        self.train(whole, self.X, 6, self.optimizers(whole))
        first = self.network()
        optimizers = self.optimizers(first)
        self.train(first, self.X, 3, optimizers)
        second = self.network()
        second.load_state_dict(first.state_dict())
        resumed = self.optimizers(second)
        for new, old in zip(resumed, optimizers, strict=True):
            new.load_state_dict(copy.deepcopy(old.state_dict()))
        self.train(second, self.X, 3, resumed)
        assert all(
            torch.equal(a, b) for a, b in zip(whole.state_dict().values(), second.state_dict().values(), strict=True)
        )

    def test_a_convolution_is_the_matrix_of_its_flattened_filters(self):
        conv, linear = nn.Parameter(torch.randn(6, 2, 3, 2)), None
        linear = nn.Parameter(conv.detach().flatten(1).clone())
        conv.grad = torch.randn_like(conv)
        linear.grad = conv.grad.flatten(1).clone()
        for p in (conv, linear):
            self.make([p], lr=0.1).step()
        assert torch.equal(conv.flatten(1), linear)

    def test_parts_are_separate_matrices(self):
        fused = nn.Parameter(torch.randn(9, 4))
        fused.grad = torch.randn_like(fused)
        apart = [nn.Parameter(p.clone()) for p in fused.detach().chunk(3)]
        for p, g in zip(apart, fused.grad.chunk(3), strict=True):
            p.grad = g.clone()
        self.make([{"params": [fused], "parts": 3}], lr=0.1).step()
        self.make(apart, lr=0.1).step()
        assert torch.allclose(fused, torch.cat(apart), atol=1e-6)

    def test_transposed_weights_move_as_their_transpose(self):
        plain = nn.Parameter(torch.randn(5, 3))
        plain.grad = torch.randn_like(plain)
        other = nn.Parameter(plain.detach().T.clone())
        other.grad = plain.grad.T.clone()
        self.make([plain], lr=0.1).step()
        self.make([{"params": [other], "transposed": True}], lr=0.1).step()
        assert torch.allclose(plain, other.T, atol=1e-6)

    def test_half_precision_weights_are_computed_in_float32(self):
        p = nn.Parameter(torch.randn(6, 4).bfloat16())
        q = nn.Parameter(p.detach().float())
        p.grad = torch.randn(6, 4).bfloat16()
        q.grad = p.grad.float()
        for x in (p, q):
            self.make([x], lr=0.05).step()
        assert torch.allclose(p.float(), q, atol=2e-2)

    def test_a_zero_gradient_is_harmless(self):
        p = nn.Parameter(torch.randn(4, 4))
        p.grad = torch.zeros(4, 4)
        self.make([p], lr=0.1).step()
        assert p.isfinite().all()

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"lr": -1}, "lr must be a number ≥ 0"), ({"momentum": 1}, r"momentum must be in \[0, 1\)")],
    )
    def test_refuses(self, options, message):
        with pytest.raises(ValueError, match=message):
            self.make([nn.Parameter(torch.zeros(2, 2))], **options)
        with pytest.raises(ValueError, match="two or more dimensions"):
            self.make([nn.Parameter(torch.zeros(2))])
        with pytest.raises(ValueError, match="parts=2"):
            self.make([{"params": [nn.Parameter(torch.zeros(3, 2))], "parts": 2}])


def test_a_round_trip():
    for shape, group in {
        (6, 2, 3): {"parts": 2, "transposed": False},
        (4, 6): {"parts": 3, "transposed": True},
    }.items():
        x = torch.randn(shape)
        assert torch.equal(as_weight(as_matrices(x, group), x, group), x)


def test_a_closure_is_called_once():
    p, calls = nn.Parameter(torch.ones(2, 2)), []

    def closure():
        calls.append(1)
        loss = p.square().sum()
        loss.backward()
        return loss

    assert isinstance(optimizer := Muon([p]), MatrixOptimizer)
    assert optimizer.step(closure) == 4
    assert calls == [1]
