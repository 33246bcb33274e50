import pytest
import torch

from hypersphere import models
from hypersphere.config import as_call, assign, call
from hypersphere.data import InMemory
from hypersphere.evaluation import energy_distance
from hypersphere.geometry import PowerSpherical, normalize, uniform
from hypersphere.models import SphereVelocity
from hypersphere.training import Config, SphereFlow, build_task
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(SphereFlow, samples=20, integration_steps=2),
    monitor="-matching_loss",
    batch_size=8,
    normalize="unit",
    backbone=call(SphereVelocity, hidden=8, depth=1),
)


class TestSphereFlow(TaskContract):
    config = CONFIG


def test_typed_on_the_command_line():
    typed = ("task=SphereFlow", "backbone=SphereVelocity", "backbone.hidden=16", "normalize=unit")
    task = build_task(assign(as_call(Config()), typed).build())
    assert task.model.in_features == 64
    assert task.measured.shape == (355, 64)


def mixture(count, seed):
    """Return points on two caps of the sphere as a dataset."""
    means = torch.tensor([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    source = torch.Generator().manual_seed(seed)
    owner = torch.arange(count) % 2
    points = PowerSpherical(means[owner], torch.full((count,), 30.0)).sample(generator=source)
    return InMemory(points, owner, ("north", "south"))


def test_a_learned_flow_brings_samples_nearer_to_held_out_data():
    torch.manual_seed(0)
    task = SphereFlow(SphereVelocity(3, hidden=32, depth=2), mixture(1000, 0), mixture(300, 1), integration_steps=10)
    before = task.evaluate()
    optimizer, step = torch.optim.Adam(task.parameters(), lr=5e-3), 0
    while step < 100:
        for batch in task.loader:
            optimizer.zero_grad()
            task(step, *batch)[0].backward()
            optimizer.step()
            step += 1
    after = task.evaluate()
    points = task.generate(300)
    assert torch.allclose(points.norm(dim=1), torch.ones(300), atol=1e-5)
    floor = energy_distance(mixture(300, 2).data, task.measured)
    assert after["matching_loss"] < 0.8 * before["matching_loss"]
    assert after["energy_distance"] < 0.25 * before["energy_distance"]
    assert after["energy_distance"] > floor / 5  # not far below the distance between two samples of the data


def test_the_loss_is_the_squared_error_of_the_velocity():
    task = build_task(CONFIG).eval()
    start, end = uniform(5, 64), normalize(torch.rand(5, 64))
    t = torch.rand(5)
    x, velocity = models.geodesic_velocity(start, end, t)
    expected = sum((task.model(x, t) - velocity)[i].square().sum().item() for i in range(5)) / 5
    assert task.compute_matching_loss(start, end, t).item() == pytest.approx(expected, rel=1e-5)


def test_pictures_of_points_and_images(tmp_path):
    task = SphereFlow(SphereVelocity(3, hidden=8), mixture(20, 0), integration_steps=2)
    task.pictures(tmp_path)
    assert (tmp_path / "samples.png").stat().st_size > 1000
    assert task.summary() == {"training samples": 20, "measured samples": 20, "dimension": 3}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (torch.zeros(4, 3), {}, "measured samples must have a direction, got one of length 0"),
        (torch.ones(4, 3), {"integration_steps": 0}, "samples, integration_steps and batch_size must be integers ≥ 1"),
    ],
)
def test_refuses(data, options, message):
    samples = InMemory(data, torch.zeros(4, dtype=torch.long), ("point",))
    with pytest.raises(ValueError, match=message):
        SphereFlow(SphereVelocity(3, hidden=4), samples, **options)
