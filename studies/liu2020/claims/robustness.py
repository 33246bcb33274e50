"""Claim: networks of bounded operators withstand attacks better than the convolution (tables 4.7, 4.8; figure C.1)."""

import pathlib
from typing import Any, cast

import torch

from hypersphere.angular import Cosine
from hypersphere.config import Call, call
from hypersphere.evaluation import bim, fgsm, robustness
from hypersphere.operators import Operator, magnitudes
from hypersphere.recipes.chapter4 import adversarial_cifar10
from hypersphere.recipes.recipe_book import make_adam
from hypersphere.training import Adversarial, Config, CosineRate, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_bar_picture
from ..training_run import open_experiment
from ..tuning import Tuning, make_rate_axis

OPERATORS: dict[str, Call | None] = {
    "convolution": None,
    "SphereConv": call(Operator, magnitude=call(magnitudes.Sphere), angular=call(Cosine)),
    "BallConv": call(Operator, magnitude=call(magnitudes.Ball), angular=call(Cosine)),
    "TanhConv": call(Operator, magnitude=call(magnitudes.Tanh), angular=call(Cosine)),
}
ATTACKER_SEED_OFFSET = 1000  # the attacker of transferred attacks has another initialization and other batches
NATURAL = {"SphereConv": (43.64, 8.89), "BallConv": (50.47, 7.74), "TanhConv": (52.60, 10.18)}
TRAINED = {"SphereConv": (85.98, 35.07), "BallConv": (82.20, 17.38), "TanhConv": (81.46, 19.86)}
BLACK = {"SphereConv": (56.71, 43.10), "BallConv": (49.50, 27.48), "TanhConv": (50.61, 29.06)}


def measure_robustness(
    experiment: Any, folder: pathlib.Path, rate: float, images: int = 512, checked: int = 64
) -> dict[str, float]:
    """Measure accuracy under white-box and black-box FGSM and BIM; on fewer images, DeepFool and signs of masked gradients.

    Black-box attacks are computed on a naturally trained convolution of the same architecture with another initialization (C.1.3) and
    the learning rate ``rate``. It is trained once per seed, in a folder beside those of the arms.
    """
    task, config = experiment.task, experiment.config
    plain = replace(
        config,
        {"task.attacked": 0.0, "backbone.operator": None, "optimizer.lr": rate},
        name="attacker",
        seed=config.seed + ATTACKER_SEED_OFFSET,
    )
    attacker_folder = folder.parents[2] / "attacker" / str(config.seed)
    attacker_folder.parent.mkdir(parents=True, exist_ok=True)
    attacker = open_experiment(attacker_folder, plain)
    attacker.run()
    own, other = (part.build_pixel_network().eval() for part in (task, cast(Adversarial, attacker.task)))
    raw, labels = task.measured_samples.batch(torch.arange(images))
    x, epsilon, steps = task.pixels(raw), task.epsilon, (task.step_size, task.iterations)
    made = {
        "unattacked": x,
        "fgsm": fgsm(own, x, labels, epsilon),
        "bim": bim(own, x, labels, epsilon, *steps),
        "black_fgsm": fgsm(other, x, labels, epsilon),
        "black_bim": bim(other, x, labels, epsilon, *steps),
    }
    found = {f"{name}_accuracy": 100 * compute_accuracy(own, changed, labels) for name, changed in made.items()}
    options: dict[str, Any] = {"epsilon": epsilon, "step": steps[0], "iterations": steps[1], "deepfool_steps": 5}
    report = robustness(own, x[:checked], labels[:checked], **options)
    found |= {"no_gradient": 100 * report.no_gradient, "masking": float(len(report.findings))}
    return found | {"deepfool": report.strengths["DeepFool ℓ2"].median().item()}


