import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import as_call, assign, call
from hypersphere.data import Digits
from hypersphere.energy import MHE
from hypersphere.operators import OperatorLayer
from hypersphere.training import GAN, Config, build_task, replace
from hypersphere.training.tasks.gan_task import fit_gaussian_classes
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(GAN, samples=60, components=10),
    monitor="-frechet",
    batch_size=16,
    normalize="unit",
    backbone=call(models.Players, width=0.05, latent_dim=8),
    energy=call(MHE, output=0.0),
)


class TestGAN(TaskContract):
    config = CONFIG


class TestGANWithSpectralNorm(TaskContract):
    config = replace(CONFIG, {"backbone.spectral_norm": True})


class TestWassersteinWithGradientPenalty(TaskContract):
    config = replace(CONFIG, {"task.objective": "wasserstein", "task.gradient_penalty": 10.0, "energy": None})


VARIANTS = {  # the rows of table D.4 and SphereConv
    "weight clipping": ["task.clip=0.01"],
    "GAN-GP": ["task.gradient_penalty=10"],
    "WGAN-GP": ["task.gradient_penalty=10", "task.objective=wasserstein"],
    "batch normalization": ["backbone.norm=batch"],
    "layer normalization": ["backbone.norm=layer"],
    "weight normalization": ["backbone.weight_norm=true"],
    "orthonormal": ["energy=Orthonormality"],
    "SN": ["backbone.spectral_norm=true"],
    "MHE": ["energy=MHE", "energy.half_space=true"],
    "MHE and SN": ["energy=MHE", "backbone.spectral_norm=true"],
    "SphereConv": ["backbone.operator=Operator"],
    "TanhConv": ["backbone.operator=Operator", "backbone.operator.magnitude=Tanh"],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_table_d_4_by_keys(variant):
    task = build_task(assign(as_call(replace(CONFIG, energy=None)), VARIANTS[variant]).build()).train()
    torch.manual_seed(0)
    loss, parts = task(0, *next(iter(task.loader)))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None for p in task.model.discriminator.parameters() if p.requires_grad)
    expected = {"orthonormal": "hidden", "MHE": "hidden", "MHE and SN": "hidden", "GAN-GP": "gradient_penalty"}
    assert expected.get(variant, "discriminator") in parts
    kinds = {type(module).__name__ for module in task.model.discriminator.modules()}
    layers = {"batch normalization": "BatchNorm2d", "layer normalization": "GroupNorm", "SphereConv": "Conv2d"}
    assert layers.get(variant, "ConvNet") in kinds
    operators = [m for m in task.model.discriminator.modules() if isinstance(m, OperatorLayer)]
    assert len(operators) == (7 if variant in ("SphereConv", "TanhConv") else 0)


def test_the_gradient_penalty_by_finite_differences():
    task = build_task(replace(CONFIG, {"task.gradient_penalty": 1.0, "energy": None})).double().eval()
    real, made = (torch.rand(3, 1, 8, 8, dtype=torch.float64) for _ in range(2))
    torch.manual_seed(5)
    penalty = task.penalize_gradients(real, made)
    torch.manual_seed(5)
    share = torch.rand(3, 1, 1, 1, dtype=torch.float64)
    points, expected = real + share * (made - real), 0.0
    with torch.no_grad():
        for point in points:
            steps = 1e-5 * torch.eye(64, dtype=torch.float64).view(64, 1, 8, 8)
            slope = (task.model.discriminator(point + steps) - task.model.discriminator(point - steps)) / 2e-5
            expected += (slope.norm().item() - 1) ** 2 / 3
    assert penalty.item() == pytest.approx(expected, rel=1e-6)


def test_the_wasserstein_objective_and_clipping():
    task = build_task(replace(CONFIG, {"task.objective": "wasserstein", "task.clip": 0.02, "energy": None})).eval()
    real, made = torch.rand(4, 1, 8, 8), torch.rand(4, 1, 8, 8)
    scores = task.model.discriminator(torch.cat([real, made]))[:, 0].tolist()
    difference = (sum(scores[4:]) - sum(scores[:4])) / 4
    assert task.compute_discriminator_loss(real, made).item() == pytest.approx(difference, abs=1e-6)
    assert task.compute_generator_loss(task.model.discriminator(made)).item() == pytest.approx(
        -sum(scores[4:]) / 4, abs=1e-6
    )
    task.advance(1)
    largest = max(p.abs().max().item() for p in task.model.discriminator.parameters())
    assert largest == pytest.approx(0.02)
    assert max(p.abs().max().item() for p in task.model.generator.parameters()) > 0.1


