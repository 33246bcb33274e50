import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import call
from hypersphere.evaluation import fgsm
from hypersphere.objectives import AMSoftmax
from hypersphere.training import Adversarial, Classification, Config, Experiment, build_task, replace
from hypersphere.training.tasks.adversarial_task import Body
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(Adversarial, iterations=2, attacked_images=40),
    batch_size=32,
    normalize="unit",
    backbone=call(models.cnn3, table="E.3", width=0.1, feature_dim=8, norm="none"),
)


class TestAdversarial(TaskContract):
    config = CONFIG


def objective(task, images, labels):
    return task.objectives(images, labels)["objective"]


def test_the_loss_is_half_that_of_the_images_and_half_that_of_the_attacked():
    task = build_task(CONFIG).train()
    images, labels = next(iter(task.loader))
    attacked = fgsm(task.model, images, labels)
    expected = 0.5 * F.cross_entropy(task.model(images), labels) + 0.5 * F.cross_entropy(task.model(attacked), labels)
    torch.testing.assert_close(objective(task, images, labels), expected)
    natural = build_task(replace(CONFIG, {"task.attacked": 0.0})).train()
    natural.load_state_dict(task.state_dict())
    torch.testing.assert_close(objective(natural, images, labels), F.cross_entropy(task.model(images), labels))


def test_a_margin_is_attacked_as_well():
    task = build_task(replace(CONFIG, head=call(AMSoftmax))).train()
    images, labels = next(iter(task.loader))
    head, features = task.model.classifier, task.model.features
    attacked = fgsm(Body(task.model), images, labels, loss=head)
    expected = 0.5 * head(features(images), labels) + 0.5 * head(features(attacked), labels)
    torch.testing.assert_close(objective(task, images, labels), expected)


def test_attacks_do_harm():
    attack = call(Adversarial, epsilon=0.5, step=0.2, iterations=3, attacked_images=40)
    task = build_task(replace(CONFIG, task=attack, backbone=call(models.mlp, width=0.2)))
    optimizer = torch.optim.Adam(task.parameters(), 0.01)
    for images, labels in task.loader:
        optimizer.zero_grad()
        F.cross_entropy(task.model(images), labels).backward()
        optimizer.step()
    with torch.no_grad():
        found = task.eval().evaluate()
    assert found["unattacked_accuracy"] > 70
    assert max(found["bim_accuracy"], found["pgd_accuracy"], found["fgsm_accuracy"]) < found["unattacked_accuracy"] - 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize": "pixel_mean"}, "preprocessing must have a mean and deviation per channel"),
        ({"task.epsilon": 0.0}, r"epsilon and step must lie in \(0, 1\], attacked in \[0, 1\], got 0.0"),
        ({"task.iterations": 0}, "iterations and attacked_images must be ≥ 1, got 0"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, **changes))


def test_the_normalization_is_part_of_the_attacked_network(tmp_path):
    config = replace(CONFIG, {"normalize": "faces", "task.epsilon": 0.1})
    task = build_task(config).train()
    images, labels = next(iter(task.loader))
    assert images.min() >= 0
    assert images.max() <= 1

    def centered(x):
        return (255 * x - 127.5) / 128

    pixels = images.double().requires_grad_()
    model = task.model.double()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(centered(pixels)), labels), pixels)
    expected = (images.double() + 0.1 * gradient.sign()).clamp(0, 1)
    attacked = fgsm(task.build_pixel_network(), images.double(), labels, 0.1)
    assert ((attacked - expected).abs() < 1e-9).double().mean() > 0.999  # a gradient that rounds to 0 has no sign
    loss = 0.5 * F.cross_entropy(model(centered(images.double())), labels)
    loss = loss + 0.5 * F.cross_entropy(model(centered(attacked)), labels)
    torch.testing.assert_close(objective(task, images.double(), labels), loss, rtol=1e-5, atol=1e-6)


def test_an_embedder_normalizes_as_the_attacked_network(tmp_path):
    task = Experiment(replace(CONFIG, normalize="faces", steps=2, evaluate_every=2), tmp_path).task
    raw = task.measured_samples.batch(torch.arange(3))[0]
    with torch.no_grad():
        expected = task.model.eval().features((raw.float() - 127.5) / 128)
        torch.testing.assert_close(task.eval().embed_batch(raw), expected)


def test_black_box_attacks_use_the_gradient_of_another_run(tmp_path):
    natural = replace(
        CONFIG, {"normalize": "faces", "task.attacked": 0.0, "task.epsilon": 0.2}, steps=2, evaluate_every=2
    )
    other = Experiment(replace(natural, seed=1), tmp_path / "other")
    other.run()
    task = build_task(replace(natural, {"task.surrogate": str(tmp_path / "other")})).eval()
    found = task.evaluate()
    raw, labels = task.measured_samples.batch(torch.arange(40))
    images = raw.float() / 255
    with torch.no_grad():
        own = lambda x: task.model((255 * x - 127.5) / 128).argmax(1)
        changed = fgsm(other.task.build_pixel_network().eval(), images, labels, 0.2)
        assert found["black_box_fgsm_accuracy"] == pytest.approx(100 * (own(changed) == labels).double().mean().item())
    assert 0 <= found["black_box_bim_accuracy"] <= 100
    assert not any("surrogate" in name for name in task.state_dict())


def test_refuses_another_kind_of_surrogate(tmp_path):
    Experiment(replace(CONFIG, task=call(Classification), steps=1, evaluate_every=1), tmp_path).run()
    with pytest.raises(
        ValueError, match="surrogate must be the folder of a run of Adversarial, got one of Classification"
    ):
        build_task(replace(CONFIG, {"task.surrogate": str(tmp_path)}))
