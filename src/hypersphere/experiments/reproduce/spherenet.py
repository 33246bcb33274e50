"""Claim: operators that look at the angle learn at least as well as the convolution, and sooner (tables 3.1–3.4, 4.1–4.4; figure 3.3)."""

from ...angular import Cosine, Linear, Sigmoid, SquareCosine
from ...config import call
from ...data import CIFAR10
from ...models import cnn9
from ...objectives import Softmax
from ...operators import Operator, magnitudes
from ...training import Config, CosineRate, Images, Selection, replace
from ..recipes.chapter3 import spherenet_cifar10
from ..recipes.recipe_book import adam
from .claim import Check, Claim, Published, Size, Tuning, rates
from .claim_pictures import curves

SPHERE = call(magnitudes.Sphere)
OPERATORS = {
    "convolution": None,
    "SphereConv linear": call(Operator, magnitude=SPHERE, angular=call(Linear)),
    "SphereConv cosine": call(Operator, magnitude=SPHERE, angular=call(Cosine)),
    "SphereConv sigmoid": call(Operator, magnitude=SPHERE, angular=call(Sigmoid, k=0.3)),
    "TanhConv": call(Operator, magnitude=call(magnitudes.Tanh), angular=call(Cosine)),
    "LinearConv": call(Operator, magnitude=call(magnitudes.Linear), angular=call(Cosine)),
    "SphereConv square cosine": call(Operator, magnitude=SPHERE, angular=call(SquareCosine)),
}
GROUPS = {
    "BN, ReLU": (
        "convolution",
        "SphereConv linear",
        "SphereConv cosine",
        "SphereConv sigmoid",
        "TanhConv",
        "LinearConv",
    ),
    "no ReLU": ("convolution", "SphereConv cosine", "SphereConv square cosine"),
    "no BN": ("convolution", "SphereConv cosine", "TanhConv"),
}
PROJECTED = "BN, ReLU/TanhConv, projected"


def arms(size: Size) -> dict[str, Config]:
    """CNN-9 of table B.1 with each operator in every hidden layer, with and without ReLU and batch normalization."""
    if size == "paper":
        base = replace(spherenet_cifar10(size), head=call(Softmax), model__operator=None)
    else:
        base = Config(
            steps=400,
            evaluate_every=100,
            checkpoint_every=200,
            batch_size=64,
            data=call(CIFAR10),
            samples=Selection(measured=4000),
            images=Images(size=16),
            model=call(cnn9, table="B.1", width=0.25),
            optimizer=adam(0.001),
            schedule=call(CosineRate),
        )
    found = {}
    for group, names in GROUPS.items():
        options = {"no ReLU": {"activation": "none"}, "no BN": {"norm": "none"}}.get(group, {})
        for name in names:
            found[f"{group}/{name}"] = replace(base, model=base.model.replace(operator=OPERATORS[name], **options))
    found[PROJECTED] = replace(base, model__operator=OPERATORS["TanhConv"], project_every=10)
    return found


def _beats(group: str, name: str, metric: str = "accuracy") -> Check:
    what = {"accuracy": "accuracy", "early": "accuracy after a quarter of the steps"}[metric]
    return Check(f"{group}, {what}: {name} above the convolution", metric, f"{group}/{name}", f"{group}/convolution")


CLAIM = Claim(
    id="spherenet",
    title="Operators of the angle against the convolution",
    statement="SphereConv and the decoupled operators reach a higher accuracy than the convolution, converge sooner, and keep working "
    "without ReLU and without batch normalization; weight projection helps.",
    published=(
        Published(
            "3.1",
            "accuracy (%) of CNN-9 on CIFAR-10, softmax",
            {
                "convolution": 90.58,
                "SphereConv linear": 91.10,
                "SphereConv cosine": 90.89,
                "SphereConv sigmoid (0.3)": 91.08,
            },
        ),
        Published(
            "3.3",
            "accuracy (%) of CNN-18 on CIFAR-10 without ReLU",
            {
                "convolution": 80.73,
                "SphereConv linear": 85.34,
                "SphereConv cosine": 85.25,
                "SphereConv sigmoid (0.3)": 85.67,
            },
        ),
        Published(
            "4.1", "error (%) of TanhConv on CIFAR-100", {"standard gradients": 23.09, "weight projection": 21.17}
        ),
        Published(
            "4.2",
            "error (%) of CNN-9 on CIFAR-100 without BN",
            {"convolution": 35.30, "LinearConv cosine": 31.76, "TanhConv cosine": 31.88},
        ),
        Published(
            "4.3",
            "error (%) of CNN-9 on CIFAR-100, with ReLU (without)",
            {
                "convolution": "26.01 (58.24)",
                "SphereConv cosine": "26.00 (33.31)",
                "SphereConv square cosine": "26.97 (25.90)",
                "TanhConv cosine": "25.15 (32.27)",
                "LinearConv cosine": "24.81 (36.49)",
            },
        ),
    ),
    differences=(
        "CNN-9 of table B.1 at a quarter of its width; table 3.3 has CNN-18",
        "CIFAR-10 at 16×16 for all checks, measured on 4,000 of the test images; tables 4.1–4.3 are of CIFAR-100",
        "400 steps of Adam with batch 64 and a cosine schedule instead of 64,000 steps: the beginning of the published curves",
        "the learning rate of each arm is chosen on a tenth of the training set, in runs of half the length",
    ),
    arms=arms,
    metrics={"accuracy": "test accuracy (%)", "early": "after a quarter of the steps (%)"},
    checks=(
        _beats("BN, ReLU", "SphereConv linear"),
        _beats("BN, ReLU", "SphereConv cosine"),
        _beats("BN, ReLU", "SphereConv sigmoid"),
        _beats("BN, ReLU", "TanhConv"),
        _beats("BN, ReLU", "LinearConv"),
        _beats("BN, ReLU", "SphereConv cosine", "early"),
        _beats("BN, ReLU", "TanhConv", "early"),
        _beats("no ReLU", "SphereConv cosine"),
        _beats("no ReLU", "SphereConv square cosine"),
        _beats("no BN", "SphereConv cosine"),
        _beats("no BN", "TanhConv"),
        Check("accuracy: TanhConv with weight projection above without", "accuracy", PROJECTED, "BN, ReLU/TanhConv"),
    ),
    why="",
    picture=curves(
        [
            ("accuracy", f"test accuracy (%), {group}", [f"{group}/{name}" for name in names])
            for group, names in GROUPS.items()
        ]
    ),
    caption="Test accuracy over training, means over seeds.",
    tuning=Tuning(
        rates(1, 4),
        lambda config: replace(config, steps=200, evaluate_every=200, checkpoint_every=200),
    ),
)
