"""Claim: rotating fixed random neurons instead of moving them generalizes better (tables 7.1–7.5, 7.7; figure 7.3)."""

from typing import Any

from hypersphere.config import Call, call
from hypersphere.data import TinyImageNet
from hypersphere.energy import MHE
from hypersphere.models import cnn6
from hypersphere.orthogonal import OGD, OrthogonalityPenalty, overparameterize, prepare_neurons
from hypersphere.recipes.chapter7 import opt_cnn_cifar100, opt_mlp_mnist
from hypersphere.recipes.recipe_book import MIRROR, sgd
from hypersphere.training import Config, CosineRate, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import curves
from ..tuning import Tuning, rates, rotation_rates, weights


def _opt(method: str, **options: object) -> Call:
    return call(overparameterize, method=method, **options)


# What an arm changes in its group's config.
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "HS-MHE": {"energy": call(MHE, hidden=1.0, output=1.0, data_dependent=False)},
    "UPT": {"orthogonal": _opt("unconstrained")},
    "OPT (GS)": {"orthogonal": _opt("gram_schmidt")},
    "OPT (HR)": {"orthogonal": _opt("householder")},
    "OPT (LS)": {"orthogonal": _opt("lowdin")},
    "OPT (CP)": {"orthogonal": _opt("cayley")},
    "OPT (OGD)": {"orthogonal": _opt("ogd")},
    "OPT (OR)": {"orthogonal": _opt("regularized"), "energy": call(OrthogonalityPenalty, weight=1.0)},
    "OPT (GS), trained neurons": {"orthogonal": _opt("gram_schmidt", train_neurons=True)},
    "OPT (GS), normalised": {"orthogonal": _opt("gram_schmidt", normalize=True)},
    "baseline, shifted start": {"orthogonal": call(prepare_neurons, mean=0.02)},
}
PERCEPTRON = ("baseline", "UPT", "OPT (GS)", "OPT (HR)", "OPT (LS)", "OPT (CP)", "OPT (OGD)", "OPT (OR)")
# Householder with n reflections is the map of Gram–Schmidt: its rows are shown, and its checks would be those of GS once more.
ROTATED = tuple(name for name in PERCEPTRON[2:] if name != "OPT (HR)")
GROUPS = {
    "MLP, Xavier": PERCEPTRON,
    "MLP, Normal": PERCEPTRON,
    "CNN-6": tuple(METHODS),
    "CNN-6, no BN": ("baseline", "HS-MHE", "OPT (GS)", "OPT (CP)", "OPT (OGD)"),
}
# Tables F.4 and F.5, Cayley: R of k blocks along the channels, one block for all or one each.
FIRST = (
    "body.conv1.0.conv"  # its three channels cannot be cut: its neurons stay as they start in every arm of this group
)
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


def arms(size: Size) -> dict[str, Arm]:
    """The MLP of F.3 on digits from two starts, CNN-6 of table F.1 on images with and without BN; each trained in every way."""
    xavier, cnn = _mlp(size), _cnn(size)
    base = {
        "MLP, Xavier": xavier,
        "MLP, Normal": replace(
            xavier, {"backbone.init": "normal"}, **({"optimizer": sgd(0.003)} if size == "laptop" else {})
        ),
        "CNN-6": cnn,
        "CNN-6, no BN": replace(cnn, {"backbone.norm": "none"}),
    }
    found: dict[str, Arm] = {}
    for group, names in GROUPS.items():
        for name in names:
            changes = dict(METHODS[name])
            method = changes.get("orthogonal")
            if method is not None and method.target is overparameterize and size == "laptop":
                changes["orthogonal"] = method.replace(start="identity")
            if name == "OPT (OGD)":
                changes["rotations"] = _ogd(base[group], size)
            found[f"{group}/{name}"] = Training(replace(base[group], **changes))
    return found | _blocks(cnn, size)