def compute_accuracy(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images that a network classifies correctly."""
    with torch.no_grad():
        right = [network(x).argmax(1) == y for x, y in zip(images.split(256), labels.split(256), strict=True)]
    return torch.cat(right).double().mean().item()


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of CNN-9 (table C.1) for attacks with each operator, naturally trained and trained against FGSM."""
    base = adversarial_cifar10(size)
    if size == "laptop":
        base = replace(
            base,
            {
                "task.epsilon": 2 / 255,
                "task.step": 0.5 / 255,
                "task.attacked_images": 1,  # ``measure_robustness`` attacks 512 at the end
                "backbone.width": 0.5,
                "backbone.feature_dim": None,
            },
            steps=800,
            evaluate_every=800,
            checkpoint_every=400,
            batch_size=64,
            channels_last=True,
            size=16,
            augment=None,
            optimizer=make_adam(1.8e-3),
            schedule=call(CosineRate),
        )
    assert isinstance(base.optimizer, Call)
    rate = base.optimizer.get("lr")
    arms: dict[str, Arm] = {}
    for group, weight in (("natural", 0.0), ("FGSM-trained", 0.5)):
        for name, operator in OPERATORS.items():
            config = replace(base, {"task.attacked": weight, "backbone.operator": operator})
            arms[f"{group}/{name}"] = Training(config, (call(measure_robustness, rate=rate),))
    return arms


def make_natural_config(config: Config) -> Config:
    """Return a tuning run: the whole run, naturally trained. FGSM-trained networks use the same learning rate."""
    if config.task.target is not Adversarial:
        return config
    return replace(config, {"task.attacked": 0.0, "task.attacked_images": 1})


def _make_check(group: str, name: str, attack: str, published: tuple[float, float]) -> Check:
    what = {"fgsm": "FGSM", "bim": "BIM", "black_fgsm": "black-box FGSM", "black_bim": "black-box BIM"}[attack]
    arm, than = f"{group}/{name}", f"{group}/convolution"
    return Check(f"{group}, {what}: {name} above the convolution", f"{attack}_accuracy", arm, than, published=published)


CLAIM = Claim(
    id="robustness",
    title="Bounded operators under attack",
    text=read_text("robustness"),
    published=(
        Published(
            "4.7",
            "accuracy (%) of naturally trained networks under FGSM, BIM",
            {"convolution": "18.82, 8.67", **{name: f"{a}, {b}" for name, (a, b) in NATURAL.items()}},
        ),
        Published(
            "4.7",
            "accuracy (%) of FGSM-trained networks under FGSM, BIM",
            {"convolution": "78.96, 7.96", **{name: f"{a}, {b}" for name, (a, b) in TRAINED.items()}},
        ),
        Published(
            "4.8",
            "accuracy (%) of naturally trained networks under black-box FGSM, BIM",
            {"convolution": "50.90, 36.22", **{name: f"{a}, {b}" for name, (a, b) in BLACK.items()}},
        ),
    ),
    arms=make_arms,
    about=("backbone.operator", "backbone.operator.*"),
    metrics={
        "accuracy": "accuracy (%)",
        "fgsm_accuracy": "FGSM (%)",
        "bim_accuracy": "BIM (%)",
        "black_fgsm_accuracy": "black-box FGSM (%)",
        "black_bim_accuracy": "black-box BIM (%)",
        "deepfool": "DeepFool ℓ2, median",
        "no_gradient": "without gradient (%)",
        "masking": "signs of masking",
    },
    checks=(
        *(_make_check("natural", name, "fgsm", (values[0], 18.82)) for name, values in NATURAL.items()),
        *(_make_check("FGSM-trained", name, "bim", (values[1], 7.96)) for name, values in TRAINED.items()),
        _make_check("natural", "SphereConv", "black_fgsm", (56.71, 50.90)),
        _make_check("natural", "SphereConv", "black_bim", (43.10, 36.22)),
        *(
            Check(f"natural, DeepFool: {name} needs more than the convolution", "deepfool", f"natural/{name}", "natural/convolution")
            for name in NATURAL
        ),
        *(
            Check(f"natural: {name} shows no more signs of masking", "masking", f"natural/{name}", "natural/convolution", False, True)
            for name in NATURAL
        ),
    ),
    picture=make_bar_picture([("accuracy", "accuracy (%)"), ("fgsm_accuracy", "under FGSM (%)"), ("bim_accuracy", "under BIM (%)")]),
    caption="Accuracy without an attack, under FGSM and under BIM, means over seeds with their standard errors.",
    tuning=Tuning((make_rate_axis(1 / 3, 1, 3),), make_natural_config),
    seeds=5,
)  # fmt: skip
