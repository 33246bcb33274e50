import copy
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hypersphere.config import call
from hypersphere.objectives import ArcFace
from hypersphere.orthogonal import OGD, overparameterize
from hypersphere.training import ConstantRate, CosineRate, PlateauRate, Schedule, Settings, StepRate
from hypersphere.training.optimizers import (
    build_optimizers,
    clip_gradients,
    compute_rate_factors,
    get_learning_rate,
    is_match,
    set_rates,
)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_decays_matrices_only(kind: type) -> None:
    (optimizer,) = build_optimizers(Settings(optimizer=call(kind, weight_decay=0.3)), network())
    assert type(optimizer) is kind
    decays = {p.ndim: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {2: 0.3, 1: 0.0}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6


def test_rotations_get_their_own_optimizer() -> None:
    model = overparameterize(network(), "ogd")
    plain, rotations = build_optimizers(Settings(rotations=call(OGD, lr=0.2, momentum=0.5)), model)
    assert isinstance(rotations, OGD)
    assert [tuple(p.shape) for p in rotations.param_groups[0]["params"]] == [(4, 4)]
    assert rotations.param_groups[0]["lr"] == 0.2
    mine, theirs = ({id(p) for group in o.param_groups for p in group["params"]} for o in (plain, rotations))
    assert not mine & theirs
    assert mine | theirs == {id(p) for p in model.parameters() if p.requires_grad}


def test_the_schedule_moves_every_optimizer() -> None:
    model = overparameterize(network(), "ogd")
    optimizers = build_optimizers(
        Settings(optimizer=call(torch.optim.SGD, lr=1.0), rotations=call(OGD, lr=0.01)), model
    )
    schedule = StepRate(milestones=(1,))
    set_rates(optimizers, schedule, 0, 4)
    assert get_learning_rate(optimizers) == {"lr": 1.0}
    set_rates(optimizers, schedule, 1, 4)
    assert get_learning_rate(optimizers) == {"lr": 0.1}
    assert optimizers[1].param_groups[0]["lr"] == pytest.approx(0.001)


def test_frozen_parameters_do_not_learn() -> None:
    model = network()
    (optimizer,) = build_optimizers(Settings(freeze=("0", "*.bias")), model)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning == {"1.weight", "2.weight"}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 2
    with pytest.raises(ValueError, match=r"freeze: no parameter is called 'encoder'; there are 0.weight, "):
        build_optimizers(Settings(freeze=("encoder",)), model)
    with pytest.raises(ValueError, match="there is nothing to train: every parameter is frozen"):
        build_optimizers(Settings(freeze=("*",)), model)


def test_rates_by_layer() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2)))
            self.classifier = nn.Linear(2, 2)

    model = Deep()
    factors = compute_rate_factors(Settings(layer_decay=0.5, rates={"classifier": 3.0}), model)
    assert factors == {
        **{"body.0.0.weight": 0.25, "body.0.0.bias": 0.25, "body.1.0.weight": 0.5, "body.1.0.bias": 0.5},
        **{"classifier.weight": 3.0, "classifier.bias": 3.0},
    }
    settings = Settings(optimizer=call(torch.optim.SGD, lr=0.1), layer_decay=0.5, rates={"classifier": 3.0})
    (optimizer,) = build_optimizers(settings, model)
    set_rates([optimizer], ConstantRate(warmup=2), 0, 10)
    found = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert found[id(parameter)] == pytest.approx(0.1 * 0.5 * factors[name]), name
    with pytest.raises(ValueError, match="rates: no parameter is called 'head'"):
        compute_rate_factors(Settings(rates={"head": 1.0}), model)


def test_an_optimizer_of_ones_own() -> None:
    model = network()
    mine = torch.optim.RMSprop(model.parameters())
    assert build_optimizers(Settings(optimizer=mine), model) == [mine]
    (made,) = build_optimizers(Settings(optimizer=lambda params: torch.optim.Adagrad(params, lr=0.3)), model)
    assert isinstance(made, torch.optim.Adagrad)


def test_patterns_mean_parameters_and_modules() -> None:
    assert is_match("model.body.conv1.weight", "body.conv1")
    assert is_match("model.body.conv1.weight", "model.body")
    assert is_match("fc.weight", "fc.weight")
    assert not is_match("fc.weight", "f")


pytestmark = pytest.mark.untyped


def net_of(**options):
    torch.manual_seed(2)
    return nn.ModuleDict({"body": nn.Linear(6, 5), "head": ArcFace(5, 11, bias=True, **options)}).double()


def filled(net):
    """Compute the gradients of the whole batch, with its samples divided over the processes."""
    torch.manual_seed(4)
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randint(0, 11, (8,))
    group = None if net["head"].shards is None else net["head"].shards.group
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    net["head"](net["body"](x.tensor_split(size)[rank]), y.tensor_split(size)[rank]).backward()
    for parameter in net["body"].parameters():
        if group is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= size
    return net


