"""Claim: with the energy of the class weights, a network learns a class with few samples (figure 5.4, table 5.7)."""

from typing import Any

import torch

from hypersphere.config import Call, call
from hypersphere.data import MNIST, ImbalancedMultiple, ImbalancedSingle
from hypersphere.energy import MHE, Orthonormality
from hypersphere.geometry import angle
from hypersphere.models import cnn6, cnn9
from hypersphere.recipes.chapter5 import mhe_cifar10
from hypersphere.recipes.recipe_book import CROP_FLIP, make_sgd
from hypersphere.training import Config, CosineRate, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_planar_picture
from ..tuning import Tuning, make_rate_axis, make_weight_axis

PENALTIES: dict[str, Call | None] = {
    "baseline": None,
    "orthonormal": call(Orthonormality, hidden=1e-5, output=0.0),
    "MHE": call(MHE, hidden=10.0, output=1.0, half_space=False, data_dependent=False),
    "half-space MHE": call(MHE, hidden=1.0, output=1.0, data_dependent=False),
}
# Figure 5.4 shows the ten class weights in the plane, so only these have an energy.
PLANAR: dict[str, Call | None] = {
    "baseline": None,
    "MHE": call(MHE, hidden=0.0, output=10.0, data_dependent=False),
}
GROUPS = {"MNIST": PLANAR, "CIFAR-10 single": PENALTIES, "CIFAR-10 multiple": PENALTIES}


def measure_rare_class(experiment: Any, label: int = 0) -> dict[str, float]:
    """Return the error of one class in percent, and the angle between its neuron and the nearest other one in radians."""
    task = experiment.task
    task.eval()
    index = torch.nonzero(task.measured_samples.labels == label).flatten()
    with torch.no_grad():
        features = torch.cat([task.embed_batch(task.measured_samples.batch(part)[0]) for part in index.split(512)])
        right = (task.model.classifier.predict(features) == label).double().mean().item()
    neurons = task.model.classifier.weight.detach()
    others = torch.arange(len(neurons)) != label
    return {
        "rare_error": 100 - 100 * right,
        "rare_angle": angle(neurons[label][None], neurons[others], pairwise=True).min().item(),
    }


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms on digits with 100 zeros and two-dimensional features, and on CIFAR-10 with one rare class and with many."""
    sets = {"MNIST": _make_digit_config(size), **_make_image_configs(size)}
    return {
        f"{group}/{name}": Training(replace(sets[group], energy=penalty), (call(measure_rare_class),))
        for group, penalties in GROUPS.items()
        for name, penalty in penalties.items()
    }


def _make_digit_config(size: Size) -> Config:
    """CNN-6 with two-dimensional features; Liu (2020) states nothing else about this experiment."""
    small = size == "laptop"
    return Config(
        steps=3000 if small else 20000,
        evaluate_every=3000 if small else 2000,
        checkpoint_every=1000,
        data=call(MNIST),
        samples=Selection(imbalance=call(ImbalancedSingle, keep=100)),
        size=14 if small else None,
        normalize="unit",
        backbone=call(cnn6, table="D.1", width=0.125 if small else 1.0, feature_dim=2),
        optimizer=make_sgd(0.1, 1e-4),
        clip=1.0,
        schedule=call(CosineRate),
    )


def _make_image_configs(size: Size) -> dict[str, Config]:
    base = mhe_cifar10(size)
    if size == "laptop":
        base = replace(
            base,
            steps=1000,
            evaluate_every=1000,
            checkpoint_every=500,
            channels_last=True,
            batch_size=64,
            size=16,
            normalize="deviation",
            augment=CROP_FLIP,
            backbone=call(cnn9, table="D.1", width=0.25),
            optimizer=make_sgd(0.05, 1e-4),
            schedule=call(CosineRate),
        )
    kinds = {"CIFAR-10 single": call(ImbalancedSingle), "CIFAR-10 multiple": call(ImbalancedMultiple)}
    return {name: replace(base, samples=Selection(imbalance=kind)) for name, kind in kinds.items()}


def _shorten(config: Config) -> Config:
    """Return whole runs for digits, because zeros are learned late, and a third of the steps for the others."""
    if config.data.target is MNIST:
        return config
    return replace(config, steps=config.steps // 3, evaluate_every=config.steps // 3)


CLAIM = Claim(
    id="imbalance",
    title="Rare classes",
    text=read_text("imbalance"),
    published=(
        Published("figure 5.4", "accuracy (%) on MNIST with 100 zeros", {"baseline": 88.5, "MHE": 98.0}),
        Published(
            "5.7",
            "error (%) on CIFAR-10 with one rare class (of that class), with many",
            {
                "baseline": "9.80 (30.40), 12.00",
                "orthonormal": "8.34 (26.80), 10.80",
                "MHE": "7.98 (25.80), 10.25",
                "half-space MHE": "7.90 (26.40), 9.59",
            },
        ),
    ),
    arms=make_arms,
    about=("energy", "energy.*"),
    metrics={
        "error": "test error (%)",
        "rare_error": "error of the rare class (%)",
        "rare_angle": "angle of its neuron to the nearest (rad)",
    },
    checks=(
        Check("MNIST, error: MHE below baseline", "error", "MNIST/MHE", "MNIST/baseline", False, published=(2.0, 11.5)),
        Check("MNIST, error of zeros: MHE below baseline", "rare_error", "MNIST/MHE", "MNIST/baseline", False),
        Check("MNIST, neuron of zeros: further from others with MHE", "rare_angle", "MNIST/MHE", "MNIST/baseline"),
        *(
            Check(
                f"{group}, error: {name} below baseline",
                "error",
                f"{group}/{name}",
                f"{group}/baseline",
                False,
                published=values,
            )
            for group, name, values in (
                ("CIFAR-10 single", "MHE", (7.98, 9.80)),
                ("CIFAR-10 single", "half-space MHE", (7.90, 9.80)),
                ("CIFAR-10 multiple", "MHE", (10.25, 12.00)),
                ("CIFAR-10 multiple", "half-space MHE", (9.59, 12.00)),
            )
        ),
        Check(
            "CIFAR-10 single, error of the rare class: half-space MHE below baseline",
            "rare_error",
            "CIFAR-10 single/half-space MHE",
            "CIFAR-10 single/baseline",
            False,
            published=(26.40, 30.40),
        ),
    ),
    picture=make_planar_picture(tuple(f"MNIST/{name}" for name in PLANAR), neurons=True),
    caption="Two-dimensional features of test digits and the directions of the classes' neurons, trained with 100 zeros (first seed).",
    seeds=5,
    tuning=Tuning((make_rate_axis(0.3, 1, 3), make_weight_axis(0.1, 1, 10)), _shorten),
)
