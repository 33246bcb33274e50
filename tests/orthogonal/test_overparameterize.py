import functools

import pytest
import scipy.stats
import torch
from torch import nn

from hypersphere.neurons import get_change_report, neurons
from hypersphere.objectives import SphereFace
from hypersphere.orthogonal import METHODS, Refinement, orthogonality_error, overparameterize, prepare_neurons
from hypersphere.orthogonal.parametrization import require_overparameterized
from tests.orthogonal.contracts import build


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, 2)
    )


def originals(model):
    return {
        name: module.parametrizations.weight.original
        for name, module in model.named_modules()
        if name in require_overparameterized(model)
    }


class TestWhichLayers:
    def test_every_layer_but_the_classifier(self):
        model = net()
        assert overparameterize(model) is model
        assert list(require_overparameterized(model)) == ["0", "2", "4"]
        assert isinstance(model[5].weight, nn.Parameter)

    @pytest.mark.parametrize(
        ("skip", "chosen"),
        [((), ["0", "2", "4"]), (["0"], ["2", "4"]), ([nn.Linear], ["0", "2"]), (["[45]"], ["0", "2"])],
    )
    def test_skip_adds_to_the_classifier(self, skip, chosen):
        assert list(require_overparameterized(overparameterize(net(), skip=skip))) == chosen

    def test_a_margin_head_is_the_classifier_and_the_embedding_layer_is_wrapped(self):
        model = nn.ModuleDict({"features": nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), "head": SphereFace(3, 7)})
        assert list(require_overparameterized(overparameterize(model))) == ["features.0", "features.1"]
        assert isinstance(model["head"].weight, nn.Parameter)

    @pytest.mark.parametrize("name", [False, True])
    def test_the_classifier_may_be_named_or_given(self, name):
        model = net()
        overparameterize(model, classifier="4" if name else model[4])
        assert list(require_overparameterized(model)) == ["0", "2", "5"]
        assert list(require_overparameterized(overparameterize(net(), classifier=False))) == ["0", "2", "4", "5"]

    def test_only(self):
        assert list(require_overparameterized(overparameterize(net(), only=[nn.Conv2d]))) == ["0", "2"]
        assert list(require_overparameterized(overparameterize(net(), only=["0"]))) == ["0"]

    def test_unsupported_layers_cause_a_warning_unless_named_in_skip(self):
        make = lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2))
        with pytest.warns(UserWarning, match="0.self_attn.in_proj_weight: a MultiheadAttention is not among"):
            overparameterize(make())
        overparameterize(make(), skip=[nn.MultiheadAttention])

    def test_a_layer_on_its_own_is_not_a_classifier(self):
        assert list(require_overparameterized(overparameterize(nn.Linear(3, 2)))) == [""]

    def test_nothing_to_do_is_an_error(self):
        with pytest.raises(ValueError, match="has no Linear or Conv layer to over-parameterize"):
            overparameterize(nn.Sequential(nn.Linear(3, 2)))

    def test_tied_weights_are_refused(self):
        model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.Linear(5, 2))
        model[1].weight = model[0].weight
        with pytest.raises(ValueError, match=r"layer '1' has a tied weight \(0.weight, 1.weight\)"):
            overparameterize(model)
        assert list(
            require_overparameterized(overparameterize(nn.Sequential(nn.Linear(4, 4), model), skip=["1.*"]))
        ) == ["0"]

    def test_a_module_used_twice_is_not_tied(self):
        layer = nn.Linear(4, 4)
        assert list(require_overparameterized(overparameterize(nn.Sequential(layer, layer, nn.Linear(4, 2))))) == ["0"]

    def test_a_second_time_is_refused_and_changes_nothing(self):
        model = overparameterize(net())
        keys = list(model.state_dict())
        with pytest.raises(ValueError, match="over-parameterized already: merge"):
            overparameterize(model)
        assert list(model.state_dict()) == keys

    def test_a_computed_weight_is_refused(self):
        with pytest.raises(ValueError, match="computed from something else"):
            overparameterize(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))