def test_the_inception_score_of_a_classifier(monkeypatch):
    def classify(images):
        assert 0 <= images.min() <= images.max() <= 1
        return torch.nn.functional.one_hot(torch.arange(len(images)) % 4, 5).float()

    task = build_task(replace(CONFIG, {"task.classifier": classify})).eval()
    with torch.no_grad():
        assert task.evaluate()["inception_score"] == pytest.approx(4, rel=0.1)  # 60 images in 10 splits of 6
        fitted = build_task(replace(CONFIG, {"task.classifier": "discriminant", "task.samples": 300})).eval()
        probabilities = fitted.classifier((fitted.scale_images(fitted.measured) + 1) / 2)
        right = probabilities.argmax(1) == Digits(train=False).labels[:300]
        assert right.double().mean() > 0.85  # ten components
        noise = fitted.evaluate()["inception_score"]
        monkeypatch.setattr(fitted, "generate", lambda count: fitted.scale_images(fitted.measured[:count]))
        assert fitted.evaluate()["inception_score"] > noise + 1


def test_the_discriminant_is_that_of_scikit_learn():
    lda = pytest.importorskip("sklearn.discriminant_analysis")
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    images = (torch.rand(90, 1, 2, 2, generator=source) + 0.2 * labels[:, None, None, None]) / 2
    classify = fit_gaussian_classes(lambda x: x.flatten(1), images, labels)
    reference = lda.LinearDiscriminantAnalysis(solver="lsqr").fit(images.flatten(1).numpy(), labels.numpy())
    expected = torch.from_numpy(reference.predict_proba(images.flatten(1).numpy()))
    torch.testing.assert_close(classify(images), expected.double(), atol=0.02, rtol=0)
    with pytest.raises(ValueError, match="training images of two or more classes"):
        fit_gaussian_classes(lambda x: x.flatten(1), images, 0 * labels)


def gradients(task, step):
    task.zero_grad(set_to_none=True)
    task(step, *next(iter(task.loader)))[0].backward()
    return {name for name, parameter in task.model.named_parameters() if parameter.grad is not None}


def test_players_take_turns():
    task = build_task(CONFIG).train()
    names = {name for name, _ in task.model.named_parameters()}
    assert gradients(task, 0) == {name for name in names if name.startswith("discriminator")}
    assert gradients(task, 1) == {name for name in names if name.startswith("generator")}
    patient = build_task(replace(CONFIG, {"task.turns": 2})).train()
    turns = ["generator.dense.weight" in gradients(patient, step) for step in range(6)]
    assert turns == [False, False, True, False, False, True]


def test_the_losses_are_those_of_the_dissertation():
    task = build_task(replace(CONFIG, energy=None)).train()
    images = next(iter(task.loader))[0]
    torch.manual_seed(3)
    loss = task(0, images, torch.zeros(16).long())[0]
    torch.manual_seed(3)
    made = task.model.generator(torch.randn(16, 8)).detach()
    real, fake = task.model.discriminator(2 * images - 1).sigmoid(), task.model.discriminator(made).sigmoid()
    torch.testing.assert_close(loss, -(real.log().mean() + (1 - fake).log().mean()))
    torch.manual_seed(3)
    loss = task(1, images, torch.zeros(16).long())[0]
    torch.testing.assert_close(loss, F.binary_cross_entropy(fake, torch.ones_like(fake)))


def test_the_energy_is_the_discriminators():
    plain, task = build_task(replace(CONFIG, energy=None)).train(), build_task(CONFIG).train()
    plain.load_state_dict(task.state_dict(), strict=False)
    batch = next(iter(task.loader))
    torch.manual_seed(0)
    loss, parts = task(0, *batch)
    torch.manual_seed(0)
    torch.testing.assert_close(loss - parts["hidden"], plain(0, *batch)[0])
    assert parts["hidden"] > 0
    assert "hidden" not in task(1, *batch)[1]
    assert all(name.startswith("energy/") and "generator" not in name for name in task.measures())


def test_the_distance_is_zero_for_the_images_themselves(monkeypatch):
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        assert task.evaluate()["frechet"] > 1
        monkeypatch.setattr(task, "generate", lambda count: task.scale_images(task.measured[:count]))
        assert task.evaluate()["frechet"] == pytest.approx(0, abs=1e-6)
        components = task.project(task.scale_images(task.measured))
    off_diagonal = torch.cov(components.T) - torch.cov(components.T).diag().diag()
    torch.testing.assert_close(off_diagonal, torch.zeros(10, 10), atol=1e-3, rtol=0)


def test_shares_of_latent_vectors_are_those_of_one_process():
    task = build_task(CONFIG)
    torch.manual_seed(0)
    whole = task.draw_latent(6)
    parts = []
    for rank in range(2):
        task.loader._rank, task.loader._world_size = rank, 2
        torch.manual_seed(0)
        parts.append(task.draw_latent(3))
    assert torch.equal(torch.stack(parts, 1).flatten(0, 1), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"normalize": "deviation"},
            r"inputs must lie in \[0, 1\] for the task GAN: set normalize=unit",
        ),
        ({"task.clip": 0.0}, "clip must be a number > 0 or none, got 0.0"),
        ({"task.gradient_penalty": -1.0}, "gradient_penalty must be a finite number ≥ 0, got -1.0"),
        ({"backbone.weight_norm": True, "backbone.spectral_norm": True}, "both set the length of the weights"),
        ({"task.turns": 0}, "turns, samples and components must be integers ≥ 1, got 0"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, **change))