def dense(net):
    found = {}
    for name, parameter in net.named_parameters():
        gradient = parameter.grad.to_dense() if parameter.grad.layout == torch.sparse_coo else parameter.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        elif hasattr(parameter, "device_mesh"):
            dist.all_reduce(gradient, group=parameter.device_mesh.get_group())
        found[name] = gradient.reshape(-1)
    return found


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_it_is_torchs_where_that_can_be_used(limit):
    net = filled(net_of())
    other = copy.deepcopy(net)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        theirs.grad = ours.grad.clone()
    total = clip_gradients(net.parameters(), limit)
    assert torch.allclose(total, nn.utils.clip_grad_norm_(other.parameters(), limit), rtol=1e-12)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12)


def clipped(group, net, limit):
    net, calls, real = copy.deepcopy(net), [], dist.all_reduce
    net["head"].shard(group)
    filled(net)
    dist.all_reduce = lambda tensor, *args, **options: calls.append(tensor.numel()) or real(tensor, *args, **options)
    try:
        total = clip_gradients(net.parameters(), limit)
    finally:
        dist.all_reduce = real
    return total, calls, dense(net)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"sub_centers": 2}, {"sample": 0.5}], ids=str)
def test_shards_are_clipped_as_the_whole(options, processes, pool):
    net = net_of(**options)
    whole = filled(copy.deepcopy(net))
    total = clip_gradients(whole.parameters(), 0.01)
    assert total > 0.01
    for found, calls, gradients in pool.run(clipped, net, 0.01, processes=processes):
        assert torch.allclose(found, total, rtol=1e-12)
        assert calls == [1]  # only one number is communicated
        for name, expected in dense(whole).items():
            assert torch.allclose(gradients[name], expected, rtol=1e-12, atol=1e-14), name


def test_without_gradients_nothing_happens():
    assert clip_gradients([nn.Parameter(torch.ones(3))], 1.0) == 0


def test_half_precision_does_not_overflow():
    weight = nn.Parameter(torch.zeros(1000, dtype=torch.float16))
    weight.grad = torch.full_like(weight, 1000.0)
    assert clip_gradients([weight], 1.0).item() == pytest.approx(1000 * 1000**0.5, rel=1e-3)
    assert weight.grad.float().norm().item() == pytest.approx(1, rel=1e-2)


class ScheduleContract:
    """The contract of all schedules."""

    schedule: Schedule

    def test_warms_up_linearly_then_starts_at_one(self):
        kind = type(self.schedule)
        assert [kind(warmup=4).factor(step, 100) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]

    def test_stays_in_reach(self):
        assert all(0 <= self.schedule.factor(step, 50) <= 1 for step in range(60))

    def test_goes_on_from_its_state(self):
        other = type(self.schedule)()
        for score in (1.0, 0.5, 0.5, 0.5):
            self.schedule.observe(score)
        other.load_state_dict(self.schedule.state_dict())
        assert other.state_dict() == self.schedule.state_dict()

    def test_refuses_a_wrong_warmup(self):
        with pytest.raises(ValueError, match="warmup must be an integer ≥ 0, got -1"):
            type(self.schedule)(warmup=-1)


class TestConstantRate(ScheduleContract):
    schedule = ConstantRate()

    def test_is_constant(self):
        assert ConstantRate().factor(50, 100) == 1.0


class TestStepRate(ScheduleContract):
    schedule = StepRate(milestones=(10, 20))

    def test_falls_at_milestones(self):
        found = [StepRate(milestones=(2, 4), gamma=0.5).factor(step, 9) for step in range(6)]
        assert found == [1, 1, 0.5, 0.5, 0.25, 0.25]

    @pytest.mark.parametrize("options", [{"gamma": 0.0}, {"gamma": math.nan}, {"milestones": (-1,)}])
    def test_refuses(self, options):
        with pytest.raises(ValueError, match=r"gamma must be a number > 0|milestones must be steps ≥ 0"):
            StepRate(**options)


class TestCosineRate(ScheduleContract):
    schedule = CosineRate()

    @pytest.mark.parametrize("step", [0, 3, 9, 10, 50, 99])
    def test_by_hand(self, step):
        expected = (step + 1) / 10 if step < 10 else math.cos(math.pi * (step - 10) / 180) ** 2
        assert CosineRate(warmup=10).factor(step, 100) == pytest.approx(expected)

    def test_ends_at_its_final_factor(self):
        assert CosineRate(final=0.1).factor(100, 100) == pytest.approx(0.1)
        with pytest.raises(ValueError, match=r"final must lie in \[0, 1\], got 2"):
            CosineRate(final=2)


class TestPlateauRate(ScheduleContract):
    schedule = PlateauRate(patience=2)

    def test_falls_after_so_many_evaluations_without_a_new_best(self):
        rate, found = PlateauRate(gamma=0.5, patience=2), []
        for score in (1.0, 2.0, 2.0, 1.5, 3.0, 3.0, 3.0):
            rate.observe(score)
            found.append(rate.factor(100, 1000))
        assert found == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]

    @pytest.mark.parametrize(
        ("options", "message"), [({"gamma": 1.0}, r"gamma must lie in \(0, 1\)"), ({"patience": 0}, "patience must be")]
    )
    def test_refuses(self, options, message):
        with pytest.raises(ValueError, match=message):
            PlateauRate(**options)
