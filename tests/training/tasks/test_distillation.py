import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import InMemory, PicturePreprocessing
from hypersphere.evaluation import fit_discriminant
from hypersphere.objectives import Softmax
from hypersphere.recognition import Embedder
from hypersphere.training import (
    Config,
    Distillation,
    Experiment,
    OpenSet,
    Selection,
    build_task,
    replace,
)
from tests.training.contracts import TaskContract

PREPARED = PicturePreprocessing(size=(8, 8), channels=1, mean=0.0, std=1.0)
TEACHER = Config(
    task=call(OpenSet),
    steps=3,
    monitor="rank1",
    threads=1,
    pictures=False,
    size=16,
    samples=Selection(validation=0.4),
    batch_size=32,
    backbone=call(models.sphereface4, width=0.1, feature_dim=8),
)
STUDENT = replace(
    TEACHER, {"backbone.feature_dim": 32, "optimizer.lr": 1e-2}, task=call(Distillation, turns=4), batch_size=8
)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Return the folder of a trained teacher."""
    folder = tmp_path_factory.mktemp("teacher")
    Experiment(TEACHER, folder).run()
    return folder


class TestDistillation(TaskContract):
    @pytest.fixture(autouse=True)
    def _of_a_teacher(self, taught):
        self.config = replace(STUDENT, {"task.teacher": str(taught), "task.shrink": 0.1})


def linear(dims, seed=0):
    network = call(models.mlp, num_classes=None, input_size=8, hidden=(dims,))
    torch.manual_seed(seed)
    return Embedder(network.build(), PREPARED, network)


def drawings(n=24, classes="abc"):
    torch.manual_seed(5)
    return InMemory(torch.rand(n, 1, 8, 8), torch.arange(n) % len(classes), classes)


def student(dims, seed=1):
    torch.manual_seed(seed)
    return call(models.mlp, num_classes=None, input_size=8, hidden=(dims,)).build()


@pytest.mark.parametrize("turns", [1, 2, 4])
@pytest.mark.parametrize("shrink", [None, 0.1])
def test_the_loss_is_that_of_a_loop_over_images_and_turns(turns, shrink):
    teacher, data = linear(6), drawings()
    task = Distillation(student(6 * turns), call(Softmax), data, data, teacher=teacher, turns=turns, shrink=shrink)
    quarter = 4 // turns
    layer = torch.nn.Identity()
    if shrink is not None:
        views = [(teacher(data.data.rot90(k * quarter, (2, 3))), data.labels + 3 * k) for k in range(turns)]
        layer = fit_discriminant(*(torch.cat(part) for part in zip(*views, strict=True)), shrink)

    losses = []
    for image in data.data[:5]:
        for j in range(turns):
            seen = image.rot90(j * quarter, (1, 2))
            wanted = torch.cat(
                [F.normalize(layer(teacher(seen.rot90(k * quarter, (1, 2))[None])), dim=1) for k in range(turns)], 1
            )
            losses.append(1 - F.cosine_similarity(task.embed_batch(seen[None]).double(), wanted.double()))
    found = task.objectives(data.data[:5], data.labels[:5])
    assert list(found) == ["teacher"]
    torch.testing.assert_close(found["teacher"].double(), torch.cat(losses).mean(), rtol=1e-5, atol=1e-6)


def test_a_student_that_says_the_same_has_no_loss_and_its_cosine_is_the_mean_of_the_turns():
    """The teacher sees one corner pixel and its complement. The student sees all four corners."""

    class Corners(torch.nn.Module):
        def __init__(self, turns):
            super().__init__()
            self.turns = turns

        def forward(self, x):
            seen = [x.rot90(k, (2, 3))[:, 0, 0, 0] for k in range(self.turns)]
            return torch.cat([F.normalize(torch.stack([pixel, 1 - pixel], 1), dim=1) for pixel in seen], 1)

    data, teacher = drawings(), Embedder(Corners(1), PREPARED)
    task = Distillation(Corners(4), call(Softmax), data, data, teacher=teacher, turns=4)
    assert task.objectives(*data.batch(torch.arange(6)))["teacher"].item() == pytest.approx(0, abs=1e-6)
    a, b = data.data[:1], data.data[1:2]
    turned = [F.cosine_similarity(teacher(a.rot90(k, (2, 3))), teacher(b.rot90(k, (2, 3)))) for k in range(4)]
    found = F.cosine_similarity(task.embed_batch(a), task.embed_batch(b))
    torch.testing.assert_close(found, torch.stack(turned).mean(0))


def test_the_teacher_and_the_head_stay_as_they_are(taught, tmp_path):
    config = replace(STUDENT, {"task.teacher": str(taught)}, weights=str(taught), channels_last=True, precision="bf16")
    experiment = Experiment(config, tmp_path)
    before = {k: v.clone() for k, v in experiment.task._teacher[0].state_dict().items()}
    head = experiment.task.model.classifier.weight.clone()
    body = next(iter(experiment.task.model.parameters())).detach().clone()
    assert experiment.task.started["loaded"]
    metrics = experiment.run()
    assert metrics["rank1"] > 0
    assert all(torch.equal(value, before[key]) for key, value in experiment.task._teacher[0].state_dict().items())
    assert torch.equal(experiment.task.model.classifier.weight, head)
    assert not torch.equal(next(iter(experiment.task.model.parameters())).detach(), body)
    assert (tmp_path / "embedder.safetensors").exists()
    assert not any("teacher" in name for name in experiment.task.state_dict())


def test_a_teacher_that_appends_the_mirror_image_is_taken_as_it_is():
    data, teacher = drawings(), linear(6)
    teacher.preprocessing = PicturePreprocessing(size=(8, 8), channels=1, mean=0.0, std=1.0, mirror=True)
    task = Distillation(student(12), call(Softmax), data, data, teacher=teacher)
    wanted = teacher(data.data[:5])
    assert wanted.shape == (5, 12)
    expected = 1 - F.cosine_similarity(task.embed_batch(data.data[:5]), wanted).mean()
    torch.testing.assert_close(task.objectives(data.data[:5], data.labels[:5])["teacher"], expected)


def test_a_checkpoint_is_of_its_teacher(tmp_path):
    first, second = tmp_path / "teacher", tmp_path / "student"
    first.mkdir()
    config = replace(TEACHER, steps=1, task=call(Distillation, teacher=str(first)))
    for seed in (0, 1):
        Experiment(replace(TEACHER, steps=1, seed=seed), tmp_path / f"{seed}").run()
    file = first / "embedder.safetensors"
    file.write_bytes((tmp_path / "0" / "embedder.safetensors").read_bytes())
    Experiment(config, second).run()
    Experiment(config, second).run()
    file.write_bytes((tmp_path / "1" / "embedder.safetensors").read_bytes())
    with pytest.raises(ValueError, match="holds a checkpoint of other training data"):
        Experiment(config, second).run()


def test_statistics_may_differ_by_rounding():
    data = drawings()
    prepare = PicturePreprocessing(size=(8, 8), channels=1, mean=1e-9, std=1.0 + 1e-7)
    teacher = linear(6)
    teacher.preprocessing = PicturePreprocessing(size=(8, 8), channels=1, mean=1e-9, std=1.0)
    assert Distillation(student(6), call(Softmax), data, data, teacher=teacher, preprocessing=prepare).turns == 1


@pytest.mark.parametrize(
    ("options", "dims", "message"),
    [
        ({"turns": 3}, 6, r"turns must be 1, 2, or, for square images, 4, got 3 for images of \(8, 8\)"),
        ({"turns": 4}, 6, "the features must have 4 × 6 dimensions, those of the teacher in each turn, got 6"),
        (
            {"preprocessing": PicturePreprocessing(size=(8, 8), channels=1, mean=0.5, std=1.0)},
            6,
            "the preprocessing must equal the teacher's, got mean 0.5 instead of 0.0",
        ),
        ({"shrink": 0.0}, 6, "shrink must be > 0, got 0.0"),
    ],
)
def test_refuses(options, dims, message):
    data = drawings()
    with pytest.raises(ValueError, match=message):
        Distillation(student(dims), call(Softmax), data, data, teacher=linear(6), **options)


def test_refuses_a_teacher_that_is_not_there_and_samples_that_are_no_images(tmp_path):
    data = drawings()
    with pytest.raises(ValueError, match=r"there is no file .*embedder\.safetensors"):
        Distillation(student(6), call(Softmax), data, data, teacher=str(tmp_path))
    rows = InMemory(torch.rand(6, 4), torch.arange(6) % 2, "ab")
    with pytest.raises(
        ValueError, match="a teacher needs images with the same preprocessing as its own; here inputs of shape"
    ):
        Distillation(torch.nn.Linear(4, 6), call(Softmax), rows, rows, teacher=linear(6))
    with pytest.raises(ValueError, match="the preprocessing must equal the teacher's, got size"):
        build_task(replace(STUDENT, {"task.teacher": str(_saved(linear(8), tmp_path))}, size=32))


def _saved(embedder, folder):
    embedder.save(folder / "embedder.safetensors")
    return folder
