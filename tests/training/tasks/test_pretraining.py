import copy
import functools

import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import CropFlip, InMemory
from hypersphere.energy import Heat, hyperspherical_energy
from hypersphere.objectives import KoLeo
from hypersphere.training import Config, Pretraining
from hypersphere.training.tasks.pretraining import TwoViews
from tests.training.contracts import TaskContract


class TestPretraining(TaskContract):
    config = Config(
        task=call(Pretraining),
        monitor="-objective",
        batch_size=16,
        normalize="unit",
        augment=(call(CropFlip, pad=1),),
        backbone=call(models.mlp, width=0.05),
    )


class TestWithATeacher(TestPretraining):
    config = TestPretraining.config.replace({"task.teacher": 0.9})


def pictures(n=24, seed=0):
    data = torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    return InMemory(data, torch.zeros(n, dtype=torch.long), ("all",))


def make(**options):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 5))
    return Pretraining(network, pictures(), augment=CropFlip(pad=1), batch_size=8, **options)


def test_both_terms_are_those_of_wang_and_isola():
    task = make(weight=0.5)
    batch, _ = next(iter(task.loader))
    assert batch.shape == (8, 2, 1, 6, 6)
    assert not torch.equal(batch[:, 0], batch[:, 1])
    x, y = (F.normalize(task.model(view), dim=1) for view in batch.unbind(1))
    uniformity = sum((torch.pdist(z).square() * -2).exp().mean().log() for z in (x, y)) / 2
    loss, parts = task(0, batch, torch.zeros(8))
    assert parts["alignment"].item() == pytest.approx((x - y).square().sum(1).mean().item(), rel=1e-5)
    assert parts["uniformity"].item() == pytest.approx(0.5 * uniformity.item(), rel=1e-5)
    assert loss.item() == pytest.approx(sum(parts.values()).item(), rel=1e-6)


def test_a_teacher_is_the_average_and_the_target():
    task = make(teacher=0.75)
    before = copy.deepcopy(task.teacher)
    with torch.no_grad():
        task.model[1].weight.add_(1.0)
    task.advance(1)
    assert torch.allclose(task.teacher[1].weight, before[1].weight + 0.25)
    first, second = next(iter(task.loader))[0].unbind(1)
    x, y = (F.normalize(task.model(view), dim=1) for view in (first, second))
    with torch.no_grad():
        for_x, for_y = (F.normalize(task.teacher(view), dim=1) for view in (second, first))
    expected = ((x - for_x).square().sum(1) + (y - for_y).square().sum(1)).mean() / 2
    assert task.compute_losses(first, second)["alignment"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert all(not p.requires_grad for p in task.teacher.parameters())
    assert "teacher.1.weight" in task.state_dict()  # a resumed run needs it


@pytest.mark.parametrize("uniformity", [KoLeo(), functools.partial(hyperspherical_energy, kernel=Heat())])
def test_any_uniformity(uniformity):
    class Wrapped(torch.nn.Module):
        def forward(self, x):
            return uniformity(x)

    task = make(uniformity=Wrapped())
    loss, _ = task(0, *next(iter(task.loader)))
    loss.backward()
    assert torch.isfinite(task.model[1].weight.grad).all()


def test_measures_are_of_fixed_views_and_see_a_collapse():
    task = make()
    assert task.evaluate() == task.evaluate()
    rank = task.evaluate()["effective_rank"]
    with torch.no_grad():
        task.model[1].weight.zero_()
        task.model[1].bias.fill_(1.0)
    assert task.evaluate()["effective_rank"] == pytest.approx(1.0)
    assert rank > 1.1
    assert task.evaluate()["alignment"] == pytest.approx(0.0, abs=1e-6)


def test_both_views_draw_their_own_numbers():
    views = TwoViews(CropFlip(pad=2))
    batch, shape = torch.rand(3, 1, 6, 6), torch.Size([1, 6, 6])
    u = torch.rand(3, views.draws(shape), dtype=torch.float64)
    half = CropFlip(pad=2).draws(shape)
    assert torch.equal(views(batch, u)[:, 0], CropFlip(pad=2)(batch, u[:, :half]))
    assert torch.equal(views(batch, u)[:, 1], CropFlip(pad=2)(batch, u[:, half:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight must be"),
        ({"teacher": 1.0}, "teacher must be"),
        ({"batch_size": 1}, "batch_size must be"),
        ({"train": pictures(1)}, "at least two samples"),
    ],
)
def test_refuses(options, message):
    arguments = {"train": pictures(), **options}
    with pytest.raises(ValueError, match=message):
        Pretraining(torch.nn.Flatten(), **arguments)