def _blocks(cnn: Config, size: Size) -> dict[str, Arm]:
    """Fewer and fewer numbers in R: k blocks of its own or one for all, down to neurons that stay as they start."""
    start = {"start": "identity"} if size == "laptop" else {}
    turned = {f"k = {k}": _opt("cayley", blocks=k, skip=(FIRST,), **start) for k in BLOCKS}
    turned |= {
        f"k = {k}, shared": _opt("cayley", blocks=k, share_blocks=True, skip=(FIRST,), **start) for k in BLOCKS[1:]
    }
    turned["fixed neurons"] = call(prepare_neurons, freeze=True)
    base = replace(cnn, freeze=(f"model.{FIRST}.weight",))
    return {f"blocks/{name}": Training(replace(base, orthogonal=method)) for name, method in turned.items()}


def _mlp(size: Size) -> Config:
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
        optimizer=sgd(0.05),
        schedule=call(CosineRate),
    )


def _cnn(size: Size) -> Config:
    if size == "paper":
        return replace(opt_cnn_cifar100(size), orthogonal=None)
    return Config(
        steps=1200,
        evaluate_every=300,
        checkpoint_every=400,
        channels_last=True,
        batch_size=64,
        data=call(TinyImageNet),
        samples=Selection(classes=20),
        size=16,
        augment=MIRROR,
        backbone=call(cnn6, table="F.1", width=0.25),
        optimizer=sgd(0.03),
        schedule=call(CosineRate),
    )


def _ogd(config: Config, size: Size) -> Call:
    """Liu (2020) states neither rate nor momentum; its authors' code has momentum 0.9 and a fifth of the other rate."""
    assert isinstance(config.optimizer, Call)
    part = 1.0 if size == "laptop" else 0.2
    return call(OGD, lr=part * config.optimizer.get("lr"), momentum=0.9, reproject_every=100)


def _short(config: Config) -> Config:
    steps = config.steps // 3
    return replace(config, steps=steps, evaluate_every=steps, checkpoint_every=steps)


def _below(group: str, name: str, than: str = "baseline") -> Check:
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
            {"baseline": 37.59, "HS-MHE": 34.97, "UPT": 42.61, **CNN, "GS, trained neurons": 37.24, "GS, normalised": 32.54},
        ),
        Published("7.5", "error (%) of CNN-6 on CIFAR-100 without BN", {"baseline": 38.95, "HS-MHE": 36.90, **PLAIN}),
        Published(
            "F.4",
            "error (%) of CNN-6, Cayley, one block for all",
            {**{f"k = {k}": value for k, value in SHARED.items()}, "fixed neurons": FROZEN},
        ),
        Published("7.2", "error (%) of CNN-6 by the mean of the start", {"0": 32.49, "1e-2": 39.51, "2e-2": 53.89}),
    ),
    arms=arms,
    about=("orthogonal", "orthogonal.*", "energy", "energy.*", "rotations.*"),
    metrics={
        "error": "test error (%)",
        "energy": "energy at the end (s = 2, hidden layers)",
        "energy_drift": "largest change of it (%)",
    },
    checks=(
        *(_below(group, name) for group in ("MLP, Xavier", "MLP, Normal") for name in ROTATED),
        _below("MLP, Xavier", "OPT (GS)", "UPT"),
        *(_below("CNN-6", name) for name in ROTATED),
        _below("CNN-6", "OPT (GS)", "HS-MHE"),
        _below("CNN-6", "OPT (GS)", "UPT"),
        _below("CNN-6", "OPT (GS)", "OPT (GS), trained neurons"),
        _below("CNN-6", "OPT (GS), normalised", "OPT (GS)"),
        _below("CNN-6", "baseline", "baseline, shifted start"),
        *(_below("CNN-6, no BN", f"OPT ({name})") for name in PLAIN),
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
    picture=curves(
        [
            ("energy", "energy of hidden layers, MLP (Xavier)", [f"MLP, Xavier/{n}" for n in PERCEPTRON]),
            ("accuracy", "test accuracy (%), MLP (Xavier)", [f"MLP, Xavier/{n}" for n in PERCEPTRON]),
        ]
    ),
    caption="Hyperspherical energy and test accuracy over training, means over seeds.",
    tuning=Tuning((rates(0.3, 1, 3), rotation_rates(1, 4, 16), weights(0.1, 1, 10)), _short),
)  # fmt: skip
