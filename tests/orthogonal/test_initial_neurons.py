import math

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Refinement, prepare_neurons
from tests.orthogonal.contracts import energy


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, 2))


class TestRefinement:
    @pytest.mark.parametrize("half_space", [False, True])
    def test_lowers_the_energy_and_keeps_the_lengths(self, half_space):
        rows = torch.randn(9, 4)
        before, lengths = rows.clone(), rows.norm(dim=1)
        assert Refinement(s=1, half_space=half_space)(rows) is rows
        both = (lambda w: torch.cat([w, -w])) if half_space else (lambda w: w)
        assert energy(both(rows)) < energy(both(before))
        assert torch.allclose(rows.norm(dim=1), lengths, rtol=1e-5)

    def test_more_steps_go_lower(self):
        start = torch.randn(20, 4, dtype=torch.float64)
        energies = [energy(Refinement(s=1, steps=steps)(start.clone())) for steps in (1, 5, 50)]
        assert energies == sorted(energies, reverse=True)

    @pytest.mark.parametrize("options", [{"s": -1}, {"s": math.nan}, {"steps": 0}])
    def test_refuses(self, options):
        with pytest.raises(ValueError, match="a refinement needs s ≥ 0 and steps ≥ 1"):
            Refinement(**options)


class TestPrepare:
    def test_hidden_layers_only_and_in_the_stated_order(self):
        model, same = net(), net()
        assert prepare_neurons(model, redraw=nn.init.ones_, mean=1.0, refine=lambda r: r.neg_()) is model
        assert torch.equal(model[0].weight, torch.full_like(model[0].weight, -2))
        assert torch.equal(model[2].weight, torch.full_like(model[2].weight, -2))
        assert torch.equal(model[3].weight, same[3].weight)

    def test_freeze_leaves_the_classifier_and_biases_to_train(self):
        names = {name for name, p in prepare_neurons(net(), freeze=True).named_parameters() if p.requires_grad}
        assert names == {"0.bias", "2.bias", "3.weight", "3.bias"}

    def test_parameters_stay_the_objects_they_were(self):
        model = net()
        before = [id(p) for p in model.parameters()]
        prepare_neurons(model, normalize=True)
        assert [id(p) for p in model.parameters()] == before
        assert torch.allclose(model[0].weight.flatten(1).norm(dim=1), torch.ones(8))

    def test_refuses(self):
        with pytest.raises(ValueError, match="mean must be a finite number, got nan"):
            prepare_neurons(net(), mean=math.nan)
        with pytest.raises(ValueError, match="has no Linear or Conv layer to prepare"):
            prepare_neurons(nn.Sequential(nn.Linear(2, 2)))