class TestStart:
    def test_unrolled_methods_start_from_the_normal_distribution(self):
        for method in ("gram_schmidt", "householder", "lowdin"):
            raw = overparameterize(nn.Linear(40, 3), method).parametrizations.weight[0].rotation.raw
            assert scipy.stats.kstest(raw.detach().flatten().numpy(), "norm").pvalue > 1e-3

    def test_the_others_start_at_the_identity(self):
        for method in ("cayley", "exponential", "ogd", "regularized", "unconstrained"):
            r = overparameterize(nn.Linear(5, 3), method).parametrizations.weight[0].rotation.matrix()
            assert torch.equal(r, torch.eye(5))

    def test_a_generator_makes_it_repeatable(self):
        draws = []
        for _ in range(2):
            model = overparameterize(net(), "gram_schmidt", generator=torch.Generator().manual_seed(4))
            draws.append([p.detach().clone() for n, p in model.state_dict().items() if "raw" in n or "original" in n])
            torch.manual_seed(17)
        assert all(torch.equal(a, b) for a, b in zip(*draws, strict=True))

    @pytest.mark.parametrize("method", ["cayley", "regularized", "unconstrained", "lowdin"])
    def test_every_method_may_start_from_the_normal_distribution(self, method):
        layer = overparameterize(nn.Linear(40, 3), method, start="normal")
        raw = layer.parametrizations.weight[0].rotation.raw
        assert scipy.stats.kstest(raw.detach().flatten().numpy(), "norm").pvalue > 1e-3

    def test_ogd_starts_from_a_random_orthogonal_matrix(self):
        layer = overparameterize(nn.Linear(40, 3), "ogd", start="normal")
        assert orthogonality_error(layer) < 1e-5
        assert not torch.allclose(layer.parametrizations.weight[0].rotation.matrix(), torch.eye(40), atol=0.5)

    @pytest.mark.untyped
    def test_refuses_another_option(self):
        with pytest.raises(ValueError, match="start must be one of usual, normal, identity, got 'random'"):
            overparameterize(nn.Linear(3, 3), start="random")


class TestNeurons:
    def test_the_current_weight_is_kept(self):
        model, same = net(), net()
        overparameterize(model, "gram_schmidt")
        assert all(torch.equal(v, same.get_submodule(name).weight) for name, v in originals(model).items())

    def test_a_redraw_is_whatever_initialisation_the_caller_names(self):
        v = originals(overparameterize(nn.Sequential(nn.Conv2d(16, 64, 3)), redraw=nn.init.kaiming_normal_))["0"]
        assert abs(v.std() / (2 / 144) ** 0.5 - 1) < 0.05
        assert scipy.stats.kstest((v / v.std()).flatten()[::4].numpy(), "norm").pvalue > 1e-3

    @pytest.mark.parametrize("method", METHODS)
    def test_trained_neurons_are_parameters(self, method):
        layer, x = build("conv2d")
        overparameterize(layer, method, train_neurons=True)
        assert isinstance(layer.parametrizations.weight.original, nn.Parameter)
        layer(x).square().sum().backward()
        assert layer.parametrizations.weight.original.grad.abs().max() > 0

    def test_normalized(self):
        layer, _ = build("conv2d")
        directions = neurons(layer) / neurons(layer).norm(dim=1, keepdim=True)
        overparameterize(layer, normalize=True)
        assert torch.allclose(neurons(layer), directions, atol=1e-6)

    def test_a_custom_refinement_changes_rows_in_place(self):
        seen = []

        def refine(rows):
            seen.append(rows.shape)
            rows.neg_()

        model, same = net(), net()
        overparameterize(model, refine=refine, normalize=True)
        assert seen == [(8, 27), (8, 72), (6, 8)]
        assert torch.allclose(neurons(model[4]), -nn.functional.normalize(same[4].weight), atol=1e-6)
        assert torch.equal(net()[0].weight, same[0].weight)

    def test_a_refinement_reaches_weights_of_any_memory_format(self):
        layer, _ = build("conv2d")
        expected = -layer.weight.detach()
        layer = layer.to(memory_format=torch.channels_last)
        overparameterize(layer, refine=lambda rows: rows.neg_())
        assert torch.equal(layer.weight, expected)

    def test_a_mean_shifts_them_before_they_are_normalised(self):
        layer, _ = build("conv2d")
        expected = nn.functional.normalize(neurons(layer).detach() + 0.25)
        assert torch.allclose(neurons(overparameterize(layer, mean=0.25, normalize=True)), expected, atol=1e-6)

    def test_the_baseline_starts_where_the_arm_does(self):
        torch.manual_seed(1)
        options = {"mean": 0.1, "refine": Refinement(s=1, steps=5), "normalize": True}
        arm, baseline = overparameterize(net(), start="identity", **options), prepare_neurons(net(), **options)
        x = torch.randn(2, 3, 5, 5)
        assert torch.allclose(arm(x), baseline(x), atol=1e-5)

    def test_neurons_of_zeros_are_refused_and_some_zeros_are_warned_of(self):
        model = net()
        nn.init.zeros_(model[2].weight)
        with pytest.raises(ValueError, match="neurons of layer '2' are all zero"):
            overparameterize(model)
        assert list(model.state_dict()) == list(net().state_dict())
        overparameterize(model, train_neurons=True)
        model = net()
        with torch.no_grad():
            model[2].weight[1] = 0
        with pytest.warns(UserWarning, match="1 neurons of layer '2' are zero"):
            overparameterize(model)


