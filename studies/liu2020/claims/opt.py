"""Claim: rotating fixed random neurons generalizes better than training them (tables 7.1–7.5, 7.7; figure 7.3)."""

from typing import Any

from hypersphere.config import Call, call
from hypersphere.data import TinyImageNet
from hypersphere.energy import MHE
from hypersphere.models import cnn6
from hypersphere.orthogonal import OGD, OrthogonalityPenalty, overparameterize, prepare_neurons
from hypersphere.recipes.chapter7 import opt_cnn_cifar100, opt_mlp_mnist
from hypersphere.recipes.recipe_book import make_sgd
from hypersphere.training import Config, CosineRate, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_curve_picture
from ..tuning import Tuning, make_rate_axis, make_rotation_rate_axis, make_weight_axis
from .small_images import SMALL_IMAGES


def _call_method(method: str, **options: object) -> Call:
    return call(overparameterize, method=method, **options)


# What an arm changes in its group's config.
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "HS-MHE": {"energy": call(MHE, hidden=1.0, output=1.0, data_dependent=False)},
    "UPT": {"orthogonal": _call_method("unconstrained")},
    "OPT (GS)": {"orthogonal": _call_method("gram_schmidt")},
    "OPT (HR)": {"orthogonal": _call_method("householder")},
    "OPT (LS)": {"orthogonal": _call_method("lowdin")},
    "OPT (CP)": {"orthogonal": _call_method("cayley")},
    "OPT (OGD)": {"orthogonal": _call_method("ogd")},
    "OPT (OR)": {"orthogonal": _call_method("regularized"), "energy": call(OrthogonalityPenalty, weight=1.0)},
    "OPT (GS), trained neurons": {"orthogonal": _call_method("gram_schmidt", train_neurons=True)},
    "OPT (GS), normalized": {"orthogonal": _call_method("gram_schmidt", normalize=True)},
    "baseline, shifted start": {"orthogonal": call(prepare_neurons, mean=0.02)},
}
PERCEPTRON = ("baseline", "UPT", "OPT (GS)", "OPT (HR)", "OPT (LS)", "OPT (CP)", "OPT (OGD)", "OPT (OR)")
# Householder with n reflections equals Gram–Schmidt, so its rows are listed, but it has no checks of its own.
ROTATED = tuple(name for name in PERCEPTRON[2:] if name != "OPT (HR)")
GROUPS = {
    "MLP, Xavier": PERCEPTRON,
    "MLP, Normal": PERCEPTRON,
    "CNN-6": tuple(METHODS),
    "CNN-6, no BN": ("baseline", "HS-MHE", "OPT (GS)", "OPT (CP)", "OPT (OGD)"),
}
# Tables F.4 and F.5, Cayley: R has k blocks along the channels, shared or separate. The three channels of the first layer cannot be
# divided, so its neurons are fixed in every arm of this group.
FIRST_LAYER = "body.conv1.0.conv"
BLOCKS = (1, 4, 16)
SHARED = {1: 33.53, 4: 39.40, 16: 56.65}
FROZEN = 73.81
EXACT = ("OPT (GS)", "OPT (LS)", "OPT (CP)", "OPT (OGD)")
NAMES = ("GS", "HR", "LS", "CP", "OGD", "OR")
XAVIER = dict(zip(NAMES, (1.45, 1.60, 1.54, 1.49, 1.56, 1.78), strict=True))
NORMAL = dict(zip(NAMES, (5.11, 5.31, 5.32, 5.14, 5.38, 5.41), strict=True))
CNN = dict(zip(NAMES, (33.02, 35.67, 34.48, 33.53, 33.33, 34.70), strict=True))
PLAIN = {"GS": 35.61, "CP": 34.88, "OGD": 35.38}
PUBLISHED = {
    "MLP, Xavier": (XAVIER, 2.14),
    "MLP, Normal": (NORMAL, 6.05),
    "CNN-6": (CNN, 37.59),
    "CNN-6, no BN": (PLAIN, 38.95),
}


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of the MLP of F.3 with two initializations, and of CNN-6 of table F.1 with and without BN, for every method."""
    xavier, cnn = _make_mlp_config(size), _make_cnn_config(size)
    base = {
        "MLP, Xavier": xavier,
        "MLP, Normal": replace(
            xavier, {"backbone.init": "normal"}, **({"optimizer": make_sgd(0.003)} if size == "laptop" else {})
        ),
        "CNN-6": cnn,
        "CNN-6, no BN": replace(cnn, {"backbone.norm": "none"}),
    }
    arms: dict[str, Arm] = {}
    for group, names in GROUPS.items():
        for name in names:
            changes = dict(METHODS[name])
            method = changes.get("orthogonal")
            if method is not None and method.target is overparameterize and size == "laptop":
                changes["orthogonal"] = method.replace(start="identity")
            if name == "OPT (OGD)":
                changes["rotations"] = _make_ogd(base[group], size)
            arms[f"{group}/{name}"] = Training(replace(base[group], **changes))
    return arms | _make_block_arms(cnn, size)


def _make_block_arms(cnn: Config, size: Size) -> dict[str, Arm]:
    """Return arms with fewer and fewer parameters in R: separate blocks, shared blocks, and fixed neurons."""
    start = {"start": "identity"} if size == "laptop" else {}
    methods = {f"k = {k}": _call_method("cayley", blocks=k, skip=(FIRST_LAYER,), **start) for k in BLOCKS}
    methods |= {
        f"k = {k}, shared": _call_method("cayley", blocks=k, share_blocks=True, skip=(FIRST_LAYER,), **start)
        for k in BLOCKS[1:]
    }
    methods["fixed neurons"] = call(prepare_neurons, freeze=True)
    base = replace(cnn, freeze=(f"model.{FIRST_LAYER}.weight",))
    return {f"blocks/{name}": Training(replace(base, orthogonal=method)) for name, method in methods.items()}


def _make_mlp_config(size: Size) -> Config:
    config = replace(opt_mlp_mnist(size), orthogonal=None)
    if size == "paper":
        return config
    return replace(
        config,
        steps=600,
        evaluate_every=300,
        checkpoint_every=300,
        size=14,
        normalize="unit",
        optimizer=make_sgd(0.05),
        schedule=call(CosineRate),
    )


def _make_cnn_config(size: Size) -> Config:
    if size == "paper":
        return replace(opt_cnn_cifar100(size), orthogonal=None)
    return replace(
        SMALL_IMAGES,
        steps=1200,
        evaluate_every=300,
        checkpoint_every=400,
        data=call(TinyImageNet),
        samples=Selection(classes=20),
        backbone=call(cnn6, table="F.1", width=0.25),
        optimizer=make_sgd(0.03),
    )


def _make_ogd(config: Config, size: Size) -> Call:
    """Liu (2020) states neither learning rate nor momentum of OGD. The authors' code has momentum 0.9 and a fifth of the other rate."""
    assert isinstance(config.optimizer, Call)
    factor = 1.0 if size == "laptop" else 0.2
    return call(OGD, lr=factor * config.optimizer.get("lr"), momentum=0.9, reproject_every=100)


