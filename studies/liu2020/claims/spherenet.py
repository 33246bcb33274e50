"""Claim: SphereConv learns at least as well as the convolution, and sooner (tables 3.1–3.3; figure 3.3)."""

from typing import Any

import torch

from hypersphere.angular import Cosine, Linear, Sigmoid
from hypersphere.config import Call, call
from hypersphere.data import CIFAR10
from hypersphere.models import cnn9, cnn45
from hypersphere.objectives import ASoftmax, GASoftmax, Softmax
from hypersphere.operators import Operator, magnitudes
from hypersphere.recipes.chapter2 import CIFAR_LAMBDA
from hypersphere.recipes.chapter3 import spherenet_cifar10
from hypersphere.recipes.recipe_book import make_adam
from hypersphere.training import Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_curve_picture
from ..tuning import Tuning, divide_steps, make_rate_axis
from .small_images import SMALL_IMAGES

SPHERE = call(magnitudes.Sphere)
OPERATORS: dict[str, Call | None] = {
    "convolution": None,
    "linear": call(Operator, magnitude=SPHERE, angular=call(Linear)),
    "cosine": call(Operator, magnitude=SPHERE, angular=call(Cosine)),
    "sigmoid (0.3)": call(Operator, magnitude=SPHERE, angular=call(Sigmoid, k=0.3)),
    "sigmoid, learned": call(Operator, magnitude=SPHERE, angular=call(Sigmoid, k=0.5, learnable="filter")),
}
GROUPS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "softmax": (tuple(OPERATORS), {}),
    "no ReLU": (("convolution", "linear", "cosine", "sigmoid (0.3)"), {"backbone.activation": "none"}),
    "no BN": (("convolution", "cosine"), {"backbone.norm": "none"}),
    "A-Softmax": (("convolution", "cosine"), {"head": call(ASoftmax, m=4, annealing=CIFAR_LAMBDA)}),
    "GA-Softmax": (("convolution", "cosine"), {"head": call(GASoftmax, m=4, annealing=CIFAR_LAMBDA)}),
    "CNN-45": (("convolution", "cosine"), {}),
}
ACCURACY = {
    "softmax": {"convolution": 90.58, "linear": 91.10, "cosine": 90.89, "sigmoid (0.3)": 91.08},
    "no ReLU": {"convolution": 80.73, "linear": 85.34, "cosine": 85.25, "sigmoid (0.3)": 85.67},
    "A-Softmax": {"convolution": 91.78, "cosine": 91.94},
    "GA-Softmax": {"convolution": 91.80, "cosine": 92.19},
    "CNN-45": {"convolution": 88.23, "cosine": 90.05},
}


def measure_curvatures(experiment: Any) -> dict[str, float]:
    """Return the 10 %, 50 % and 90 % quantiles of the learned k of all filters; nothing if no k is learned."""
    found = [
        m.k.detach().flatten() for m in experiment.task.modules() if isinstance(m, Sigmoid) and m.log_k is not None
    ]
    if not found:
        return {}
    low, middle, high = torch.cat(found).float().quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    return {"k_low": low, "k_middle": middle, "k_high": high}


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of CNN-9 (table B.1) with each operator; also without ReLU, without BN, with A- and GA-Softmax; and of CNN-45."""
    if size == "paper":
        base = replace(spherenet_cifar10(size), {"backbone.operator": None}, head=call(Softmax), energy=None)
    else:
        base = replace(
            SMALL_IMAGES,
            steps=1500,
            evaluate_every=375,
            checkpoint_every=375,
            data=call(CIFAR10),
            samples=Selection(measured=4000, per_class=500),
            backbone=call(cnn9, table="B.1", width=0.25),
            optimizer=make_adam(0.001),
        )
    arms: dict[str, Arm] = {}
    for group, (names, changes) in GROUPS.items():
        if "head" in changes and size == "laptop":
            changes = {"head": changes["head"].replace(annealing=CIFAR_LAMBDA.replace(rate=12e-5))}
        if group == "CNN-45" and size == "laptop":
            changes = {"steps": 1000, "evaluate_every": 250, "checkpoint_every": 250}
        model = call(cnn45, **base.backbone.arguments) if group == "CNN-45" else base.backbone
        for name in names:
            config = replace(replace(base, backbone=model), {"backbone.operator": OPERATORS[name]}, **changes)
            arms[f"{group}/{name}"] = Training(config, (call(measure_curvatures),))
    return arms


def _make_check(group: str, name: str, metric: str = "accuracy") -> Check:
    what = {"accuracy": "accuracy", "early": "accuracy after a quarter of the steps"}[metric]
    known = ACCURACY.get(group, {})
    published = (known[name], known["convolution"]) if metric == "accuracy" and name in known else None
    title = f"{group}, {what}: {name} above the convolution"
    return Check(title, metric, f"{group}/{name}", f"{group}/convolution", published=published)


CLAIM = Claim(
    id="spherenet",
    title="SphereConv against the convolution",
    text=read_text("spherenet"),
    published=(
        Published("3.1", "accuracy (%) of CNN-9 on CIFAR-10, softmax", ACCURACY["softmax"]),
        Published("3.1", "accuracy (%) of CNN-9 on CIFAR-10, A-Softmax m = 4", ACCURACY["A-Softmax"]),
        Published("3.1", "accuracy (%) of CNN-9 on CIFAR-10, GA-Softmax m = 4", ACCURACY["GA-Softmax"]),
        Published("3.3", "accuracy (%) of CNN-18 on CIFAR-10 without ReLU", ACCURACY["no ReLU"]),
        Published("3.2", "accuracy (%) of CNN-45", ACCURACY["CNN-45"]),
    ),
    arms=make_arms,
    about=("backbone.operator", "backbone.operator.*"),
    metrics={
        "accuracy": "test accuracy (%)",
        "early": "after a quarter of the steps (%)",
        "k_low": "10 % quantile of the learned k",
        "k_middle": "median of the learned k",
        "k_high": "90 % quantile of the learned k",
    },
    checks=(
        *(_make_check("softmax", name) for name in list(OPERATORS)[1:]),
        _make_check("softmax", "cosine", "early"),
        *(_make_check("no ReLU", name) for name in ("linear", "cosine", "sigmoid (0.3)")),
        _make_check("no BN", "cosine"),
        _make_check("A-Softmax", "cosine"),
        _make_check("GA-Softmax", "cosine"),
        _make_check("CNN-45", "cosine"),
    ),
    picture=make_curve_picture(
        [
            ("accuracy", f"test accuracy (%), {group}", [f"{group}/{name}" for name in GROUPS[group][0]])
            for group in ("softmax", "no ReLU", "CNN-45")
        ]
    ),
    caption="Test accuracy over training, means over seeds.",
    tuning=Tuning((make_rate_axis(0.3, 1, 3),), divide_steps(4)),
)