class TestBlocks:
    @pytest.mark.parametrize("blocks", [0, -1, lambda name, module: 3])
    def test_must_divide_the_channels(self, blocks):
        with pytest.raises(ValueError, match="blocks must divide the 8 channels that a neuron of layer '0' sees, got"):
            overparameterize(nn.Sequential(nn.Conv2d(8, 4, 3)), blocks=blocks)

    def test_a_layer_that_a_number_does_not_divide_keeps_one_block_and_says_so(self):
        model = overparameterize(net(), blocks=2)
        assert {name: own.blocks for name, own in require_overparameterized(model).items()} == {"0": 1, "2": 2, "4": 2}
        said = get_change_report(model).changed
        assert said["0"].endswith("in one block, because 2 do not divide its 3 channels")
        assert not any("block" in said[name] for name in ("2", "4"))

    def test_each_layer_may_have_its_own(self):
        model = overparameterize(net(), blocks=lambda name, module: 1 if name == "0" else 2)
        assert {name: own.blocks for name, own in require_overparameterized(model).items()} == {"0": 1, "2": 2, "4": 2}

    def test_nothing_is_changed_when_one_layer_does_not_fit(self):
        model = net()
        with pytest.raises(ValueError, match="blocks must divide the 3 channels"):
            overparameterize(model, blocks=lambda name, module: 2)
        assert list(model.state_dict()) == list(net().state_dict())


def test_an_error_halfway_leaves_the_model_as_it_was():
    model = net()

    def refine(rows):
        if rows.shape[1] == 72:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        overparameterize(model, refine=refine)
    assert list(model.state_dict()) == list(net().state_dict())


def drawn(n, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    he = functools.partial(nn.init.kaiming_normal_, generator=generator)
    layer = overparameterize(nn.Linear(dim, n), redraw=he)
    return layer.weight.detach().double()


def rayleigh(rows):
    """Return the p-value of the Rayleigh test for a preferred direction.

    The statistic n·d·‖mean‖² is χ² with d degrees of freedom.
    """
    n, d = rows.shape
    return scipy.stats.chi2.sf(float(n * d * rows.mean(0).square().sum()), d)


def bingham(rows):
    """Return the p-value of the Bingham test for a preferred axis.

    The statistic n·d(d+2)/2·(tr T² − 1/d) is χ² with (d−1)(d+2)/2 degrees of freedom.
    """
    n, d = rows.shape
    t = rows.T @ rows / n
    return scipy.stats.chi2.sf(float(n * d * (d + 2) / 2 * (t.square().sum() - 1 / d)), (d - 1) * (d + 2) // 2)


class TestTheorem6:
    def test_gaussian_neurons_are_uniform_on_the_sphere(self):
        for seed in range(5):
            rows = nn.functional.normalize(drawn(2000, 8, seed))
            assert rayleigh(rows) > 1e-3
            assert bingham(rows) > 1e-3

    def test_the_tests_see_what_is_not_uniform(self):
        shifted = drawn(2000, 8, 0) + 0.1
        stretched = drawn(2000, 8, 0) * torch.tensor([1.3] + [1.0] * 7)
        assert rayleigh(nn.functional.normalize(shifted)) < 1e-6
        assert rayleigh(nn.functional.normalize(stretched)) > 1e-3
        assert bingham(nn.functional.normalize(stretched)) < 1e-6

    def test_a_shifted_mean_raises_the_energy_monotonically(self):
        # the means of table 7.2, for neurons with the same standard deviation (64 channels, 3 × 3)
        energies = []
        for mean in (0.0, 1e-3, 1e-2, 2e-2, 3e-2, 5e-2):
            rows = [nn.functional.normalize(drawn(256, 576, seed) + mean) for seed in range(4)]
            energies.append(sum(float((1 / torch.pdist(r)).sum()) for r in rows))
        assert energies == sorted(energies)
        assert energies[-1] > 1.1 * energies[0]