def _shorten(config: Config) -> Config:
    steps = config.steps // 3
    return replace(config, steps=steps, evaluate_every=steps, checkpoint_every=steps)


def _make_check(group: str, name: str, than: str = "baseline") -> Check:
    values, base = PUBLISHED[group]
    short = name.removeprefix("OPT (").rstrip(")")
    published = (values[short], base) if than == "baseline" and short in values else None
    title = f"{group}, error: {name} below {than}"
    return Check(title, "error", f"{group}/{name}", f"{group}/{than}", False, published=published)


CLAIM = Claim(
    id="opt",
    title="Orthogonal over-parameterized training",
    text=read_text("opt"),
    published=(
        Published("7.3", "error (%) of the MLP on MNIST, Xavier", {"baseline": 2.14, **XAVIER}),
        Published("7.3", "error (%) of the MLP on MNIST, Normal", {"baseline": 6.05, **NORMAL}),
        Published(
            "7.4, 7.1, 7.7",
            "error (%) of CNN-6 on CIFAR-100",
            {"baseline": 37.59, "HS-MHE": 34.97, "UPT": 42.61, **CNN, "GS, trained neurons": 37.24, "GS, normalized": 32.54},
        ),
        Published("7.5", "error (%) of CNN-6 on CIFAR-100 without BN", {"baseline": 38.95, "HS-MHE": 36.90, **PLAIN}),
        Published(
            "F.4",
            "error (%) of CNN-6, Cayley, one block for all",
            {**{f"k = {k}": value for k, value in SHARED.items()}, "fixed neurons": FROZEN},
        ),
        Published("7.2", "error (%) of CNN-6 by the mean of the start", {"0": 32.49, "1e-2": 39.51, "2e-2": 53.89}),
    ),
    arms=make_arms,
    about=("orthogonal", "orthogonal.*", "energy", "energy.*", "rotations.*"),
    metrics={
        "error": "test error (%)",
        "energy": "energy at the end (s = 2, hidden layers)",
        "energy_drift": "largest change of the energy (%)",
    },
    checks=(
        *(_make_check(group, name) for group in ("MLP, Xavier", "MLP, Normal") for name in ROTATED),
        _make_check("MLP, Xavier", "OPT (GS)", "UPT"),
        *(_make_check("CNN-6", name) for name in ROTATED),
        _make_check("CNN-6", "OPT (GS)", "HS-MHE"),
        _make_check("CNN-6", "OPT (GS)", "UPT"),
        _make_check("CNN-6", "OPT (GS)", "OPT (GS), trained neurons"),
        _make_check("CNN-6", "OPT (GS), normalized", "OPT (GS)"),
        _make_check("CNN-6", "baseline", "baseline, shifted start"),
        *(_make_check("CNN-6, no BN", f"OPT ({name})") for name in PLAIN),
        *(
            Check(f"blocks, error: {a} below {b}", "error", f"blocks/{a}", f"blocks/{b}", False, published=published)
            for a, b, published in (
                ("k = 1", "k = 4", None),
                ("k = 4", "k = 16", None),
                ("k = 16", "fixed neurons", None),
                ("k = 1", "k = 4, shared", (33.53, 39.40)),
                ("k = 4, shared", "k = 16, shared", (39.40, 56.65)),
                ("k = 16, shared", "fixed neurons", (56.65, 73.81)),
                ("k = 4", "k = 4, shared", None),
                ("k = 16", "k = 16, shared", None),
            )
        ),
        *(
            Check(f"MLP, Xavier: energy of {name} moves by less than 0.1 %", "energy_drift", f"MLP, Xavier/{name}", 0.1, False)
            for name in EXACT
        ),
        Check("MLP, Xavier: energy of the baseline moves by more", "energy_drift", "MLP, Xavier/baseline", 0.1),
    ),
    picture=make_curve_picture(
        [
            ("energy", "energy of hidden layers, MLP (Xavier)", [f"MLP, Xavier/{n}" for n in PERCEPTRON]),
            ("accuracy", "test accuracy (%), MLP (Xavier)", [f"MLP, Xavier/{n}" for n in PERCEPTRON]),
        ]
    ),
    caption="Hyperspherical energy and test accuracy over training, means over seeds.",
    tuning=Tuning((make_rate_axis(0.3, 1, 3), make_rotation_rate_axis(1, 4, 16), make_weight_axis(0.1, 1, 10)), _shorten),
)  # fmt: skip
